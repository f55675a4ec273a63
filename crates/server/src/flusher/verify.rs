//! Reading back what a flush brought to the tier, and comparing it with what was sent.
//!
//! Blocking, and without any server: the reader is a bystander, as whoever uses the files later will be.

use hayase_store::LedgerRecord;
use hayase_tier::{Tier, TierError};
use hayase_wire::message::{ChecksumLine, Refused};
use xxhash_rust::xxh3::Xxh3;

use crate::cache::paths::key;
use crate::cache::tier_refused;
use crate::limits::FLUSH_BYTES;

/// What the tier has under the name of a version that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The bytes that were sent.
    Same,
    /// The version that was sent, with other bytes.
    Differs {
        /// Its checksum.
        found: u64,
    },
    /// Another version: somebody has written it since.
    Changed,
    /// Nothing.
    Missing,
    /// It can not be read.
    Unreadable(Refused),
}

/// What the tier should hold of a file that the job has sent there; `None` of any other file.
pub fn checksum_line(record: &LedgerRecord) -> Option<ChecksumLine> {
    let is_sent = record.state.is_safe() && !record.is_nameless && record.checksum.is_some();
    let version = record.version.filter(|_| is_sent)?;
    Some(ChecksumLine {
        ino: record.ino.0,
        path: record.path.clone(),
        identity: version.identity,
        bytes: version.size,
        checksum: record.known_checksum(),
    })
}

/// Reads the version `identity` of `path`, whose bytes had the XXH3 `checksum`, and compares. `counted` hears of
/// bytes as they are read. Costs one read of the whole file.
pub fn verify(
    tier: &dyn Tier,
    path: &[u8],
    (identity, checksum): (u64, u64),
    counted: &mut dyn FnMut(u64),
) -> Verified {
    let key = match key(path) {
        Ok(key) => key,
        Err(refused) => return Verified::Unreadable(refused),
    };
    let is_it = || tier.stat(&key).map(|meta| meta.identity == identity);
    let mut read = || -> Result<Option<u64>, TierError> {
        if !is_it()? {
            return Ok(None);
        }
        let reader = tier.open(&key)?;
        let (mut found, mut done) = (Xxh3::new(), 0);
        let mut buffer = vec![0; FLUSH_BYTES as usize];
        loop {
            let read = reader.read_at(done, &mut buffer)?;
            if read == 0 {
                return Ok(Some(found.digest()));
            }
            found.update(&buffer[..read]);
            done += read as u64;
            counted(read as u64);
        }
    };
    let answer = read();
    match answer {
        Ok(Some(found)) if found == checksum => Verified::Same,
        // Replaced while it was read: then it was no version of ours that was read.
        Ok(Some(found)) => match is_it() {
            Ok(true) => Verified::Differs { found },
            _ => Verified::Changed,
        },
        Ok(None) | Err(TierError::Changed { .. }) => Verified::Changed,
        Err(TierError::Missing { .. }) => Verified::Missing,
        Err(error) => Verified::Unreadable(tier_refused(&error)),
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::{Attributes, Key, Memory, Precondition};
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    fn put(tier: &Memory, bytes: &[u8]) -> u64 {
        let (key, any) = (Key::new("d/f").unwrap(), Precondition::Any);
        tier.put(&key, Attributes::default(), bytes, any).unwrap().identity
    }

    #[test]
    fn every_byte_counts() {
        let tier = Memory::new();
        let mut bytes = vec![7_u8; FLUSH_BYTES as usize + 5];
        let identity = put(&tier, &bytes);
        let mut read = 0;
        let mut verified = |identity, checksum| {
            verify(&tier, b"d/f", (identity, checksum), &mut |bytes| read += bytes)
        };
        let checksum = xxh3_64(&bytes);
        assert_eq!(verified(identity, checksum), Verified::Same);
        *bytes.last_mut().unwrap() = 8;
        let other = xxh3_64(&bytes);
        assert_eq!(verified(identity, other), Verified::Differs { found: checksum });
        assert_eq!(verified(identity + 1, checksum), Verified::Changed);
        assert_eq!(read, 2 * bytes.len() as u64);
        tier.delete(&Key::new("d/f").unwrap()).unwrap();
        assert_eq!(verify(&tier, b"d/f", (identity, checksum), &mut |_| ()), Verified::Missing);
    }
}
