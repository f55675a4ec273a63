//! Paths: names of one component, and splitting a path that a program gives.
//!
//! Here: what is a name, and the steps of a path inside an area. Nothing is resolved: `..` stays a step,
//! since only a walk that meets the symbolic links knows what it leads to.
//! Not here: where the area is mounted, the walk itself, symbolic links.

use std::fmt;

/// Longest name, in bytes: `NAME_MAX` of Linux.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest path, in bytes: `PATH_MAX` of Linux without its closing NUL.
pub const PATH_BYTES_MAX: usize = 4095;

/// Why bytes are no name or no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No bytes at all (`ENOENT` for a path, as POSIX says).
    #[error("a name is empty")]
    Empty,
    /// `ENAMETOOLONG`.
    #[error("a name of {len} bytes is too long: at most {NAME_BYTES_MAX} are allowed")]
    NameTooLong {
        /// How long it is.
        len: usize,
    },
    /// `ENAMETOOLONG`.
    #[error("a path of {len} bytes is too long: at most {PATH_BYTES_MAX} are allowed")]
    PathTooLong {
        /// How long it is.
        len: usize,
    },
    /// A `/` inside a name, or a NUL anywhere (`EINVAL`).
    #[error("byte {at} of a name is {byte:#04x}, which names cannot have")]
    Byte {
        /// Which byte.
        at: usize,
        /// What it is.
        byte: u8,
    },
    /// `.` or `..` where an entry is named (`EINVAL`).
    #[error("`.` and `..` are in every directory and cannot be made, renamed or removed")]
    Dots,
    /// A path inside an area begins with `/`.
    #[error("a path inside an area begins with `/`")]
    Relative,
}

/// One directory entry's name: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`. Any other bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentName<'a>(&'a [u8]);

impl<'a> ComponentName<'a> {
    /// Checks once; afterwards the type is the proof.
    pub fn new(bytes: &'a [u8]) -> Result<Self, PathError> {
        match bytes {
            b"" => Err(PathError::Empty),
            b"." | b".." => Err(PathError::Dots),
            _ if bytes.len() > NAME_BYTES_MAX => Err(PathError::NameTooLong { len: bytes.len() }),
            _ => match bytes.iter().position(|byte| matches!(byte, b'/' | 0)) {
                Some(at) => Err(PathError::Byte { at, byte: bytes[at] }),
                None => Ok(Self(bytes)),
            },
        }
    }

    /// The bytes, as they travel and as they are kept.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Display for ComponentName<'_> {
    /// As UTF-8 where it is, with escapes where it is not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for ComponentName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Checks a name without keeping the proof.
pub fn check_name(bytes: &[u8]) -> Result<(), PathError> {
    ComponentName::new(bytes).map(|_| ())
}

/// One step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// To the entry of this name.
    Name(ComponentName<'a>),
    /// `..`: to the parent of the directory that the walk is in; the root is its own parent.
    Parent,
}

/// A path inside an area, checked: begins with `/`, every component is a name, `.` or `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaPath<'a>(&'a [u8]);

impl<'a> AreaPath<'a> {
    /// Checks every component. Repeated slashes count as one.
    pub fn new(bytes: &'a [u8]) -> Result<Self, PathError> {
        match bytes.first() {
            None => return Err(PathError::Empty),
            Some(b'/') => {}
            Some(_) => return Err(PathError::Relative),
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathError::PathTooLong { len: bytes.len() });
        }
        for component in components(bytes) {
            match ComponentName::new(component) {
                Ok(_) | Err(PathError::Dots) => {}
                Err(wrong) => return Err(wrong),
            }
        }
        Ok(Self(bytes))
    }

    /// The bytes as given.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// From the area's root on. `.` is no step; whether the walk then ends in a directory is told by
    /// [`AreaPath::must_be_directory`].
    pub fn steps(self) -> impl DoubleEndedIterator<Item = Step<'a>> + Clone {
        components(self.0).filter_map(|component| match component {
            b"." => None,
            b".." => Some(Step::Parent),
            name => Some(Step::Name(ComponentName(name))),
        })
    }

    /// Whether it leads to a directory or nowhere: it ends in `/`, `/.` or `/..`.
    pub fn must_be_directory(self) -> bool {
        self.0.ends_with(b"/") || matches!(components(self.0).next_back(), Some(b"." | b".."))
    }

    /// The directory's path and the name of the entry in it, as for making or removing that entry.
    ///
    /// A trailing slash is dropped (see [`AreaPath::must_be_directory`]). Fails with [`PathError::Dots`] for the root and for paths that end in `.` or `..`.
    pub fn split_last(self) -> Result<(Self, ComponentName<'a>), PathError> {
        let end = self.0.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let start = self.0[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let name = ComponentName::new(&self.0[start..end]).map_err(|_| PathError::Dots)?;
        Ok((Self(&self.0[..start]), name))
    }
}

