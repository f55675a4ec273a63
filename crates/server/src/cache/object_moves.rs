//! Objects that get another name in a tier, whoever else writes those names meanwhile.
//!
//! What is found at the new name and was not expected there is put aside, never replaced; what comes at the
//! old name stays there. A tier that can not rename has the object under both names for a moment.

use hayase_layout::InodeId;
use hayase_tier::{
    Action, Attributes, Key, ObjectMeta, Reader, Tier, TierError, copy_object, if_there,
};

use super::{time_of, version_of};
use crate::limits::FLUSH_BYTES;

/// Longest name of a file on Linux.
const NAME_BYTES_MAX: usize = 255;

/// So often a move begins anew because somebody else writes its names meanwhile.
const MOVE_TRIES: u32 = 8;

/// Second versions of one file that are kept beside it.
const CONFLICT_NAMES_MAX: u32 = 64;

/// An object that is to move over the version that is expected there; another one is put aside first.
pub(super) struct Move {
    pub(super) from: Key,
    pub(super) to: Key,
    /// Where another one goes: under the first of these names that is free.
    pub(super) aside: Vec<Key>,
    /// Identity of what may be replaced at `to`.
    pub(super) expected: Option<u64>,
    /// Names of versions of somebody else that are kept there.
    pub(super) put_aside: Vec<Key>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Moved {
    /// What is there then.
    pub(super) version: Option<hayase_store::TierVersion>,
    /// The identity that it had at its old name; `None` where it was gone from there.
    pub(super) moved: Option<u64>,
}

impl Move {
    /// Done again, it does nothing; cut off and done again, it goes on.
    pub(super) fn done(&mut self, tier: &dyn Tier) -> Result<Moved, TierError> {
        for _ in 1..MOVE_TRIES {
            match self.step(tier) {
                Err(TierError::Changed { .. } | TierError::Exists { .. }) => {}
                other => return other,
            }
        }
        self.step(tier)
    }

    /// `Changed` or `Exists` when what it found did not stay so.
    fn step(&mut self, tier: &dyn Tier) -> Result<Moved, TierError> {
        let mut there = if_there(tier.stat_as_written(&self.to))?;
        let Some(object) = if_there(tier.stat_as_written(&self.from))? else {
            let version = there.map(|meta| version_of(&meta));
            return Ok(Moved { version, moved: None });
        };
        if let Some(theirs) = there.filter(|there| Some(there.identity) != self.expected)
            && !is_copy(tier, (&self.from, object), (&self.to, theirs))?
        {
            self.put_aside(tier, theirs)?;
            there = None;
        }
        let moved = move_one(tier, (&self.from, object), (&self.to, there))?;
        Ok(Moved { version: Some(version_of(&moved)), moved: Some(object.identity) })
    }

