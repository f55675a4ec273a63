//! The operations on names and inodes, one file each.
//!
//! Every operation is a function on an open [`Txn`](super::Txn); several make one transaction. They
//! know nothing of permissions, opens or other servers: the caller has decided. Operations that a
//! restarted server may have to do again (`link`, `unlink`, `relink`, `remove_*`, `drop_*`) change
//! nothing the second time.

mod answer;
mod create;
mod dir_shards;
mod durability;
mod given_up;
mod intent;
mod link;
mod list;
mod lookup;
#[cfg(test)]
mod model;
mod part_note;
mod remove;
mod rename;
mod set_attr;
mod unlink;
mod xattr;

pub use self::answer::{Answer, answer, answers, drop_answers, put_answer};
pub use self::create::create;
pub use self::dir_shards::{
    add_dir_shard, are_names_spread, clear_dir_shards, dir_shards, grant_dir, has_dir_grant,
    revoke_dir_grant, spread_names,
};
pub use self::durability::{Durability, durability, forget_durability, note_broken, note_durable};
pub use self::given_up::{give_up, given_up};
pub use self::intent::{Intent, IntentKind, drop_intent, intent, intents, put_intent};
pub use self::link::{LINKS_MAX, link, names_of};
pub use self::list::{AnyEntry, all_entries, is_empty, list};
pub use self::lookup::{Exists, insert, lookup};
pub use self::part_note::{
    PartBytes, bytes_of_part, forget_part, has_part, note_bytes, note_part, part_notes,
    power_failed,
};
pub use self::remove::{orphans, remove_inode};
pub use self::rename::{relink, replace};
pub use self::set_attr::{get_inode, inodes, put_inode};
pub use self::unlink::{Nameless, remove_entry, unlink};
pub use self::xattr::{
    XATTR_NAME_MAX, XATTR_NAMES_BYTES_MAX, XATTR_VALUE_MAX, XattrMode, get_xattr, list_xattr,
    remove_xattr, set_xattr,
};

pub use super::answer_slot::AnswerSlot;
pub use super::entry::cookie;

use super::NamespaceError;

/// An error for a key that can not be parsed.
fn bad_key(key: &[u8]) -> NamespaceError {
    NamespaceError::Corrupt {
        key: key.escape_ascii().to_string(),
        why: "its key has a wrong length",
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the unit tests of the operations share.

    use std::sync::Arc;

    use hayase_layout::{InodeId, Layout, ServerId};

    use crate::meta::MemoryStore;
    use crate::namespace::{FileKind, Inode, Namespace, Time};

    pub(crate) fn at(seconds: i64) -> Time {
        Time { seconds, nanos: 0 }
    }

    pub(crate) fn namespace() -> Namespace {
        Namespace::open(Arc::new(MemoryStore::new()), ServerId(0), at(0)).unwrap()
    }

    pub(crate) fn file(ino: u64, dir: u64, name: &[u8]) -> Inode {
        Inode {
            mode: 0o644,
            layout: Layout::Whole,
            name: Some((InodeId(dir), name.to_vec())),
            ..Inode::new(InodeId(ino), FileKind::Regular, at(1))
        }
    }
}
