//! Promises about versions: replaced whole, never half seen, exactly one winner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use super::{get, is_missing, key, list, names, pattern, put, read_all};
use crate::{Attributes, Depth, EntryKind, Key, Precondition, Reader, Tier, TierError, Upload};

pub(super) fn invisible_before_commit(tier: &Arc<dyn Tier>) {
    let name = key("d/new");
    let mut upload = tier.begin(&name, Attributes::default()).expect("begin");
    upload.write_at(0, &pattern(1, 100_000)).expect("write");
    assert!(is_missing(tier.stat(&name)));
    assert!(is_missing(tier.open(&name)));
    assert_eq!(list(&**tier, "", Depth::All, 10), []);
    assert_eq!(list(&**tier, "d/", Depth::One, 10), []);
    let committed = upload.commit(Precondition::Any).expect("commit");
    assert_eq!(committed.identity, tier.stat(&name).expect("stat").identity);
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["d/new"]);
}

pub(super) fn dropped_upload(tier: &Arc<dyn Tier>) {
    let (old, new) = (key("old"), key("new"));
    put(&**tier, &old, b"former");
    let before = tier.stat(&old).expect("stat");
    for name in [&old, &new] {
        let mut upload = tier.begin(name, Attributes::default()).expect("begin");
        upload.write_at(0, b"never to be seen").expect("write");
        drop(upload);
    }
    assert_eq!(get(&**tier, &old), b"former");
    assert_eq!(tier.stat(&old).expect("stat"), before);
    assert!(is_missing(tier.stat(&new)));
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["old"]);
}

pub(super) fn open_version_stays(tier: &Arc<dyn Tier>) {
    let name = key("v");
    put(&**tier, &name, &pattern(1, 50_000));
    let first = tier.open(&name).expect("open");
    put(&**tier, &name, b"second");
    if !tier.capabilities().snapshots {
        replaced_is_told(tier, &name, &*first);
        return;
    }
    assert!(read_all(&*first) == pattern(1, 50_000), "the first version changed under its reader");
    assert_ne!(first.meta().identity, tier.stat(&name).expect("stat").identity);
    let second = tier.open(&name).expect("open");
    tier.delete(&name).expect("delete");
    assert!(is_missing(tier.stat(&name)));
    assert_eq!(read_all(&*second), b"second", "the second version went with its name");
}

/// Without snapshots: the version that was open, or the news that it is gone; nothing else.
fn replaced_is_told(tier: &Arc<dyn Tier>, name: &Key, first: &dyn Reader) {
    let whole = pattern(1, 50_000);
    for _ in 0..2 {
        let mut bytes = vec![0; whole.len()];
        match first.read_at(0, &mut bytes) {
            Ok(count) => assert!(bytes[..count] == whole[..], "another version was delivered"),
            Err(TierError::Changed { .. }) => {}
            Err(error) => panic!("a replaced version: {error}"),
        }
        // The second time its name is gone too.
        assert!(is_missing(tier.stat(name)) || tier.delete(name).is_ok());
    }
}

pub(super) fn listed_version(tier: &Arc<dyn Tier>) {
    let name = key("d/listed");
    put(&**tier, &name, &pattern(3, 5_000));
    let listed = list(&**tier, "d/", Depth::All, 10);
    let EntryKind::Object(meta) = listed[0].kind else { panic!("{listed:?}") };
    let reader = tier.open_listed(&name, meta).expect("open what was listed");
    assert_eq!(reader.meta(), meta);
    let mut piece = [0; 9];
    assert_eq!(reader.read_at(4_995, &mut piece).expect("read its end"), 5);
    assert_eq!(piece[..5], pattern(3, 5_000)[4_995..]);
    assert!(read_all(&*reader) == pattern(3, 5_000));
    put(&**tier, &name, b"other");
    let stale = tier.open_listed(&name, meta).and_then(|reader| reader.read_at(0, &mut piece));
    assert!(matches!(stale, Err(TierError::Changed { .. })), "{stale:?}");
}

pub(super) fn absent_once(tier: &Arc<dyn Tier>) {
    let name = key("d/once");
    if tier.capabilities().absent_max.is_none() {
        let answer = tier.put(&name, Attributes::default(), b"once", Precondition::Absent);
        assert!(matches!(answer, Err(TierError::Unsupported { .. })), "{answer:?}");
        assert!(is_missing(tier.stat(&name)));
        return;
    }
    for round in 0..20 {
        let uploads = [b'a', b'b'].map(|letter| {
            let mut upload = tier.begin(&name, Attributes::default()).expect("begin");
            upload.write_at(0, &[letter; 9]).expect("write");
            (letter, upload)
        });
        let threads = uploads.map(|(letter, upload)| {
            thread::spawn(move || (letter, upload.commit(Precondition::Absent)))
        });
        let answers = threads.map(|thread| thread.join().expect("a thread that commits"));
        let winners: Vec<u8> = answers
            .iter()
            .filter(|(_, answer)| answer.is_ok())
            .map(|(letter, _)| *letter)
            .collect();
        assert_eq!(winners.len(), 1, "round {round}: {answers:?}");
        let refused = |answer: &Result<_, _>| matches!(answer, Err(TierError::Exists { .. }));
        assert!(answers.iter().any(|(_, answer)| refused(answer)), "round {round}: {answers:?}");
        assert_eq!(get(&**tier, &name), [winners[0]; 9]);
        assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["d/once"]);
        tier.delete(&name).expect("delete");
    }
}

