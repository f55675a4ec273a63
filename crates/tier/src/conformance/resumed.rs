//! Uploads that outlive their process: here one ends by being dropped, which leaves what a kill leaves.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{get, is_missing, key, list, pattern, put};
use crate::{Attributes, Depth, Key, PartsUpload, Precondition, Tier, UploadOf};

const PART: u64 = 5 << 20;
const OF: UploadOf = UploadOf { version: 7, size: 2 * PART + 17, part_bytes: PART };

fn attributes() -> Attributes {
    let mtime = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    Attributes { mode: Some(0o640), mtime: Some(mtime) }
}

fn name() -> Key {
    key("d/resumed")
}

fn bytes() -> Vec<u8> {
    pattern(5, OF.size as usize)
}

fn part(number: u32) -> Vec<u8> {
    let start = u64::from(number) * PART;
    bytes()[start as usize..(start + PART).min(OF.size) as usize].to_vec()
}

/// `None` where the tier can not do it.
fn resume(tier: &dyn Tier, of: UploadOf) -> Option<Box<dyn PartsUpload>> {
    let upload = tier.resume_parts(&name(), attributes(), of).expect("resume");
    assert_eq!(upload.is_some(), tier.capabilities().resumes);
    upload
}

/// Which of the parts it has.
fn kept(upload: &dyn PartsUpload) -> Vec<u32> {
    let mut buffer = vec![1; 3];
    let mut is_kept = |&number: &u32| {
        if upload.read_kept(number, &mut buffer) {
            assert!(buffer == part(number), "other bytes of part {number}");
            return true;
        }
        let mut wrong = part(number);
        wrong[7] ^= 1;
        assert!(!upload.is_kept(number, &wrong), "part {number} is taken for another");
        upload.is_kept(number, &part(number))
    };
    (0..3).filter(&mut is_kept).collect()
}

/// Puts parts, then ends.
fn put_parts(tier: &dyn Tier, of: UploadOf, numbers: &[u32]) -> bool {
    let Some(upload) = resume(tier, of) else { return false };
    for &number in numbers {
        upload.put_part(number, &part(number)).expect("put a part");
    }
    true
}

pub(super) fn parts(tier: &Arc<dyn Tier>) {
    put(&**tier, &key("d/other"), b"other");
    if !put_parts(&**tier, OF, &[2, 0]) {
        assert_eq!(tier.unfinished_part_bytes(&name(), OF.size), None);
        return;
    }
    assert!(is_missing(tier.stat(&name())), "it is seen before commit");
    assert_eq!(list(&**tier, "", Depth::All, 10).len(), 1, "what is unfinished is listed");
    assert_eq!(tier.unfinished_part_bytes(&name(), OF.size), Some(PART));
    assert_eq!(tier.unfinished_part_bytes(&name(), OF.size + 1), None);
    assert_eq!(tier.unfinished_part_bytes(&key("d/other"), OF.size), None);
    let upload = resume(&**tier, OF).expect("it could be begun");
    assert_eq!(kept(&*upload), [0, 2]);
    drop(upload);
    // A kept part that nobody compared is not committed, and an incomplete one not at all.
    let upload = resume(&**tier, OF).expect("it could be begun");
    upload.put_part(1, &part(1)).expect("put a part");
    assert!(upload.commit(Precondition::Any).is_err());
    assert!(is_missing(tier.stat(&name())), "it came unseen");
    put_parts(&**tier, OF, &[0, 1, 2]);
    let upload = resume(&**tier, OF).expect("it could be begun");
    assert_eq!(kept(&*upload), [0, 1, 2]);
    // The later one counts, also of a part that was there.
    upload.put_part(1, &part(0)).expect("put a part");
    upload.put_part(1, &part(1)).expect("put it again");
    assert_eq!(upload.commit(Precondition::Any).expect("commit").size.get(), OF.size);
    assert!(get(&**tier, &name()) == bytes(), "bytes differ");
    let told = tier.open(&name()).expect("open").attributes().expect("attributes");
    assert_eq!(told, attributes());
    assert_eq!(tier.unfinished_part_bytes(&name(), OF.size), None);
    let upload = resume(&**tier, OF).expect("it could be begun");
    assert_eq!(kept(&*upload), [0_u32; 0], "the parts of a version that is done");
    upload.discard();
    assert!(get(&**tier, &name()) == bytes(), "giving up took the version");
}

pub(super) fn others(tier: &Arc<dyn Tier>) {
    let other_parts = UploadOf { part_bytes: PART + (1 << 20), ..OF };
    let others = [UploadOf { version: 8, ..OF }, UploadOf { size: OF.size - 1, ..OF }, other_parts];
    for other in others {
        if !put_parts(&**tier, OF, &[0, 2]) {
            return;
        }
        let upload = resume(&**tier, other).expect("it could be begun");
        assert_eq!(kept(&*upload), [0_u32; 0], "{other:?} has what is not its own");
        drop(upload);
        let upload = resume(&**tier, OF).expect("it could be begun");
        assert_eq!(kept(&*upload), [0_u32; 0], "what was given up is there again");
        drop(upload);
        put_parts(&**tier, OF, &[1]);
        resume(&**tier, OF).expect("it could be begun").discard();
        let upload = resume(&**tier, OF).expect("it could be begun");
        assert_eq!(kept(&*upload), [0_u32; 0], "what was discarded is there again");
        upload.discard();
    }
}

pub(super) fn live(tier: &Arc<dyn Tier>) {
    let Some(upload) = resume(&**tier, OF) else { return };
    upload.put_part(0, &part(0)).expect("put a part");
    for of in [OF, UploadOf { version: 8, ..OF }] {
        let second = tier.resume_parts(&name(), attributes(), of).expect("resume");
        assert!(second.is_none(), "an upload that is on its way was taken");
    }
    // Others get there by another way, and this one is as it was.
    put(&**tier, &name(), b"meanwhile");
    upload.put_part(1, &part(1)).expect("put a part");
    upload.put_part(2, &part(2)).expect("put a part");
    upload.commit(Precondition::Any).expect("commit");
    assert!(get(&**tier, &name()) == bytes(), "bytes differ");
}

pub(super) fn swept(tier: &Arc<dyn Tier>) {
    if !put_parts(&**tier, OF, &[0, 1]) {
        return;
    }
    assert_eq!(tier.sweep(b"", SystemTime::UNIX_EPOCH).expect("sweep"), 0, "too young");
    let later = SystemTime::now() + Duration::from_secs(60);
    assert!(tier.sweep(b"d/", later).expect("sweep") > 0, "nothing was swept");
    assert_eq!(tier.unfinished_part_bytes(&name(), OF.size), None);
    let upload = resume(&**tier, OF).expect("it could be begun");
    assert_eq!(kept(&*upload), [0_u32; 0], "what was swept is there again");
    upload.discard();
    assert_eq!(tier.sweep(b"", later).expect("sweep"), 0, "something is left");
}
