//! Every version of a tier passes the one suite.

use std::time::{Duration, SystemTime};

use hayase_layout::ByteCount;
use hayase_tier::throttled::Pace;
use hayase_tier::{
    Attributes, Capabilities, Flaky, Key, Limited, ListRequest, Memory, ObjectMeta, Owner, Page,
    Posix, Precondition, Reader, Throttled, Tier, TierError, Upload, conformance,
};

#[test]
fn memory_is_a_tier() {
    conformance::run(Memory::new);
}

#[test]
fn memory_without_a_tree_is_a_tier() {
    conformance::run(Memory::flat);
}

#[test]
fn a_shared_handle_is_a_tier() {
    conformance::run(|| std::sync::Arc::new(Memory::new()));
}

#[test]
fn a_directory_is_a_tier() {
    let around = tempfile::tempdir().unwrap();
    let mut count = 0;
    conformance::run(|| {
        count += 1;
        let root = around.path().join(count.to_string());
        std::fs::create_dir(&root).unwrap();
        Posix::attach(&root).unwrap()
    });
}

#[test]
fn a_directory_whose_uploads_have_an_owner_is_a_tier() {
    let around = tempfile::tempdir().unwrap();
    let owner = Owner::new("job-1").unwrap();
    let mut count = 0;
    conformance::run(|| {
        count += 1;
        let root = around.path().join(count.to_string());
        std::fs::create_dir(&root).unwrap();
        Posix::attach_owned(&root, &owner).unwrap()
    });
}

#[test]
fn a_directory_that_ends_with_the_job_is_a_tier() {
    let around = tempfile::tempdir().unwrap();
    let mut count = 0;
    conformance::run(|| {
        count += 1;
        let root = around.path().join(count.to_string());
        std::fs::create_dir(&root).unwrap();
        Posix::attach_passing(&root).unwrap()
    });
}

#[test]
fn decorators_are_tiers() {
    conformance::run(|| Limited::new(Memory::new(), 2));
    conformance::run(|| Flaky::new(Memory::flat(), |_| None));
    let bytes_per_second = Some(ByteCount::mib(4096));
    let pace = Pace { bytes_per_second, latency: Duration::from_micros(20) };
    conformance::run(|| Throttled::new(Memory::new(), pace));
    conformance::run(|| Limited::new(Throttled::new(Flaky::new(Memory::new(), |_| None), pace), 1));
}

#[test]
fn a_decorated_directory_is_a_tier() {
    let around = tempfile::tempdir().unwrap();
    let mut count = 0;
    conformance::run(|| {
        count += 1;
        let root = around.path().join(count.to_string());
        std::fs::create_dir(&root).unwrap();
        let posix = Posix::attach(&root).unwrap();
        let pace = Pace { bytes_per_second: None, latency: Duration::ZERO };
        Flaky::new(Throttled::new(Limited::new(posix, 3), pace), |_| None)
    });
}

/// Memory with one broken promise: `Absent` is not looked at.
#[derive(Debug)]
struct Careless(Memory);

struct CarelessUpload(Box<dyn Upload>);

impl Upload for CarelessUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        self.0.write_at(offset, data)
    }
    fn commit(self: Box<Self>, _: Precondition) -> Result<ObjectMeta, TierError> {
        self.0.commit(Precondition::Any)
    }
}

impl Tier for Careless {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn describe(&self) -> String {
        "careless".into()
    }
    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        self.0.list(request)
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.0.stat(key)
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        self.0.open(key)
    }
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        Ok(Box::new(CarelessUpload(self.0.begin(key, attributes)?)))
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.0.set_attributes(key, attributes)
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        self.0.delete(key)
    }
    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        self.0.rename(from, to)
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        self.0.sweep(prefix, before)
    }
}

#[test]
#[should_panic(expected = "round 0")]
fn the_suite_notices_a_broken_promise() {
    conformance::run(|| Careless(Memory::new()));
}
