//! What can go wrong at a tier, told so that a caller can branch and a person can act.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Of something that need not be there: `None` where it is missing.
pub fn if_there<T>(result: Result<T, TierError>) -> Result<Option<T>, TierError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(TierError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What was being done when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Opening the tier itself.
    Attach,
    /// Listing names.
    List,
    /// Reading attributes.
    Stat,
    /// Opening for reading.
    Open,
    /// Reading bytes.
    Read,
    /// Beginning a new version.
    Begin,
    /// Writing bytes of a new version.
    Write,
    /// Making a new version durable and visible.
    Commit,
    /// Changing attributes.
    SetAttributes,
    /// Reading extended attributes.
    Xattrs,
    /// Setting or removing extended attributes.
    SetXattrs,
    /// Deleting.
    Delete,
    /// Renaming.
    Rename,
    /// Removing unfinished uploads.
    Sweep,
    /// Asking where the bytes lie.
    Locate,
    /// Making copies on other hosts.
    Replicate,
    /// Reading the attributes of a directory, or changing them.
    Directory,
    /// Making a directory.
    MakeDirectory,
    /// Reading a symbolic link.
    ReadLink,
    /// Making a symbolic link.
    MakeLink,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attach => "open",
            Self::List => "list",
            Self::Stat => "read the attributes of",
            Self::Open => "open",
            Self::Read => "read",
            Self::Begin => "begin to write",
            Self::Write => "write",
            Self::Commit => "make durable",
            Self::SetAttributes => "set the attributes of",
            Self::Xattrs => "read the extended attributes of",
            Self::SetXattrs => "set the extended attributes of",
            Self::Delete => "delete",
            Self::Rename => "rename",
            Self::Sweep => "remove unfinished uploads in",
            Self::Locate => "locate",
            Self::Replicate => "replicate",
            Self::Directory => "use the directory",
            Self::MakeDirectory => "make the directory",
            Self::ReadLink => "read the link",
            Self::MakeLink => "make the link",
        })
    }
}

/// Why a call on a tier failed. `path` is what a person would type: the tier's root and the key.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what each message is made of")]
pub enum TierError {
    /// There is no such object.
    #[error("{action} {path}: no such object")]
    Missing { action: Action, path: String },
    /// There is one, and the caller asked for none ([`crate::Precondition::Absent`]).
    #[error("{action} {path}: it already exists")]
    Exists { action: Action, path: String },
    /// The name is taken by something that is no object, or an object stands where a directory is needed.
    #[error("{action} {path}: {what}")]
    NotObject { action: Action, path: String, what: &'static str },
    /// No space, or no inode.
    #[error("{action} {path}: no space left there")]
    Full { action: Action, path: String },
    /// The owner's quota is used up.
    #[error("{action} {path}: the quota there is used up")]
    Quota { action: Action, path: String },
    /// Rights, or a file system mounted read-only.
    #[error("{action} {path}: not permitted")]
    Denied { action: Action, path: String, source: io::Error },
    /// This tier can not do this; its [`crate::Capabilities`] say so.
    #[error("{action} {path}: the storage does not support it")]
    Unsupported { action: Action, path: String },
    /// The tier does not answer, or lost its state; the same call may succeed later.
    #[error("{action} {path}: the storage does not answer")]
    Unavailable { action: Action, path: String, source: io::Error },
    /// Another version stands there than the one that was meant, and the tier keeps no old ones.
    #[error("{action} {path}: it was replaced or removed by another program")]
    Changed { action: Action, path: String },
    /// The bytes that came are not those that were stored, also after asking again.
    #[error("{action} {path}: {what}")]
    Corrupt { action: Action, path: String, what: String },
    /// Settings, credentials or the server's rules forbid it; asking again does not help.
    #[error("{action} {path}: {what}")]
    Refused { action: Action, path: String, what: String, help: &'static str },
    /// Anything else.
    #[error("{action} {path}")]
    Io { action: Action, path: String, source: io::Error },
}

impl TierError {
    /// Sorts an errno of the file system below into what a caller can branch on.
    pub(crate) fn from_errno(action: Action, path: String, errno: Errno) -> Self {
        let source = io::Error::from(errno);
        match errno {
            Errno::NOENT => Self::Missing { action, path },
            Errno::EXIST => Self::Exists { action, path },
            Errno::NOSPC => Self::Full { action, path },
            Errno::DQUOT => Self::Quota { action, path },
            Errno::NOTEMPTY => Self::NotObject { action, path, what: "it is not empty" },
            Errno::ISDIR => Self::NotObject { action, path, what: "it is a directory" },
            Errno::NOTDIR => Self::NotObject { action, path, what: "a parent is not a directory" },
            Errno::LOOP => Self::NotObject {
                action,
                path,
                what: "a symbolic link stands there, and links are not followed",
            },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Denied { action, path, source },
            Errno::OPNOTSUPP | Errno::NOSYS => Self::Unsupported { action, path },
            Errno::STALE
            | Errno::TIMEDOUT
            | Errno::NOTCONN
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::SHUTDOWN
            | Errno::CONNRESET => Self::Unavailable { action, path, source },
            _ => Self::Io { action, path, source },
        }
    }

    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Full { .. } => {
                Some("free space there, then try again; a job keeps what it has not flushed")
            }
            Self::Quota { .. } => Some(
                "check your quota (`quota -s`, `lfs quota`), then remove files or ask for more; nothing was replaced",
            ),
            Self::Denied { .. } => Some(
                "check the owner and mode of the directory and its mount, or the permissions of the user of the bucket",
            ),
            Self::Unavailable { .. } => Some(
                "check the tier (its mount with `df` and `dmesg`, or its server), then try again",
            ),
            Self::Refused { help, .. } => Some(help),
            Self::Changed { .. } => {
                Some("another program writes here; open it again for the new version")
            }
            Self::Corrupt { .. } => Some("compare the object with its source, and write it again"),
            Self::NotObject { .. } => Some("move it away, or choose another name"),
            Self::Missing { .. }
            | Self::Exists { .. }
            | Self::Unsupported { .. }
            | Self::Io { .. } => None,
        }
    }

