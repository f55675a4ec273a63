//! Extended attributes of an inode.
//!
//! Source of the limits: Linux, `include/uapi/linux/limits.h` (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`,
//! `XATTR_LIST_MAX`).

use hayase_layout::InodeId;

use super::bad_key;
use super::link::require_inode;
use crate::namespace::{Inode, NamespaceError, Time, Txn, keys};

/// Bytes of a name.
pub const XATTR_NAME_MAX: usize = 255;
/// Bytes of a value.
pub const XATTR_VALUE_MAX: usize = 64 * 1024;
/// Bytes of all names of an inode, each with a NUL behind it.
pub const XATTR_NAMES_BYTES_MAX: usize = 64 * 1024;

/// The flags of setxattr(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Make it or replace it.
    Set,
    /// Fail when it is there.
    Create,
    /// Fail when it is not.
    Replace,
}

/// Sets one attribute, and the time of the inode's last change.
pub fn set_xattr(
    txn: &mut Txn<'_>,
    ino: InodeId,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
    now: Time,
) -> Result<(), NamespaceError> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(NamespaceError::XattrName { ino, len: name.len(), max: XATTR_NAME_MAX });
    }
    if value.len() > XATTR_VALUE_MAX {
        return Err(NamespaceError::XattrValue { ino, len: value.len(), max: XATTR_VALUE_MAX });
    }
    let inode = require_inode(txn, ino)?;
    let key = keys::xattr(ino, name);
    let there = inode.has_xattrs && txn.get(&key)?.is_some();
    let text = || String::from_utf8_lossy(name).into_owned();
    match mode {
        XattrMode::Create if there => {
            return Err(NamespaceError::XattrExists { ino, name: text() });
        }
        XattrMode::Replace if !there => return Err(NamespaceError::NoXattr { ino, name: text() }),
        _ => {}
    }
    if !there {
        let names = list_xattr(txn, ino)?;
        let bytes = names.iter().map(|other| other.len() + 1).sum::<usize>() + name.len() + 1;
        if bytes > XATTR_NAMES_BYTES_MAX {
            return Err(NamespaceError::XattrList { ino, max: XATTR_NAMES_BYTES_MAX });
        }
    }
    txn.put(key, value.to_vec());
    txn.set_inode(ino, Some(Inode { has_xattrs: true, ctime: now, ..inode }));
    Ok(())
}

/// The value of one attribute.
pub fn get_xattr(
    txn: &Txn<'_>,
    ino: InodeId,
    name: &[u8],
) -> Result<Option<Vec<u8>>, NamespaceError> {
    match require_inode(txn, ino)?.has_xattrs {
        true => txn.get(&keys::xattr(ino, name)),
        false => Ok(None),
    }
}

/// The names of all attributes of `ino`, ascending.
pub fn list_xattr(txn: &Txn<'_>, ino: InodeId) -> Result<Vec<Vec<u8>>, NamespaceError> {
    if !require_inode(txn, ino)?.has_xattrs {
        return Ok(Vec::new());
    }
    let pairs = txn.scan(&keys::xattrs(ino), &[], usize::MAX)?;
    pairs
        .iter()
        .map(|(key, _)| Ok(keys::parse_xattr(key).ok_or_else(|| bad_key(key))?.to_vec()))
        .collect()
}

/// Removes one attribute; [`NamespaceError::NoXattr`] when it is not there.
pub fn remove_xattr(
    txn: &mut Txn<'_>,
    ino: InodeId,
    name: &[u8],
    now: Time,
) -> Result<(), NamespaceError> {
    let inode = require_inode(txn, ino)?;
    let key = keys::xattr(ino, name);
    if txn.get(&key)?.is_none() {
        let name = String::from_utf8_lossy(name).into_owned();
        return Err(NamespaceError::NoXattr { ino, name });
    }
    txn.delete(key);
    txn.set_inode(ino, Some(Inode { ctime: now, ..inode }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::create;
    use super::super::testing::{at, file, namespace};
    use super::*;

    const INO: InodeId = InodeId(7);

    #[test]
    fn attributes_are_set_listed_and_removed() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"f"), None).unwrap();
        create(&mut txn, &file(8, 1, b"g"), None).unwrap();
        set_xattr(&mut txn, INO, b"user.b", b"2", XattrMode::Set, at(2)).unwrap();
        set_xattr(&mut txn, INO, b"user.a", b"", XattrMode::Create, at(2)).unwrap();
        set_xattr(&mut txn, InodeId(8), b"user.c", b"", XattrMode::Set, at(2)).unwrap();
        set_xattr(&mut txn, INO, b"user.b", b"3", XattrMode::Replace, at(2)).unwrap();
        assert_eq!(get_xattr(&txn, INO, b"user.b").unwrap(), Some(b"3".to_vec()));
        assert_eq!(get_xattr(&txn, INO, b"user.a").unwrap(), Some(vec![]));
        assert_eq!(list_xattr(&txn, INO).unwrap(), [b"user.a", b"user.b"]);
        remove_xattr(&mut txn, INO, b"user.a", at(3)).unwrap();
        assert_eq!(get_xattr(&txn, INO, b"user.a").unwrap(), None);
        assert_eq!(list_xattr(&txn, INO).unwrap(), [b"user.b"]);
    }

    #[test]
    fn what_is_refused_has_its_errno() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"f"), None).unwrap();
        set_xattr(&mut txn, INO, b"user.a", b"1", XattrMode::Set, at(2)).unwrap();
        let mut check = |name: &[u8], value: &[u8], mode, errno| {
            let result = set_xattr(&mut txn, INO, name, value, mode, at(2));
            assert_eq!(result.map_err(|error| error.errno()), Err(errno), "{mode:?}");
        };
        check(b"user.a", b"2", XattrMode::Create, libc::EEXIST);
        check(b"user.b", b"2", XattrMode::Replace, libc::ENODATA);
        check(b"", b"2", XattrMode::Set, libc::ERANGE);
        check(&[b'n'; 256], b"2", XattrMode::Set, libc::ERANGE);
        check(b"user.b", &vec![0; XATTR_VALUE_MAX + 1], XattrMode::Set, libc::E2BIG);
        assert_eq!(get_xattr(&txn, INO, b"user.a").unwrap(), Some(b"1".to_vec()));
        let missing = remove_xattr(&mut txn, INO, b"user.b", at(3)).unwrap_err();
        assert_eq!(missing.errno(), libc::ENODATA);
    }

    #[test]
    fn the_list_of_names_is_bounded() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"f"), None).unwrap();
        for i in 0..256u32 {
            let name = format!("{i:0255}");
            set_xattr(&mut txn, INO, name.as_bytes(), b"", XattrMode::Set, at(2)).unwrap();
        }
        let full = set_xattr(&mut txn, INO, b"a", b"", XattrMode::Set, at(2)).unwrap_err();
        assert_eq!(full.errno(), libc::ENOSPC);
        let again = format!("{:0255}", 3);
        set_xattr(&mut txn, INO, again.as_bytes(), b"new value", XattrMode::Set, at(2)).unwrap();
    }
}