fn begun(tier: &dyn Tier, name: &Key, bytes: &[u8]) -> Box<dyn Upload> {
    let mut upload = tier.begin(name, Attributes::default()).expect("begin");
    upload.write_at(0, bytes).expect("write");
    upload
}

fn is_changed<T>(answer: &Result<T, TierError>) -> bool {
    matches!(answer, Err(TierError::Changed { .. }))
}

pub(super) fn matching_replaced(tier: &Arc<dyn Tier>) {
    let name = key("d/known");
    let refused = begun(&**tier, &name, b"of none").commit(Precondition::Matches(1));
    assert!(is_changed(&refused) && is_missing(tier.stat(&name)), "{refused:?}");
    put(&**tier, &name, b"first");
    let first = tier.stat(&name).expect("stat").identity;
    let (late, small) = (begun(&**tier, &name, b"late"), b"put at once");
    put(&**tier, &name, b"theirs, second");
    let refused = late.commit(Precondition::Matches(first));
    assert!(is_changed(&refused), "{refused:?}");
    let refused = tier.put(&name, Attributes::default(), small, Precondition::Matches(first));
    assert!(is_changed(&refused), "{refused:?}");
    assert_eq!(get(&**tier, &name), b"theirs, second");
    let second = tier.stat(&name).expect("stat").identity;
    let ours = begun(&**tier, &name, b"ours").commit(Precondition::Matches(second));
    let ours = ours.expect("the version is the one that is there");
    assert_eq!((ours.size.get(), get(&**tier, &name)), (4, b"ours".to_vec()));
    let third = tier.stat(&name).expect("stat").identity;
    tier.put(&name, Attributes::default(), small, Precondition::Matches(third)).expect("put");
    assert_eq!(get(&**tier, &name), small);
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["d/known"]);
    let later = SystemTime::now() + Duration::from_secs(60);
    tier.sweep(b"", later).expect("sweep");
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["d/known"], "nothing was left");
}

pub(super) fn matching_once(tier: &Arc<dyn Tier>) {
    let name = key("d/raced");
    put(&**tier, &name, b"version 0");
    // Elsewhere both may have looked before one of them switches.
    let rounds = if tier.capabilities().compares { 20_u8 } else { 0 };
    for round in 0..rounds {
        let there = tier.stat(&name).expect("stat").identity;
        // Other bytes each time: a store of objects can take the same bytes for the same version.
        let uploads = [b'a', b'b'].map(|letter| (letter, [letter, round]));
        let uploads = uploads.map(|(letter, bytes)| (letter, begun(&**tier, &name, &bytes)));
        let threads = uploads.map(|(letter, upload)| {
            thread::spawn(move || (letter, upload.commit(Precondition::Matches(there))))
        });
        let answers = threads.map(|thread| thread.join().expect("a thread that commits"));
        let won = |(_, answer): &&(u8, Result<_, _>)| answer.is_ok();
        let winners: Vec<_> = answers.iter().filter(won).map(|(letter, _)| *letter).collect();
        assert_eq!(winners.len(), 1, "round {round}: {answers:?}");
        assert!(answers.iter().any(|(_, answer)| is_changed(answer)), "{answers:?}");
        assert_eq!(get(&**tier, &name), [winners[0], round]);
        assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["d/raced"]);
    }
}

pub(super) fn matching_deleted(tier: &Arc<dyn Tier>) {
    let name = key("d/gone");
    assert!(is_missing(tier.delete_version(&name, 1)));
    put(&**tier, &name, b"first");
    let first = tier.stat(&name).expect("stat").identity;
    put(&**tier, &name, b"theirs, second");
    let refused = tier.delete_version(&name, first);
    assert!(is_changed(&refused), "{refused:?}");
    assert_eq!(get(&**tier, &name), b"theirs, second");
    let second = tier.stat(&name).expect("stat").identity;
    tier.delete_version(&name, second).expect("the version is the one that is there");
    assert!(is_missing(tier.stat(&name)));
    assert!(names(&list(&**tier, "", Depth::All, 10)).is_empty());
}

pub(super) fn concurrent_replace(tier: &Arc<dyn Tier>) {
    const SIZE: usize = 100_000;
    let name = key("busy");
    put(&**tier, &name, &vec![0; SIZE]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (1..=2)
            .map(|seed: u8| {
                let (tier, name) = (&tier, &name);
                scope.spawn(move || {
                    for round in 0..25 {
                        put(&***tier, name, &vec![seed * 100 + round; SIZE]);
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Acquire) || seen == 0 {
                let Some(bytes) = get_unless_changed(&**tier, &name) else { continue };
                assert_eq!(bytes.len(), SIZE);
                assert!(bytes.iter().all(|&byte| byte == bytes[0]), "two versions in one read");
                seen += 1;
            }
        });
        for writer in writers {
            writer.join().expect("a writer");
        }
        done.store(true, Ordering::Release);
        reader.join().expect("the reader");
    });
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["busy"]);
}

