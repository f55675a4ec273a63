//! An object copied within its tier, through this process: for tiers that can not rename, and for those
//! that change attributes only with the bytes.

use hayase_layout::ByteCount;

use crate::{Attributes, Key, ObjectMeta, Precondition, Tier, TierError};

/// Bytes that are read and written at a time.
const COPY_BYTES: ByteCount = ByteCount::mib(8);

/// Makes `to` another version with the bytes of `from`, which may be the same; replaces what is there.
/// Mode and time are those that `from` was given, unless `change` says others. Readers of `to` see the
/// version before or the new one; costs a read and a write of all bytes.
pub fn copy_object(
    tier: &dyn Tier,
    from: &Key,
    to: &Key,
    change: Attributes,
) -> Result<ObjectMeta, TierError> {
    let reader = tier.open(from)?;
    let (meta, told) = (reader.meta(), reader.attributes()?);
    let attributes = Attributes {
        mode: change.mode.or(told.mode),
        mtime: change.mtime.or(told.mtime).or(Some(meta.mtime)),
    };
    let mut upload = tier.begin(to, attributes)?;
    let (size, mut at) = (meta.size.get(), 0);
    let mut buffer = vec![0; usize::try_from(size.min(COPY_BYTES.get())).unwrap_or(0)];
    while at < size {
        let count = reader.read_at(at, &mut buffer)?;
        if count == 0 {
            return Err(TierError::Changed { action: crate::Action::Read, path: from.to_string() });
        }
        upload.write_at(at, &buffer[..count])?;
        at += count as u64;
    }
    upload.commit(Precondition::Any)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::Memory;

    #[test]
    fn a_copy_has_the_bytes_and_what_was_not_changed() {
        let tier = Memory::flat();
        let key = |name| Key::new(name).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let given = Attributes { mode: Some(0o640), mtime: Some(time) };
        let bytes: Vec<u8> = (0..COPY_BYTES.get() + 5).map(|at| (at / 7) as u8).collect();
        tier.put(&key("a"), given, &bytes, Precondition::Any).unwrap();
        let change = Attributes { mode: Some(0o600), mtime: None };
        for (from, to) in [("a", "b"), ("a", "a")] {
            let meta = copy_object(&tier, &key(from), &key(to), change).unwrap();
            assert_eq!((meta.size.get(), meta.mode, meta.mtime), (bytes.len() as u64, 0o600, time));
            let mut read = vec![0; bytes.len()];
            tier.open(&key(to)).unwrap().read_at(0, &mut read).unwrap();
            assert!(read == bytes, "{to}");
        }
        let gone = copy_object(&tier, &key("x"), &key("y"), change);
        assert!(matches!(gone, Err(TierError::Missing { .. })), "{gone:?}");
    }
}
