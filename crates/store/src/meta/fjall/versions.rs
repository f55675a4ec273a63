//! Lists of tables, checked before fjall reads them.
//!
//! lsm-tree 3.1 writes the checksum of such a list (`v<id>`, a version) into the file `current` next to it, and does not compare it
//! later: a flipped bit there is a panic, or another list of tables.
//!
//! Here: comparing it. Both files are synced before they count, so none is torn.
//! Source: lsm-tree 3.1, its module `version::persist`: `current` is the id (u64), the XXH3 of all bytes of the list
//! (u128) and the kind of checksum (u8, 0 is XXH3), little endian.

use std::fs;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::meta::MetaError;

/// One directory for each keyspace.
const KEYSPACES: &str = "keyspaces";

const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 8 + 16 + 1;

/// Checks the current list of each keyspace in `directory`.
pub(super) fn check(directory: &Path) -> Result<(), MetaError> {
    let fail = |source| MetaError::Io { action: "read", path: directory.to_owned(), source };
    let keyspaces = match fs::read_dir(directory.join(KEYSPACES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        keyspaces => keyspaces.map_err(fail)?,
    };
    for keyspace in keyspaces {
        check_keyspace(directory, &keyspace.map_err(fail)?.path())?;
    }
    Ok(())
}

fn check_keyspace(directory: &Path, keyspace: &Path) -> Result<(), MetaError> {
    let corrupt = |file: &Path, why: &str| MetaError::Corrupt {
        path: directory.to_owned(),
        detail: format!("{} {why}", file.display()),
    };
    let current = keyspace.join(CURRENT);
    let Some(bytes) = read(directory, &current)? else { return Ok(()) };
    let bytes: [u8; CURRENT_BYTES] =
        bytes.try_into().map_err(|_| corrupt(&current, "has another length"))?;
    let (id, rest) = bytes.split_first_chunk::<8>().expect("eight of 25 bytes");
    let version = keyspace.join(format!("v{}", u64::from_le_bytes(*id)));
    let list = read(directory, &version)?.ok_or_else(|| corrupt(&version, "is missing"))?;
    match rest == [&xxh3_128(&list).to_le_bytes()[..], &[0]].concat() {
        true => Ok(()),
        false => Err(corrupt(&version, "has another checksum")),
    }
}

fn read(directory: &Path, file: &Path) -> Result<Option<Vec<u8>>, MetaError> {
    match fs::read(file) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(MetaError::Io { action: "read", path: directory.to_owned(), source }),
    }
}
