//! Users and groups: Gfarm knows them by name, a mount shows numbers.
//!
//! A name means this host's user of the same name, and the name under which this process is known to Gfarm means whoever runs
//! it. What this host does not know belongs to nobody.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::OnceLock;

/// `nobody` and `nogroup`, as the kernel shows what it can not map.
const NOBODY: u32 = 65_534;

/// Of one host, as its files said when they were read.
#[derive(Debug)]
pub(super) struct Owners {
    users: HashMap<Vec<u8>, u32>,
    groups: HashMap<Vec<u8>, u32>,
    /// How Gfarm calls whoever runs this process.
    own_user: OnceLock<Vec<u8>>,
    own_uid: u32,
}

impl Owners {
    pub(super) fn of_this_host() -> Self {
        let table = |path| numbers(&std::fs::read(path).unwrap_or_default());
        Self {
            users: table("/etc/passwd"),
            groups: table("/etc/group"),
            own_user: OnceLock::new(),
            own_uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// Said once; the name stays.
    pub(super) fn own_user(&self, name: &[u8]) {
        let _ = self.own_user.set(name.to_vec());
    }

    pub(super) fn uid(&self, name: &[u8]) -> u32 {
        if self.own_user.get().is_some_and(|own| own == name) {
            return self.own_uid;
        }
        self.users.get(name).copied().unwrap_or(NOBODY)
    }

    pub(super) fn gid(&self, name: &[u8]) -> u32 {
        self.groups.get(name).copied().unwrap_or(NOBODY)
    }

    /// `None` when this host has no such user.
    pub(super) fn user(&self, uid: u32) -> Option<CString> {
        match self.own_user.get() {
            Some(own) if uid == self.own_uid => CString::new(own.as_slice()).ok(),
            _ => named(&self.users, uid),
        }
    }

    /// `None` when this host has no such group.
    pub(super) fn group(&self, gid: u32) -> Option<CString> {
        named(&self.groups, gid)
    }
}

/// The first of several names, in the order of the alphabet.
fn named(table: &HashMap<Vec<u8>, u32>, number: u32) -> Option<CString> {
    let names = table.iter().filter(|(_, known)| **known == number).map(|(name, _)| name);
    CString::new(names.min()?.as_slice()).ok()
}

/// Of passwd(5) and group(5): the third column by the first.
fn numbers(text: &[u8]) -> HashMap<Vec<u8>, u32> {
    let line = |line: &[u8]| {
        let mut columns = line.split(|&byte| byte == b':');
        let name = columns.next()?.to_vec();
        let number = std::str::from_utf8(columns.nth(1)?).ok()?.parse().ok()?;
        Some((name, number))
    };
    text.split(|&byte| byte == b'\n').filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_and_back() {
        let owners = Owners {
            users: numbers(b"root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:100::/:/bin/sh\n"),
            groups: numbers(b"wheel:x:0:\nusers:x:100:ann\n"),
            own_user: OnceLock::new(),
            own_uid: 1000,
        };
        assert_eq!(
            (owners.uid(b"root"), owners.uid(b"ann"), owners.uid(b"bob")),
            (0, 1000, NOBODY)
        );
        assert_eq!((owners.gid(b"users"), owners.gid(b"gfarmroot")), (100, NOBODY));
        assert_eq!(owners.user(1000).unwrap().to_bytes(), b"ann");
        assert_eq!(owners.group(100).unwrap().to_bytes(), b"users");
        assert!(owners.user(7).is_none());
        owners.own_user(b"ann.of.the.site");
        assert_eq!(owners.uid(b"ann.of.the.site"), 1000);
        assert_eq!(owners.user(1000).unwrap().to_bytes(), b"ann.of.the.site");
    }
}