    /// The same call may succeed later without anybody changing its arguments.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Quota { .. } | Self::Unavailable { .. })
    }

    /// The errno that fits best, for a kernel that asks.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Missing { .. } => Errno::NOENT,
            Self::Exists { .. } => Errno::EXIST,
            Self::NotObject { .. } => Errno::NOTDIR,
            Self::Full { .. } => Errno::NOSPC,
            Self::Quota { .. } => Errno::DQUOT,
            Self::Unsupported { .. } => Errno::OPNOTSUPP,
            Self::Changed { .. } => Errno::STALE,
            Self::Corrupt { .. } => Errno::IO,
            Self::Refused { .. } => Errno::ACCESS,
            Self::Denied { source, .. }
            | Self::Unavailable { source, .. }
            | Self::Io { source, .. } => {
                let denied = source.kind() == io::ErrorKind::PermissionDenied;
                let usual = if denied { Errno::ACCESS } else { Errno::IO };
                return source.raw_os_error().unwrap_or(usual.raw_os_error());
            }
        };
        errno.raw_os_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errno: Errno, expected: &str, transient: bool) {
        let error = TierError::from_errno(Action::Write, "/tier/a/b".into(), errno);
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.is_transient(), transient, "{expected}");
        assert_eq!(error.errno(), errno.raw_os_error(), "{expected}");
    }

    #[test]
    fn an_errno_becomes_a_sentence_and_stays_the_same_errno() {
        check(Errno::NOSPC, "write /tier/a/b: no space left there", true);
        check(Errno::DQUOT, "write /tier/a/b: the quota there is used up", true);
        check(Errno::NOENT, "write /tier/a/b: no such object", false);
        check(Errno::ACCESS, "write /tier/a/b: not permitted", false);
        check(Errno::ROFS, "write /tier/a/b: not permitted", false);
        check(Errno::STALE, "write /tier/a/b: the storage does not answer", true);
        check(Errno::NOTDIR, "write /tier/a/b: a parent is not a directory", false);
        check(Errno::IO, "write /tier/a/b", false);
    }

    #[test]
    fn a_full_tier_says_what_to_do() {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ACCESS, Errno::STALE] {
            let error = TierError::from_errno(Action::Commit, "/tier".into(), errno);
            assert!(error.help().is_some(), "{error}");
        }
    }
}
