//! Keys: the names of objects, checked once so that no tier meets a dangerous one.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Longest key; one less than `PATH_MAX`, since a tier may be a directory.
pub const KEY_BYTES_MAX: usize = 4095;

/// Longest name between two slashes, as on every Linux file system.
pub const COMPONENT_BYTES_MAX: usize = 255;

/// Names that begin like this are unfinished uploads: no key has such a component, no listing shows one.
pub const TEMPORARY_PREFIX: &[u8] = b".hayase-partial-";

/// So begin names of unfinished uploads that lie in the cache area of a job ([`crate::Posix::attach_cached`]). They
/// are keys, since the tier behind it may be given them; no listing shows one.
pub(crate) const CACHED_TEMPORARY_PREFIX: &[u8] = b".hayase-staged-";

/// The name of an unfinished upload, wherever it lies.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(TEMPORARY_PREFIX) || name.starts_with(CACHED_TEMPORARY_PREFIX)
}

/// The name of one object: components joined by `/`, bytes as on Linux (not necessarily UTF-8).
///
/// Never empty, no leading, trailing or double slash, no `.` or `..`, no NUL: joined to a root it can
/// only name something below that root. Ordered bytewise, which is the order of listings.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Checks every rule above; costs one pass over the bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let bytes = bytes.as_ref();
        let refuse = |why| Err(KeyError { key: escaped(bytes), why });
        if bytes.len() > KEY_BYTES_MAX {
            return refuse("it is longer than 4095 bytes");
        }
        if bytes.contains(&0) {
            return refuse("it holds a NUL byte");
        }
        for component in bytes.split(|&byte| byte == b'/') {
            match component {
                b"" => return refuse("it is empty, or has an empty name between slashes"),
                b"." | b".." => return refuse("it has a name `.` or `..`"),
                long if long.len() > COMPONENT_BYTES_MAX => {
                    return refuse("it has a name longer than 255 bytes");
                }
                ours if ours.starts_with(TEMPORARY_PREFIX) => {
                    return refuse("`.hayase-partial-` begins names of unfinished uploads");
                }
                _ => {}
            }
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes, as they travel and as a file system takes them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a path relative to a root.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The names between the slashes, at least one.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/')
    }

    /// Everything before the last slash (empty at the top), and the last name.
    pub fn split_last(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (b"", &self.0),
        }
    }

    /// Every proper prefix that ends before a slash: the directories the object lies in, outermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = &[u8]> {
        let slashes = self.0.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        slashes.map(|(slash, _)| &self.0[..slash])
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", escaped(&self.0))
    }
}

/// For people: UTF-8 as it is; other bytes, control characters and the backslash escaped, so that no two names look
/// the same.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() || letter == '\\' {
                text.extend(letter.escape_default());
            } else {
                text.push(letter);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A name that no tier accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid object key `{key}`: {why}")]
pub struct KeyError {
    /// As given, escaped.
    pub key: String,
    /// Which rule it breaks.
    pub why: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_only_what_is_below_a_root() {
        for good in ["a", "a/b", "a b/c\u{e9}", "..a", "a/...", ".hidden", "a/.hayase-container"] {
            assert_eq!(Key::new(good).unwrap().as_bytes(), good.as_bytes());
        }
        let long = "x".repeat(256);
        let deep = "d/".repeat(2100) + "f";
        let dangerous =
            ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "a\0b", &long, &deep];
        for bad in dangerous {
            assert!(Key::new(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(Key::new("a/.hayase-partial-1").is_err());
    }

    #[test]
    fn ancestors_are_directories_outermost_first() {
        let key = Key::new("a/b/c").unwrap();
        assert_eq!(key.ancestors().collect::<Vec<_>>(), [&b"a"[..], b"a/b"]);
        assert_eq!(key.split_last(), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(Key::new("top").unwrap().split_last(), (&b""[..], &b"top"[..]));
    }

    #[test]
    fn strange_bytes_are_shown_escaped() {
        assert_eq!(Key::new(b"a\xff\n").unwrap().to_string(), "a\\xff\\n");
    }
}
