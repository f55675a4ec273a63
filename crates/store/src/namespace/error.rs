//! Why an operation on names could not be done.
//!
//! Here: one enum for all operations, and its errno. Not here: how it reaches a user.

use hayase_layout::{InodeId, ServerId};

use crate::meta::MetaError;

/// Why an operation on names could not be done.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// There is no such inode here.
    #[error("read inode {ino}: there is none")]
    NoInode {
        /// Its number.
        ino: InodeId,
    },
    /// The inode has as many names as it may have.
    #[error("link inode {ino}: it has {max} names already")]
    TooManyLinks {
        /// Its number.
        ino: InodeId,
        /// The bound.
        max: u32,
    },
    /// `XattrMode::Create`, and it is there.
    #[error("set extended attribute {name:?} of inode {ino}: it exists")]
    XattrExists {
        /// Whose.
        ino: InodeId,
        /// Which.
        name: String,
    },
    /// There is no such extended attribute.
    #[error("extended attribute {name:?} of inode {ino}: there is none")]
    NoXattr {
        /// Whose.
        ino: InodeId,
        /// Which.
        name: String,
    },
    /// A name that is empty or over 255 bytes.
    #[error(
        "set an extended attribute of inode {ino}: its name has {len} bytes, 1 to {max} are allowed"
    )]
    XattrName {
        /// Whose.
        ino: InodeId,
        /// Bytes of the name.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// A value over 64 KiB.
    #[error("set an extended attribute of inode {ino}: {len} bytes are more than {max}")]
    XattrValue {
        /// Whose.
        ino: InodeId,
        /// Bytes of the value.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The list of names would be over 64 KiB.
    #[error("set an extended attribute of inode {ino}: its names would have more than {max} bytes")]
    XattrList {
        /// Whose.
        ino: InodeId,
        /// The bound.
        max: usize,
    },
    /// All inode numbers of this server are used.
    #[error("allocate an inode: all numbers of this server are used")]
    NumbersExhausted,
    /// The store holds the names of another server.
    #[error("open the names of server {expected}: they belong to server {found}")]
    Foreign {
        /// Whose they are.
        found: ServerId,
        /// Whose they should be.
        expected: ServerId,
    },
    /// The store was written by another version of this program.
    #[error("open the names: they are in format {found}, this program knows format {expected}")]
    Format {
        /// As they are.
        found: u8,
        /// As they should be.
        expected: u8,
    },
    /// A record is not what was written.
    #[error("the record {key} is damaged: {why}")]
    Corrupt {
        /// Its key, escaped.
        key: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The key-value store failed.
    #[error("use the store of names")]
    Store(#[from] MetaError),
}

impl NamespaceError {
    /// The errno that a system call answers.
    pub fn errno(&self) -> i32 {
        match self {
            Self::XattrExists { .. } => libc::EEXIST,
            Self::NoInode { .. } => libc::ENOENT,
            Self::TooManyLinks { .. } => libc::EMLINK,
            Self::NoXattr { .. } => libc::ENODATA,
            Self::XattrName { .. } => libc::ERANGE,
            Self::XattrValue { .. } => libc::E2BIG,
            Self::XattrList { .. } | Self::NumbersExhausted => libc::ENOSPC,
            Self::Foreign { .. } | Self::Format { .. } | Self::Corrupt { .. } => libc::EIO,
            Self::Store(error) => error.errno(),
        }
    }

    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.help(),
            Self::Foreign { .. } => {
                Some("this storage directory holds another job's or node's names: use another one")
            }
            _ => None,
        }
    }
}
