//! Memory of a copy: many large files through a small gate, with a source and a target that count what is on
//! its way between them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use hayase_layout::ByteCount;
use hayase_stage::limits::PART_BYTES;
use hayase_tier::{
    Action, Attributes, Capabilities, Entry, EntryKind, Key, ListRequest, ObjectMeta, Page,
    PartsUpload, Precondition, Reader, TierError, Upload,
};

use super::*;
use hayase_stage::PartSize;

const FILES: usize = 5;
/// Three whole parts, and one byte.
const BYTES: u64 = 3 * PART_BYTES + 1;

/// Parts that were read and that the target does not have yet.
#[derive(Debug, Default)]
struct Way {
    now: HashMap<(Key, u64), u64>,
    peak: u64,
}

impl Way {
    fn begin(&mut self, key: &Key, offset: u64, bytes: u64) {
        self.now.insert((key.clone(), offset), bytes);
        self.peak = self.peak.max(self.now.values().sum());
    }
}

type Shared = Arc<Mutex<Way>>;

/// Equal objects; each byte says in which part it is.
#[derive(Debug)]
struct Files(Shared);

/// Takes parts in any order, each in some time.
#[derive(Debug)]
struct Taker {
    way: Shared,
    done: Arc<Mutex<Vec<Key>>>,
}

fn meta() -> ObjectMeta {
    let mtime = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    ObjectMeta { size: ByteCount(BYTES), mode: 0o644, mtime, identity: 1 }
}

fn refuse<T>(action: Action) -> Result<T, TierError> {
    Err(TierError::Unsupported { action, path: "memory".into() })
}

struct Object(Shared, Key);

impl Reader for Object {
    fn meta(&self) -> ObjectMeta {
        meta()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        self.0.lock().unwrap().begin(&self.1, offset, buffer.len() as u64);
        buffer.fill((offset / PART_BYTES) as u8);
        Ok(buffer.len())
    }
}

struct Parts(Shared, Key, Arc<Mutex<Vec<Key>>>, Mutex<Vec<u32>>);

impl PartsUpload for Parts {
    fn put_part(&self, number: u32, data: &[u8]) -> Result<(), TierError> {
        std::thread::sleep(Duration::from_millis(3));
        let offset = u64::from(number) * PART_BYTES;
        assert_eq!(data.len() as u64, PART_BYTES.min(BYTES - offset));
        assert!(data == vec![number as u8; data.len()], "part {number} is another");
        self.3.lock().unwrap().push(number);
        self.0.lock().unwrap().now.remove(&(self.1.clone(), offset)).unwrap();
        Ok(())
    }
    fn commit(self: Box<Self>, _: Precondition) -> Result<ObjectMeta, TierError> {
        let mut parts = self.3.lock().unwrap().clone();
        parts.sort_unstable();
        assert_eq!(parts, [0, 1, 2, 3]);
        self.2.lock().unwrap().push(self.1);
        Ok(meta())
    }
}

macro_rules! read_only {
    () => {
        fn capabilities(&self) -> Capabilities {
            Capabilities::CORE
        }
        fn describe(&self) -> String {
            "memory".into()
        }
        fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
            Err(TierError::Missing { action: Action::Stat, path: key.to_string() })
        }
        fn begin(&self, _: &Key, _: Attributes) -> Result<Box<dyn Upload>, TierError> {
            refuse(Action::Begin)
        }
        fn set_attributes(&self, _: &Key, _: Attributes) -> Result<(), TierError> {
            refuse(Action::SetAttributes)
        }
        fn delete(&self, _: &Key) -> Result<(), TierError> {
            refuse(Action::Delete)
        }
        fn sweep(&self, _: &[u8], _: SystemTime) -> Result<usize, TierError> {
            Ok(0)
        }
    };
}

impl Tier for Files {
    read_only!();
    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        let entry = |number| Entry {
            name: format!("f{number}").into_bytes(),
            kind: EntryKind::Object(meta()),
        };
        let is_all = request.prefix.is_empty() && request.after.is_none();
        let entries = if is_all { (0..FILES).map(entry).collect() } else { Vec::new() };
        Ok(Page { entries, next: None })
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        Ok(Box::new(Object(Arc::clone(&self.0), key.clone())))
    }
}

impl Tier for Taker {
    read_only!();
    fn list(&self, _: &ListRequest) -> Result<Page, TierError> {
        Ok(Page::default())
    }
    fn open(&self, _: &Key) -> Result<Box<dyn Reader>, TierError> {
        refuse(Action::Open)
    }
    fn begin_parts(
        &self,
        key: &Key,
        _: Attributes,
        (size, part_bytes): (u64, u64),
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        assert_eq!((size, part_bytes), (BYTES, PART_BYTES));
        let (way, done) = (Arc::clone(&self.way), Arc::clone(&self.done));
        Ok(Some(Box::new(Parts(way, key.clone(), done, Mutex::default()))))
    }
}

#[test]
fn large_files_hold_no_more_than_they_may_together() {
    // A bound, and how many parts fit into it with what their opens bring.
    for (memory, parts) in [(1, 1), (PART_BYTES, 1), (20 << 20, 2), (60 << 20, 6)] {
        let (way, done) = (Shared::default(), Arc::default());
        let taker = Taker { way: Arc::clone(&way), done: Arc::clone(&done) };
        let part_size = PartSize::Fixed(PART_BYTES);
        let options =
            Options { memory, part_size, streams: Streams::Fixed(8), ..Options::default() };
        let summary = copy_all(&of(Files(Arc::clone(&way))), &of(taker), &options);
        assert_eq!((summary.copied, done.lock().unwrap().len()), (FILES as u64, FILES));
        assert!(summary.memory_peak <= memory, "{} under {memory}", summary.memory_peak);
        let way = way.lock().unwrap();
        assert!(way.now.is_empty());
        assert_eq!(summary.part_bytes, PART_BYTES);
        assert!((1..=parts * PART_BYTES).contains(&way.peak), "{} under {memory}", way.peak);
    }
}

#[test]
fn parts_in_turn_pass_the_smallest_gate() {
    let (way, store) = (Shared::default(), Memory::flat());
    let options = Options { memory: 1, streams: Streams::Fixed(8), ..Options::default() };
    let summary = copy_all(&of(Files(way)), &of(store.clone()), &options);
    assert_eq!(summary.copied, FILES as u64);
    let meta = store.stat(&Key::new("f3").unwrap()).unwrap();
    assert_eq!(meta.size.get(), BYTES);
}