fn components(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    bytes.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_bytes_without_slash_and_nul() {
        let check = |name: &[u8], error: Option<PathError>| {
            assert_eq!(check_name(name).err(), error, "{}", name.escape_ascii());
        };
        check(b"a", None);
        check(b"...", None);
        check(b" ", None);
        check(b"\xff\xfe\n", None); // not UTF-8, and allowed
        check(&[b'x'; 255], None);
        check(&[b'x'; 256], Some(PathError::NameTooLong { len: 256 }));
        check(b"", Some(PathError::Empty));
        check(b".", Some(PathError::Dots));
        check(b"..", Some(PathError::Dots));
        check(b"a/b", Some(PathError::Byte { at: 1, byte: b'/' }));
        check(b"ab\0", Some(PathError::Byte { at: 2, byte: 0 }));
    }

    fn steps(path: &[u8]) -> Result<String, PathError> {
        let path = AreaPath::new(path)?;
        let steps: Vec<_> = path
            .steps()
            .map(|step| match step {
                Step::Name(name) => name.to_string(),
                Step::Parent => "UP".to_owned(),
            })
            .collect();
        Ok(steps.join(" ") + if path.must_be_directory() { " DIR" } else { "" })
    }

    #[test]
    fn paths_are_split_but_not_resolved() {
        let check = |path: &str, expected: &str| {
            assert_eq!(steps(path.as_bytes()).as_deref(), Ok(expected), "{path}");
        };
        check("/", " DIR");
        check("/a/b", "a b");
        check("//a///b/", "a b DIR");
        check("/a/./b", "a b");
        check("/a/.", "a DIR");
        check("/a/../b", "a UP b"); // `a` may be a link to elsewhere
        check("/..", "UP DIR");
        assert_eq!(steps(b""), Err(PathError::Empty));
        assert_eq!(steps(b"a"), Err(PathError::Relative));
        assert_eq!(steps(b"/a\0b"), Err(PathError::Byte { at: 1, byte: 0 }));
        assert_eq!(steps(&[b'/'; 4096]), Err(PathError::PathTooLong { len: 4096 }));
        let long = [b"/ok/".as_slice(), &[b'x'; 256]].concat();
        assert_eq!(steps(&long), Err(PathError::NameTooLong { len: 256 }));
    }

    #[test]
    fn the_last_name_is_split_off() {
        let check = |path: &str, expected: Option<(&str, &str)>| {
            let found = AreaPath::new(path.as_bytes()).unwrap().split_last().ok();
            let found = found.map(|(parent, name)| (parent.as_bytes(), name.as_bytes()));
            assert_eq!(found, expected.map(|(p, n)| (p.as_bytes(), n.as_bytes())), "{path}");
        };
        check("/a", Some(("/", "a")));
        check("/a/b/c", Some(("/a/b/", "c")));
        check("/a/b//", Some(("/a/", "b")));
        check("/", None);
        check("//", None);
        check("/a/.", None);
        check("/a/../", None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_split_or_refused(bytes in prop::collection::vec(
            prop::sample::select(b"ab./\0\xff".as_slice()), 0..24
        )) {
            if let Ok(path) = AreaPath::new(&bytes) {
                // What std makes of it, which never resolves `..` either.
                use std::os::unix::ffi::OsStrExt;
                let std_path = std::path::Path::new(std::ffi::OsStr::from_bytes(&bytes));
                let expected: Vec<_> = std_path.components().skip(1)
                    .map(|component| component.as_os_str().as_bytes()).collect();
                let found: Vec<_> = path.steps().map(|step| match step {
                    Step::Name(name) => name.as_bytes(),
                    Step::Parent => b"..",
                }).collect();
                prop_assert_eq!(found, expected);
            } else {
                prop_assert!(bytes.first() != Some(&b'/') || bytes.contains(&0));
            }
        }
    }
}
