//! An object copied within its tier, through this process: for tiers that can not rename, and for those
//! that change attributes only with the bytes.

use crc_fast::{CrcAlgorithm, Digest};
use hayase_layout::ByteCount;

use crate::{Action, Attributes, Key, ObjectMeta, Precondition, Tier, TierError, if_there};

/// Bytes that are read and written at a time.
const COPY_BYTES: ByteCount = ByteCount::mib(8);

/// Makes `to` another version with the bytes of `from`, which may be the same; replaces what is there.
/// Mode and time are those that `from` was given, unless `change` says others. Readers of `to` see the
/// version before or the new one; costs a read and a write of all bytes.
///
/// With each name comes the identity of the version that the caller knows there, `None` for no object.
/// Another one is not copied and not replaced: `Changed`, or `Exists` where nothing was to be. The last look at
/// `to` is right before the commit; what comes in between is replaced where the tier knows no better.
///
/// Bytes that do not have the checksum that the tier knows of `from` are not committed: `Corrupt`.
pub fn copy_object(
    tier: &dyn Tier,
    from: (&Key, u64),
    to: (&Key, Option<u64>),
    change: Attributes,
) -> Result<ObjectMeta, TierError> {
    let ((from, identity), (to, replaced)) = (from, to);
    let changed = |action: Action, key: &Key| TierError::Changed { action, path: key.to_string() };
    let reader = tier.open(from)?;
    let (meta, told) = (reader.meta(), reader.attributes()?);
    if meta.identity != identity {
        return Err(changed(Action::Open, from));
    }
    let attributes = Attributes {
        mode: change.mode.or(told.mode),
        mtime: change.mtime.or(told.mtime).or(Some(meta.mtime)),
    };
    let mut upload = tier.begin(to, attributes)?;
    let (size, mut at) = (meta.size.get(), 0);
    let mut crc = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut buffer = vec![0; usize::try_from(size.min(COPY_BYTES.get())).unwrap_or(0)];
    while at < size {
        let count = reader.read_at(at, &mut buffer)?;
        if count == 0 {
            return Err(changed(Action::Read, from));
        }
        upload.write_at(at, &buffer[..count])?;
        crc.update(&buffer[..count]);
        at += count as u64;
    }
    // The tier has compared what one read brought whole.
    let is_compared = size <= COPY_BYTES.get();
    if !is_compared && reader.crc32c()?.is_some_and(|known| u64::from(known) != crc.finalize()) {
        let what = "its CRC32C is not the one it was stored with".to_owned();
        return Err(TierError::Corrupt { action: Action::Read, path: from.to_string(), what });
    }
    upload.commit(match replaced {
        Some(identity) => Precondition::Matches(identity),
        None if if_there(tier.stat(to))?.is_some() => return Err(changed(Action::Commit, to)),
        None => Precondition::absent(tier, size),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::flaky::Call;
    use crate::{Flaky, Memory};

    #[test]
    fn a_copy_has_the_bytes_and_what_was_not_changed() {
        let tier = Memory::flat();
        let key = |name| Key::new(name).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let given = Attributes { mode: Some(0o640), mtime: Some(time) };
        let bytes: Vec<u8> = (0..COPY_BYTES.get() + 5).map(|at| (at / 7) as u8).collect();
        tier.put(&key("a"), given, &bytes, Precondition::Any).unwrap();
        let change = Attributes { mode: Some(0o600), mtime: None };
        let identity = |name| tier.stat(&key(name)).ok().map(|meta| meta.identity);
        for (from, to) in [("a", "b"), ("a", "a")] {
            let source = (&key(from), identity(from).unwrap());
            let meta = copy_object(&tier, source, (&key(to), identity(to)), change).unwrap();
            assert_eq!((meta.size.get(), meta.mode, meta.mtime), (bytes.len() as u64, 0o600, time));
            let mut read = vec![0; bytes.len()];
            tier.open(&key(to)).unwrap().read_at(0, &mut read).unwrap();
            assert!(read == bytes, "{to}");
        }
        let gone = copy_object(&tier, (&key("x"), 1), (&key("y"), None), change);
        assert!(matches!(gone, Err(TierError::Missing { .. })), "{gone:?}");
    }

    /// Somebody else writes `written` while `a` is copied to `to`, where something is or not.
    fn check(written: &'static str, at: Call, to: &str, is_there: bool) {
        let key = |name| Key::new(name).unwrap();
        let below = Memory::flat();
        let put = |name, bytes: &[u8]| {
            let any = Precondition::Any;
            below.put(&key(name), Attributes::default(), bytes, any).unwrap().identity
        };
        let from = put("a", b"ours");
        let replaced = match to {
            "a" => Some(from),
            other => is_there.then(|| put(other, b"known")),
        };
        let theirs = below.clone();
        let tier = Flaky::new(below.clone(), move |call| {
            if call == at {
                let any = Precondition::Any;
                theirs.put(&key(written), Attributes::default(), b"theirs", any).unwrap();
            }
            None
        });
        let (from, to) = ((&key("a"), from), (&key(to), replaced));
        let copied = copy_object(&tier, from, to, Attributes::default());
        let is_refused =
            matches!(copied, Err(TierError::Changed { .. } | TierError::Exists { .. }));
        assert!(is_refused, "{written} {at:?} {to:?}: {copied:?}");
        let mut read = [0; 6];
        below.open(&key(written)).unwrap().read_at(0, &mut read).unwrap();
        assert_eq!(&read, b"theirs", "{at:?} {to:?}");
    }

    #[test]
    fn a_version_that_nobody_expected_is_not_replaced() {
        check("a", Call::Begun(Action::Open), "a", true);
        check("a", Call::Begun(Action::Begin), "a", true);
        check("b", Call::Begun(Action::Begin), "b", false);
        check("b", Call::Begun(Action::Begin), "b", true);
        check("b", Call::Begun(Action::Commit), "b", false);
        check("a", Call::Begun(Action::Open), "b", false);
    }
}
