//! Objects that get another name in a tier, whoever else writes those names meanwhile.
//!
//! What is found at the new name and was not expected there is put aside, never replaced; what comes at the
//! old name stays there. A tier that can not rename has the object under both names for a moment.

use hayase_layout::InodeId;
use hayase_tier::{Attributes, Key, ObjectMeta, Tier, TierError, copy_object};

use super::version_of;

/// Longest name of a file on Linux.
const NAME_BYTES_MAX: usize = 255;

/// So often a move begins anew because somebody else writes its names meanwhile.
const MOVE_TRIES: u32 = 8;

/// An object that is to move over the version that is expected there; another one is put aside first.
pub(super) struct Move {
    pub(super) from: Key,
    pub(super) to: Key,
    pub(super) aside: Key,
    /// Identity of what may be replaced at `to`.
    pub(super) expected: Option<u64>,
    pub(super) put_aside: bool,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Moved {
    /// What is there then.
    pub(super) version: Option<hayase_store::TierVersion>,
    /// The identity that it had at its old name; `None` where it was gone from there.
    pub(super) moved: Option<u64>,
    /// Somebody else's version is beside it.
    pub(super) put_aside: bool,
}

impl Move {
    /// Done again, it does nothing.
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
        let mut there = found(tier.stat_as_written(&self.to))?;
        let Some(object) = found(tier.stat(&self.from))? else {
            let version = there.map(|meta| version_of(&meta));
            return Ok(Moved { version, moved: None, put_aside: self.put_aside });
        };
        // Of a move in two steps the first may have been done before.
        let is_copied = there.is_some_and(|meta| meta.identity == object.identity);
        if let Some(theirs) =
            there.filter(|meta| !is_copied && Some(meta.identity) != self.expected)
        {
            let former = found(tier.stat(&self.aside))?;
            move_one(tier, (&self.to, theirs), (&self.aside, former))?;
            (there, self.put_aside) = (None, true);
        }
        move_one(tier, (&self.from, object), (&self.to, there))?;
        let version = Some(version_of(&tier.stat_as_written(&self.to)?));
        Ok(Moved { version, moved: Some(object.identity), put_aside: self.put_aside })
    }
}

/// In one step where the tier can; else it is under both names for a moment, never under none. With
/// each name comes what was found there.
fn move_one(
    tier: &dyn Tier,
    (from, object): (&Key, ObjectMeta),
    (to, replaced): (&Key, Option<ObjectMeta>),
) -> Result<(), TierError> {
    if tier.capabilities().rename {
        return tier.rename(from, to);
    }
    let replaced = replaced.map(|meta| meta.identity);
    copy_object(tier, (from, object.identity), (to, replaced), Attributes::default())?;
    match found(tier.stat(from))? {
        Some(now) if now.identity == object.identity => gone_is_fine(tier.delete(from)),
        Some(_) => {
            tracing::warn!(%from, %to, "somebody wrote it while it was moved: both are kept");
            Ok(())
        }
        None => Ok(()),
    }
}

fn found(result: Result<ObjectMeta, TierError>) -> Result<Option<ObjectMeta>, TierError> {
    match result {
        Ok(meta) => Ok(Some(meta)),
        Err(TierError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Beside a name, the one under which a second version of the file is kept.
pub(crate) fn conflict_path(path: &[u8], ino: InodeId) -> Vec<u8> {
    let suffix = format!(".hayase-conflict-{:x}", ino.0);
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    // The start of a name that leaves no room is enough to know it by.
    let end = path.len().min(start + NAME_BYTES_MAX - suffix.len());
    [&path[..end], suffix.as_bytes()].concat()
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
    use std::sync::atomic::{AtomicBool, Ordering};

    use hayase_tier::flaky::Call;
    use hayase_tier::{Action, Flaky, Memory, Precondition};

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
        let (from, to, aside) = (key("from"), key("to"), key("aside"));
        Move { from, to, aside, expected, put_aside: false }
    }

    #[test]
    fn what_comes_while_an_object_is_moved_is_put_aside() {
        for call in [Call::Begun(Action::Begin), Call::Begun(Action::Commit)] {
            let below = Memory::flat();
            let ours = put(&below, "from", b"ours");
            let tier = written_at(&below, call, "to");
            let moved = wanted(None).done(&tier).unwrap();
            assert!(moved.put_aside && moved.moved == Some(ours), "{call:?}: {moved:?}");
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
        let below = Memory::flat();
        put(&below, "from", b"ours");
        let old = put(&below, "to", b"old");
        let tier = written_at(&below, Call::Done(Action::Commit), "from");
        let moved = wanted(Some(old)).done(&tier).unwrap();
        assert!(!moved.put_aside, "{moved:?}");
        assert_eq!((read(&below, "to"), read(&below, "from")), (b"ours".into(), b"theirs".into()));
    }

    #[test]
    fn a_move_that_was_done_is_not_done_again() {
        for below in [Memory::new(), Memory::flat()] {
            let ours = put(&below, "from", b"ours");
            assert_eq!(wanted(None).done(&below).unwrap().moved, Some(ours));
            let again = wanted(None).done(&below).unwrap();
            assert!(again.moved.is_none() && !again.put_aside, "{again:?}");
            assert_eq!(read(&below, "to"), b"ours");
        }
    }
}