/// A version as a whole; `None` when it was replaced between two requests and the tier said so.
fn get_unless_changed(tier: &dyn Tier, name: &Key) -> Option<Vec<u8>> {
    let reader = tier.open(name).expect("open");
    let mut bytes = vec![0; usize::try_from(reader.meta().size.get()).expect("small") + 1];
    match reader.read_at(0, &mut bytes) {
        Ok(count) => bytes.truncate(count),
        Err(TierError::Changed { .. }) if !tier.capabilities().snapshots => return None,
        Err(error) => panic!("read: {error}"),
    }
    Some(bytes)
}

pub(super) fn sweep(tier: &Arc<dyn Tier>) {
    let name = key("d/kept");
    put(&**tier, &name, b"kept");
    let mut upload = tier.begin(&key("d/left"), Attributes::default()).expect("begin");
    upload.write_at(0, b"left by a killed process").expect("write");
    std::mem::forget(upload);
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["d/kept"]);
    assert_eq!(names(&list(&**tier, "d/", Depth::One, 10)), ["d/kept"]);
    assert_eq!(tier.sweep(b"", SystemTime::UNIX_EPOCH).expect("sweep"), 0, "too young");
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(tier.sweep(b"elsewhere/", later).expect("sweep"), 0);
    let swept = tier.sweep(b"d/", later).expect("sweep");
    assert!(swept <= 1, "{swept} swept of one");
    assert_eq!(tier.sweep(b"", later).expect("sweep"), 0, "the first sweep left something");
    assert_eq!(get(&**tier, &name), b"kept");
}

pub(super) fn rename(tier: &Arc<dyn Tier>) {
    let (from, to) = (key("d/from"), key("e/f/to"));
    put(&**tier, &from, b"moved");
    if !tier.capabilities().rename {
        assert!(matches!(tier.rename(&from, &to), Err(TierError::Unsupported { .. })));
        assert_eq!(get(&**tier, &from), b"moved");
        return;
    }
    tier.rename(&from, &to).expect("rename to a new directory");
    assert!(is_missing(tier.stat(&from)));
    assert_eq!(get(&**tier, &to), b"moved");
    put(&**tier, &from, b"newer");
    let replaced = tier.open(&to).expect("open");
    tier.rename(&from, &to).expect("rename over an object");
    assert_eq!(get(&**tier, &to), b"newer");
    assert_eq!(read_all(&*replaced), b"moved");
    tier.rename(&to, &to).expect("rename to itself");
    assert_eq!(get(&**tier, &to), b"newer");
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["e/f/to"]);
}

pub(super) fn matching_renamed(tier: &Arc<dyn Tier>) {
    let (from, to) = (key("d/from"), key("e/to"));
    let now = |name: &Key| tier.stat(name).expect("stat").identity;
    let rename = |identity, expected| tier.rename_version((&from, identity), (&to, expected));
    put(&**tier, &from, b"first");
    let first = now(&from);
    if !tier.capabilities().rename {
        let refused = rename(first, None);
        assert!(matches!(refused, Err(TierError::Unsupported { .. })), "{refused:?}");
        assert_eq!(get(&**tier, &from), b"first");
        return;
    }
    assert!(is_changed(&rename(first, Some(1))) && is_missing(tier.stat(&to)));
    let moved = rename(first, None).expect("rename to a new directory");
    assert_eq!((moved.size.get(), moved.identity), (5, now(&to)));
    assert!(is_missing(tier.stat(&from)) && is_missing(rename(first, None)));
    put(&**tier, &from, b"second");
    let second = now(&from);
    let refused = rename(second, None);
    assert!(matches!(refused, Err(TierError::Exists { .. })), "{refused:?}");
    put(&**tier, &to, b"theirs");
    assert!(is_changed(&rename(second, Some(moved.identity))));
    assert_eq!((get(&**tier, &from), get(&**tier, &to)), (b"second".to_vec(), b"theirs".to_vec()));
    let (theirs, replaced) = (now(&to), tier.open(&to).expect("open"));
    assert!(is_changed(&rename(theirs, Some(theirs))), "another version is at the old name");
    let moved = rename(now(&from), Some(theirs)).expect("rename over the version that is there");
    assert_eq!((moved.size.get(), moved.identity), (6, now(&to)));
    assert_eq!((get(&**tier, &to), read_all(&*replaced)), (b"second".to_vec(), b"theirs".to_vec()));
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["e/to"]);
    let later = SystemTime::now() + Duration::from_secs(60);
    tier.sweep(b"", later).expect("sweep");
    assert_eq!(names(&list(&**tier, "", Depth::All, 10)), ["e/to"], "nothing was left");
}
