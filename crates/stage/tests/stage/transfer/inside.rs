//! A transfer that ended in the middle of a large file is continued inside of it.

use std::fs::{self, File};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use hayase_s3_server::{ACCESS_KEY, BUCKET, SECRET_KEY, Server};
use hayase_stage::Share;
use hayase_stage::limits::PART_BYTES;
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::s3::{CredentialSource, Credentials, S3Settings};
use hayase_tier::{
    Action, Attributes, Capabilities, Flaky, Key, ListRequest, ObjectMeta, Page, PartsUpload,
    Reader, S3, TierError, Tree, Upload, UploadOf,
};

use super::broken::Broken;
use super::*;

const BYTES: u64 = 9 * PART_BYTES + 12_345;
/// Parts that arrive before a tier breaks.
const ARRIVED: u64 = 4;

/// A tree with one file, whose bytes all differ.
fn trees() -> Trees {
    Trees::new(|top| fs::write(top.join("large"), bytes(0)).unwrap())
}

fn bytes(seed: u64) -> Vec<u8> {
    let words = (0..BYTES.div_ceil(8)).map(|at| (at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(BYTES as usize);
    bytes
}

/// Breaks with `fault` after so many parts.
fn breaks<T: Tier>(tier: T, parts: u64, fault: Fault) -> Flaky<T> {
    let left = AtomicI64::new(parts as i64);
    Flaky::new(tier, move |call| {
        let is_over = call == Call::Begun(Action::Write) && left.fetch_sub(1, Ordering::SeqCst) < 1;
        is_over.then_some(fault)
    })
}

fn two_streams() -> Options {
    Options { streams: Streams::Fixed(2), ..Options::default() }
}

/// Copies until `to` breaks.
fn broken_copy(from: &Place, to: impl Tier + 'static, fault: Fault) {
    let first = copy(from, &of(breaks(to, ARRIVED, fault)), &two_streams());
    assert_eq!((first.copied, first.failures_total), (0, 1), "{first:?}");
}

/// What the next run finds and moves.
#[track_caller]
fn continued(from: &Place, to: &Place, resumed: u64) {
    let second = copy_all(from, to, &two_streams());
    let told = (second.copied, second.bytes_resumed, second.bytes_moved);
    assert_eq!(told, (1, resumed, BYTES - resumed), "{second:?}");
    let third = copy_all(from, to, &two_streams());
    assert_eq!((third.copied, third.bytes_resumed, third.bytes_moved), (0, 0, 0), "{third:?}");
}

fn posix(path: &Path) -> Posix {
    Posix::attach(path).unwrap()
}

/// Names in a directory, hidden ones too.
fn names(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

struct Bucket {
    server: Server,
    kept: tempfile::TempDir,
}

impl Bucket {
    fn new() -> Self {
        let server = Server::start(&hayase_s3_server::Options::default()).unwrap();
        Self { server, kept: tempfile::tempdir().unwrap() }
    }

    fn tier(&self) -> S3 {
        let settings = S3Settings {
            endpoint: Some(self.server.endpoint()),
            credentials: CredentialSource::Keys(Credentials::permanent(ACCESS_KEY, SECRET_KEY)),
            kept_in: Some(self.kept.path().to_path_buf()),
            ..S3Settings::new(BUCKET)
        };
        S3::attach(settings).unwrap()
    }
}

#[test]
fn a_file_is_continued_in_a_directory() {
    for fault in [Fault::Full, Fault::Io, Fault::Unavailable] {
        let trees = trees();
        broken_copy(&trees.from(), posix(&trees.to), fault);
        assert_eq!(names(&trees.to), 2, "data and journal");
        continued(&trees.from(), &trees.to(), ARRIVED * PART_BYTES);
        assert_same(&trees.from, &trees.to);
        assert_eq!(names(&trees.to), 1);
    }
}

#[test]
fn a_file_is_continued_in_a_bucket() {
    for fault in [Fault::Full, Fault::Io, Fault::Unavailable] {
        let (trees, bucket) = (trees(), Bucket::new());
        broken_copy(&trees.from(), bucket.tier(), fault);
        assert_eq!(bucket.server.unfinished_parts() as u64, ARRIVED);
        continued(&trees.from(), &of(bucket.tier()), ARRIVED * PART_BYTES);
        assert_eq!((bucket.server.unfinished_uploads(), names(bucket.kept.path())), (0, 0));
        copy_all(&of(bucket.tier()), &trees.to(), &two_streams());
        assert_same(&trees.from, &trees.to);
    }
}

#[test]
fn bytes_of_a_bucket_are_not_read_again() {
    let (trees, bucket) = (trees(), Bucket::new());
    copy_all(&trees.from(), &of(bucket.tier()), &two_streams());
    broken_copy(&of(bucket.tier()), posix(&trees.to), Fault::Full);
    let before = bucket.server.bytes_read();
    continued(&of(bucket.tier()), &trees.to(), ARRIVED * PART_BYTES);
    let read = bucket.server.bytes_read() - before;
    // An open brings a megabyte.
    let least = BYTES - ARRIVED * PART_BYTES;
    assert!((least..=least + (2 << 20)).contains(&read), "{read} read for {least}");
    assert_same(&trees.from, &trees.to);
}

#[test]
fn a_large_file_beside_packs_is_continued() {
    let (trees, bucket) = (trees(), Bucket::new());
    let options =
        Options { streams: Streams::Fixed(2), ..packs(64 << 10, Compression::None, None) };
    // And what says that packs are begun.
    let full = of(breaks(bucket.tier(), ARRIVED + 1, Fault::Full));
    assert!(!copy(&trees.from(), &full, &options).is_complete());
    let second = copy_all(&trees.from(), &of(bucket.tier()), &options);
    assert_eq!(second.bytes_resumed, ARRIVED * PART_BYTES, "{second:?}");
    copy_all(&of(bucket.tier()), &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
}

#[test]
fn what_changed_meanwhile_begins_anew() {
    let dated = |trees: &Trees, time: SystemTime| {
        File::options().write(true).open(trees.from.join("large")).unwrap().set_modified(time)
    };
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for keeps_time in [false, true] {
        let (trees, bucket) = (trees(), Bucket::new());
        dated(&trees, old).unwrap();
        let from = trees.from();
        broken_copy(&from, posix(&trees.to), Fault::Full);
        broken_copy(&from, bucket.tier(), Fault::Full);
        fs::write(trees.from.join("large"), bytes(1)).unwrap();
        if keeps_time {
            dated(&trees, old).unwrap();
        }
        continued(&from, &trees.to(), 0);
        assert_same(&trees.from, &trees.to);
        assert_eq!(names(&trees.to), 1);
        continued(&from, &of(bucket.tier()), 0);
        assert_eq!(bucket.server.unfinished_uploads(), 0);
    }
}

#[test]
fn what_changes_while_it_is_continued_begins_anew() {
    let trees = trees();
    broken_copy(&trees.from(), posix(&trees.to), Fault::Full);
    let (path, left) = (trees.from.join("large"), AtomicI64::new(2));
    let from = Broken::new(posix(&trees.from)).on_read(move |_| {
        if left.fetch_sub(1, Ordering::SeqCst) == 0 {
            fs::write(&path, bytes(2)).unwrap();
        }
        Ok(())
    });
    copy_all(&of(from), &trees.to(), &two_streams());
    assert_same(&trees.from, &trees.to);
    assert_eq!(names(&trees.to), 1);
}

#[test]
fn what_keeps_changing_leaves_nothing() {
    let (trees, bucket) = (trees(), Bucket::new());
    let path = trees.from.join("large");
    let from = of(Broken::new(posix(&trees.from)).on_read(move |_| {
        let file = File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"x", BYTES - 1).unwrap();
        Ok(())
    }));
    for to in [trees.to(), of(bucket.tier())] {
        let summary = copy(&from, &to, &two_streams());
        assert_eq!((summary.failures_total, summary.copied), (1, 0), "{summary:?}");
    }
    let left = (names(&trees.to), bucket.server.unfinished_uploads(), names(bucket.kept.path()));
    assert_eq!(left, (0, 0, 0));
}

#[test]
fn a_part_that_was_damaged_there_moves_again() {
    let trees = trees();
    broken_copy(&trees.from(), posix(&trees.to), Fault::Full);
    let paths = fs::read_dir(&trees.to).unwrap().map(|name| name.unwrap().path());
    let data = paths.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let file = File::options().read(true).write(true).open(data).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"damage", 100).unwrap();
    // With two streams the first part is always among those that arrived.
    continued(&trees.from(), &trees.to(), (ARRIVED - 1) * PART_BYTES);
    assert_same(&trees.from, &trees.to);
}

#[test]
fn another_run_at_the_same_file_goes_its_own_way() {
    let trees = trees();
    let of_other = UploadOf { version: 1, size: BYTES, part_bytes: PART_BYTES };
    let (tier, key) = (posix(&trees.to), Key::new("large").unwrap());
    let other = tier.resume_parts(&key, Attributes::default(), of_other).unwrap().unwrap();
    other.put_part(0, &vec![7; PART_BYTES as usize]).unwrap();
    continued(&trees.from(), &trees.to(), 0);
    assert!(fs::read(trees.to.join("large")).unwrap() == bytes(0), "bytes differ");
    drop(other);
    let again = tier.resume_parts(&key, Attributes::default(), of_other).unwrap().unwrap();
    assert!(again.read_kept(0, &mut Vec::new()), "the other one lost what it had");
    again.discard();
}

/// A directory where a run began in parts of another size.
#[derive(Debug)]
struct OtherParts(Flaky<Posix>);

impl Tier for OtherParts {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn describe(&self) -> String {
        self.0.describe()
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
        self.0.begin(key, attributes)
    }
    fn resume_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        of: UploadOf,
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        self.0.resume_parts(key, attributes, of)
    }
    fn unfinished_part_bytes(&self, _: &Key, _: u64) -> Option<u64> {
        Some(OTHER_PART_BYTES)
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.0.set_attributes(key, attributes)
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        self.0.delete(key)
    }
    fn tree(&self) -> Option<&dyn Tree> {
        self.0.tree()
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        self.0.sweep(prefix, before)
    }
}

const OTHER_PART_BYTES: u64 = 6 << 20;

#[test]
fn parts_are_as_large_as_they_were_begun() {
    let trees = trees();
    let tier = OtherParts(breaks(posix(&trees.to), ARRIVED, Fault::Full));
    assert!(!copy(&trees.from(), &of(tier), &two_streams()).is_complete());
    continued(&trees.from(), &trees.to(), ARRIVED * OTHER_PART_BYTES);
    assert_same(&trees.from, &trees.to);
}

#[test]
fn what_is_unfinished_is_no_file_and_is_swept() {
    let trees = trees();
    broken_copy(&trees.from(), posix(&trees.to), Fault::Full);
    // As a tree of its own there is nothing in it.
    let other = tempfile::tempdir().unwrap();
    assert_eq!(copy_all(&trees.to(), &directory(other.path()), &Options::default()).copied, 0);
    for name in fs::read_dir(&trees.to).unwrap() {
        let file = File::options().write(true).open(name.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    }
    // A run that ends early leaves what may still be resumed.
    fs::write(trees.from.join("early"), "x").unwrap();
    let full = Broken::new(posix(&trees.to)).full_after(0);
    assert!(copy(&trees.from(), &of(full), &two_streams()).is_stopped);
    assert_eq!(names(&trees.to), 2, "it was swept");
    fs::remove_file(trees.from.join("large")).unwrap();
    let delete = Options { delete: true, ..two_streams() };
    assert_eq!(copy_all(&trees.from(), &trees.to(), &delete).removed, 0);
    assert_same(&trees.from, &trees.to);
    assert_eq!(names(&trees.to), 1, "it was not swept");
}

#[test]
fn a_share_leaves_what_others_may_continue() {
    let swept = |share: Option<Share>| {
        let trees = trees();
        broken_copy(&trees.from(), posix(&trees.to), Fault::Full);
        for name in fs::read_dir(&trees.to).unwrap() {
            let file = File::options().write(true).open(name.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
        }
        // A complete copy would continue it.
        if share.is_none() {
            fs::remove_file(trees.from.join("large")).unwrap();
        }
        let options = Options { share, ..two_streams() };
        assert_eq!(copy_all(&trees.from(), &trees.to(), &options).bytes_resumed, 0);
        let is_swept = names(&trees.to) == 0;
        if !is_swept {
            // Whoever has it continues it, however old.
            continued(&trees.from(), &trees.to(), ARRIVED * PART_BYTES);
            assert_eq!(names(&trees.to), 1);
        }
        is_swept
    };
    // The only file is the first node's.
    let second = |directories| Some(Share { node: 1, nodes: 2, directories });
    assert!(!swept(second(false)));
    assert!(swept(second(true)), "its target is its own, and no copy follows");
    assert!(swept(None), "the complete copy");
}