    /// What is at the new name goes beside it, where nothing else is lost.
    fn put_aside(&mut self, tier: &dyn Tier, theirs: ObjectMeta) -> Result<(), TierError> {
        for aside in &self.aside {
            let there = if_there(tier.stat_as_written(aside))?;
            let is_free = match there {
                None => true,
                Some(there) => is_copy(tier, (&self.to, theirs), (aside, there))?,
            };
            if is_free {
                move_one(tier, (&self.to, theirs), (aside, there))?;
                self.put_aside.push(aside.clone());
                return Ok(());
            }
        }
        Err(TierError::Exists { action: Action::Rename, path: self.to.to_string() })
    }
}

/// In one step where the tier can; else it is under both names for a moment, never under none. With
/// each name comes what was found there. Answers what is at the new name then.
fn move_one(
    tier: &dyn Tier,
    (from, object): (&Key, ObjectMeta),
    (to, there): (&Key, Option<ObjectMeta>),
) -> Result<ObjectMeta, TierError> {
    if tier.capabilities().rename {
        let expected = there.map(|there| there.identity);
        return tier.rename_version((from, object.identity), (to, expected));
    }
    let copy = match there {
        Some(copy) if is_copy(tier, (from, object), (to, copy))? => copy,
        _ => {
            let replaced = there.map(|meta| meta.identity);
            copy_object(tier, (from, object.identity), (to, replaced), Attributes::default())?
        }
    };
    match tier.delete_version(from, object.identity) {
        Err(TierError::Changed { .. }) => {
            tracing::warn!(%from, %to, "another program wrote it while it was moved: both are kept");
        }
        removed => gone_is_fine(removed)?,
    }
    // Where attributes are kept beside the bytes, a commit tells the time of the server.
    as_told_now(tier, to, ObjectMeta { mtime: object.mtime, ..copy })
}

/// A move that was cut off left `copy`. Its identity does not tell: that of an encrypted object, or of one
/// that came in other pieces, is another one for the same bytes. Reads both, where they look alike.
fn is_copy(
    tier: &dyn Tier,
    (from, object): (&Key, ObjectMeta),
    (to, copy): (&Key, ObjectMeta),
) -> Result<bool, TierError> {
    // In a bucket the identity is one of the bytes, and other files may have the same.
    if tier.capabilities().rename && object.identity == copy.identity {
        return Ok(true); // Two names of one file: a process was killed while it renamed it.
    }
    let looks = |meta: ObjectMeta| (meta.size, meta.mode, meta.mtime);
    if looks(object) != looks(copy) {
        return Ok(false);
    }
    let (one, other) = (tier.open_listed(from, object)?, tier.open_listed(to, copy)?);
    has_same_bytes(&*one, &*other)
}

fn has_same_bytes(one: &dyn Reader, other: &dyn Reader) -> Result<bool, TierError> {
    let [mut left, mut right] = [vec![0; FLUSH_BYTES as usize], vec![0; FLUSH_BYTES as usize]];
    let mut at = 0;
    loop {
        let (count, other_count) = (one.read_at(at, &mut left)?, other.read_at(at, &mut right)?);
        if left[..count] != right[..other_count] {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        at += count as u64;
    }
}

/// What the tier tells of the version that came to `key` a moment ago as `ours`: its attributes as they were
/// given, and an identity that a rename or a change of attributes makes another one. Where somebody else's
/// has taken its place, ours stays what is known: then it is found out.
pub(crate) fn as_told_now(
    tier: &dyn Tier,
    key: &Key,
    ours: ObjectMeta,
) -> Result<ObjectMeta, TierError> {
    let now = if_there(tier.stat_as_written(key))?;
    let is_ours = |now: &ObjectMeta| now.identity == ours.identity || looks_like(now, &ours);
    Ok(now.filter(is_ours).unwrap_or(ours))
}

/// The same size and time, as far as the tier keeps time.
fn looks_like(told: &ObjectMeta, given: &ObjectMeta) -> bool {
    let (told_at, given_at) = (time_of(told.mtime), time_of(given.mtime));
    let is_whole = told_at.nanos == 0 && told_at.seconds == given_at.seconds;
    told.size == given.size && (told_at == given_at || is_whole)
}

/// Beside a name, those under which second versions of the file are kept: the first one that is free.
pub(crate) fn conflict_paths(path: &[u8], ino: InodeId) -> impl Iterator<Item = Vec<u8>> {
    (1..=CONFLICT_NAMES_MAX).map(move |number| {
        let suffix = match number {
            1 => format!(".hayase-conflict-{:x}", ino.0),
            _ => format!(".hayase-conflict-{:x}-{number}", ino.0),
        };
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        // The start of a name that leaves no room is enough to know it by.
        let end = path.len().min(start + NAME_BYTES_MAX - suffix.len());
        [&path[..end], suffix.as_bytes()].concat()
    })
}

/// Somebody else was faster, or it never was there.
pub(super) fn gone_is_fine(result: Result<(), TierError>) -> Result<(), TierError> {
    match result {
        Err(TierError::Missing { .. }) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use hayase_tier::flaky::Call;
    use hayase_tier::{Flaky, Memory, Precondition};

    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn put(tier: &Memory, name: &str, bytes: &[u8]) -> u64 {
        let any = Precondition::Any;
        tier.put(&key(name), Attributes::default(), bytes, any).unwrap().identity
    }

    fn read(tier: &dyn Tier, name: &str) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        let read = tier.open(&key(name)).unwrap().read_at(0, &mut bytes).unwrap();
        bytes.truncate(read);
        bytes
    }

    /// Before the first such call somebody else writes `name`.
    fn written_at(tier: &Memory, at: Call, name: &'static str) -> impl Tier + use<> {
        let (theirs, is_written) = (tier.clone(), AtomicBool::new(false));
        Flaky::new(tier.clone(), move |call| {
            if call == at && !is_written.swap(true, Ordering::Relaxed) {
                put(&theirs, name, b"theirs");
            }
            None
        })
    }

    fn wanted(expected: Option<u64>) -> Move {
        let (from, to, aside) = (key("from"), key("to"), vec![key("aside"), key("aside-2")]);
        Move { from, to, aside, expected, put_aside: Vec::new() }
    }

    #[test]
    fn what_comes_while_an_object_is_moved_is_put_aside() {
        for call in [Call::Begun(Action::Begin), Call::Begun(Action::Commit)] {
            let below = Memory::flat();
            let ours = put(&below, "from", b"ours");
            let tier = written_at(&below, call, "to");
            let mut wanted = wanted(None);
            let moved = wanted.done(&tier).unwrap();
            assert_eq!(
                (moved.moved, wanted.put_aside),
                (Some(ours), vec![key("aside")]),
                "{call:?}"
            );
            assert_eq!(moved.version.map(|now| now.size), Some(4), "{call:?}");
            assert_eq!(
                (read(&below, "to"), read(&below, "aside")),
                (b"ours".into(), b"theirs".into())
            );
            assert!(below.stat(&key("from")).is_err(), "{call:?}");
        }
    }

    #[test]
    fn what_comes_at_the_old_name_of_an_object_stays_there() {
        for call in [Call::Done(Action::Commit), Call::Begun(Action::Delete)] {
            let below = Memory::flat();
            put(&below, "from", b"ours");
            let old = put(&below, "to", b"old");
            let tier = written_at(&below, call, "from");
            let mut wanted = wanted(Some(old));
            wanted.done(&tier).unwrap();
            assert!(wanted.put_aside.is_empty());
            let found = (read(&below, "to"), read(&below, "from"));
            assert_eq!(found, (b"ours".into(), b"theirs".into()), "{call:?}");
        }
    }

    /// Its identity in a bucket is that of its bytes.
    #[test]
    fn objects_of_equal_bytes_in_a_bucket_are_no_finished_move() {
        let check = |below: Memory, expected| {
            put(&below, "from", b"equal");
            put(&below, "to", b"equal");
            let [from, to] = [key("from"), key("to")];
            let [object, there] = [&from, &to].map(|key| below.stat(key).unwrap());
            let copy = ObjectMeta { identity: object.identity, mode: 0o600, ..there };
            let is_copy = is_copy(&below, (&from, object), (&to, copy)).unwrap();
            assert_eq!(is_copy, expected);
        };
        check(Memory::flat(), false);
        check(Memory::new(), true);
    }

    #[test]
    fn a_move_that_was_done_is_not_done_again() {
        for below in [Memory::new(), Memory::flat()] {
            let ours = put(&below, "from", b"ours");
            assert_eq!(wanted(None).done(&below).unwrap().moved, Some(ours));
            let mut again = wanted(None);
            assert!(again.done(&below).unwrap().moved.is_none() && again.put_aside.is_empty());
            assert_eq!(read(&below, "to"), b"ours");
        }
    }

    /// A directory gives a file its new name before the old one goes (`a_move_that_was_killed_at_any_step_is_done_by_the_same_call`).
    #[test]
    fn a_file_that_a_kill_left_under_both_names_is_no_second_version() {
        let top = tempfile::tempdir().unwrap();
        let tier = hayase_tier::Posix::attach(top.path()).unwrap();
        for expected in [None, Some(7)] {
            std::fs::write(top.path().join("from"), "ours").unwrap();
            let _ = std::fs::remove_file(top.path().join("to"));
            std::fs::hard_link(top.path().join("from"), top.path().join("to")).unwrap();
            let mut wanted = wanted(expected);
            let moved = wanted.done(&tier).unwrap();
            assert!(wanted.put_aside.is_empty());
            assert_eq!(
                moved.version.map(|now| now.identity),
                Some(tier.stat(&key("to")).unwrap().identity)
            );
            assert_eq!(
                (read(&tier, "to"), tier.stat(&key("from")).is_err()),
                (b"ours".into(), true)
            );
        }
    }

    #[test]
    fn what_comes_to_the_new_name_of_a_file_is_put_aside_in_a_directory_too() {
        let top = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &str| std::fs::write(top.path().join(name), bytes).unwrap();
        let tier = hayase_tier::Posix::attach(top.path()).unwrap();
        for (there, expected) in [("theirs", true), ("other", false)] {
            write("from", "ours");
            write("to", "expected");
            let known = tier.stat(&key("to")).unwrap().identity;
            write("made", there);
            let path = top.path().to_path_buf();
            let tier = Flaky::new(hayase_tier::Posix::attach(&path).unwrap(), move |call| {
                if call == Call::Begun(Action::Rename) && path.join("made").exists() {
                    std::fs::rename(path.join("made"), path.join("to")).unwrap();
                }
                None
            });
            let mut wanted = wanted(expected.then_some(known));
            wanted.done(&tier).unwrap();
            assert_eq!(read(&tier, "to"), b"ours");
            let aside: Vec<_> =
                wanted.put_aside.iter().map(|name| read(&tier, &name.to_string())).collect();
            assert!(aside.contains(&there.as_bytes().to_vec()), "{aside:?}");
            for name in wanted.put_aside {
                tier.delete(&name).unwrap();
            }
        }
    }

    /// Names and bytes of all objects.
    fn all(tier: &Memory) -> Vec<(String, Vec<u8>)> {
        let listed = tier.list(&hayase_tier::ListRequest::all("")).unwrap().entries;
        let names = listed.into_iter().map(|entry| String::from_utf8(entry.name).unwrap());
        names.map(|name| (name.clone(), read(tier, &name))).collect()
    }

    /// Every version of an object has an identity of its own in this tier, as on a server that encrypts.
    #[test]
    fn a_move_that_was_cut_off_goes_on() {
        for (is_in_the_way, deletes) in [(false, 0), (true, 0), (true, 1)] {
            let below = Memory::flat();
            put(&below, "from", b"ours");
            if is_in_the_way {
                put(&below, "to", b"theirs");
            }
            let asked = AtomicU64::new(0);
            let tier = Flaky::new(below.clone(), move |call| {
                let is_delete = call == Call::Begun(Action::Delete);
                let fails = is_delete && asked.fetch_add(1, Ordering::Relaxed) == deletes;
                fails.then_some(hayase_tier::flaky::Fault::Io)
            });
            wanted(None).done(&tier).unwrap_err();
            wanted(None).done(&tier).unwrap();
            let named = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
            let mut expected = vec![named("to", b"ours")];
            if is_in_the_way {
                expected.insert(0, named("aside", b"theirs"));
            }
            assert_eq!(all(&below), expected, "{is_in_the_way} {deletes}");
        }
    }

    #[test]
    fn no_version_that_was_put_aside_is_replaced() {
        for below in [Memory::new(), Memory::flat()] {
            for (number, aside) in ["aside", "aside-2"].into_iter().enumerate() {
                put(&below, "from", b"ours");
                put(&below, "to", format!("theirs {number}").as_bytes());
                let mut wanted = wanted(None);
                wanted.done(&below).unwrap();
                assert_eq!(wanted.put_aside, [key(aside)]);
                assert_eq!(read(&below, aside), format!("theirs {number}").as_bytes());
            }
            put(&below, "from", b"ours");
            put(&below, "to", b"theirs 2");
            let refused = wanted(None).done(&below);
            assert!(matches!(refused, Err(TierError::Exists { .. })), "{refused:?}");
            assert_eq!(
                (read(&below, "to"), read(&below, "from")),
                (b"theirs 2".into(), b"ours".into())
            );
        }
    }

    #[test]
    fn what_takes_the_place_of_ours_is_not_taken_for_it() {
        let check = |below: Memory, call| {
            let ours = put(&below, "from", b"ours");
            let tier = written_at(&below, call, "to");
            let moved = wanted(None).done(&tier).unwrap();
            assert_eq!((moved.moved, read(&below, "to")), (Some(ours), b"theirs".into()));
            let theirs = below.stat(&key("to")).unwrap().identity;
            assert_ne!(moved.version.unwrap().identity, theirs, "{call:?}");
        };
        check(Memory::flat(), Call::Begun(Action::Delete));
        check(Memory::new(), Call::Done(Action::Rename));
    }

    #[test]
    fn names_of_second_versions_fit() {
        let (ino, long) = (InodeId(0xabc), [b"d/".as_slice(), &[b'n'; 300]].concat());
        let names: Vec<_> = conflict_paths(b"d/f", ino).take(2).collect();
        assert_eq!(names, [&b"d/f.hayase-conflict-abc"[..], b"d/f.hayase-conflict-abc-2"]);
        assert!(conflict_paths(&long, ino).all(|path| path.len() == "d/".len() + NAME_BYTES_MAX));
    }
}
