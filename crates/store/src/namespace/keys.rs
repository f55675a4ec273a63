//! Keys of the records: one letter, then fixed-size numbers in big endian, then a name.
//!
//! Here: making and parsing keys. Not here: the values (`FORMAT.md` draws both).
//!
//! The order matters: entries of a directory lie in cookie order, so a listing is one scan; all
//! records of one kind about one inode lie side by side, so removing an inode is a few scans.

use hayase_layout::{InodeId, ServerId};

use super::answer_slot::AnswerSlot;
use super::entry::cookie;
use crate::part::PartId;

const ANSWER: u8 = b'a';
const BACK_POINTER: u8 = b'b';
const DURABILITY: u8 = b'd';
const ENTRY: u8 = b'e';
const DIR_GRANT: u8 = b'g';
const GIVEN_UP: u8 = b'f';
const INODE: u8 = b'i';
const META: u8 = b'm';
const NAMES_SPREAD: u8 = b'n';
const ORPHAN: u8 = b'o';
const PART_NOTE: u8 = b'p';
const DIR_SHARD: u8 = b's';
const INTENT: u8 = b't';
const XATTR: u8 = b'x';

fn key(kind: u8, number: u64, rest: &[&[u8]]) -> Vec<u8> {
    let len = rest.iter().map(|bytes| bytes.len()).sum::<usize>();
    let mut key = Vec::with_capacity(9 + len);
    key.push(kind);
    key.extend_from_slice(&number.to_be_bytes());
    rest.iter().for_each(|bytes| key.extend_from_slice(bytes));
    key
}

/// Whose names the store holds.
pub(super) fn identity() -> Vec<u8> {
    [&[META], &b"identity"[..]].concat()
}

/// The first inode counter that is not reserved.
pub(super) fn counter() -> Vec<u8> {
    [&[META], &b"counter"[..]].concat()
}

/// How often the server was started.
pub(super) fn incarnation() -> Vec<u8> {
    [&[META], &b"incarnation"[..]].concat()
}

/// In which life of the machine the server was started last.
pub(super) fn boot() -> Vec<u8> {
    [&[META], &b"boot"[..]].concat()
}

/// What was not synced when the power of the machine failed may be gone.
pub(super) fn power_lost() -> Vec<u8> {
    [&[META], &b"power-lost"[..]].concat()
}

/// Everything on the node is durable, and nobody has written since.
pub(super) fn sealed() -> Vec<u8> {
    [&[META], &b"sealed"[..]].concat()
}

/// Which nodes are lost.
pub(super) fn members() -> Vec<u8> {
    [&[META], &b"members"[..]].concat()
}

/// Which incarnation of this server was declared lost last.
pub(super) fn own_loss() -> Vec<u8> {
    [&[META], &b"own-loss"[..]].concat()
}

/// Whose gathered bytes come too late.
pub(super) fn late() -> Vec<u8> {
    [&[META], &b"late"[..]].concat()
}

/// The last answer of a slot.
pub(super) fn answer(slot: AnswerSlot) -> Vec<u8> {
    key(ANSWER, slot.process, &[&slot.slot.to_be_bytes()])
}

/// All last answers to one process.
pub(super) fn answers_of(process: u64) -> Vec<u8> {
    key(ANSWER, process, &[])
}

/// All last answers.
pub(super) fn all_answers() -> Vec<u8> {
    vec![ANSWER]
}

/// The slot of an answer's key.
pub(super) fn parse_answer(key: &[u8]) -> Option<AnswerSlot> {
    let (process, slot) = key.get(1..)?.split_at_checked(8)?;
    Some(AnswerSlot {
        process: u64::from_be_bytes(process.try_into().ok()?),
        slot: u32::from_be_bytes(slot.try_into().ok()?),
    })
}

/// An operation that binds no name any more.
pub(super) fn given_up(op: u64) -> Vec<u8> {
    key(GIVEN_UP, op, &[])
}

/// All such operations.
pub(super) fn all_given_up() -> Vec<u8> {
    vec![GIVEN_UP]
}

/// The inode record.
pub(super) fn inode(ino: InodeId) -> Vec<u8> {
    key(INODE, ino.0, &[])
}

/// All inode records.
pub(super) fn inodes() -> Vec<u8> {
    vec![INODE]
}

/// The entry of `name` in `parent`.
pub(super) fn entry(parent: InodeId, name: &[u8]) -> Vec<u8> {
    key(ENTRY, parent.0, &[&cookie(name).to_be_bytes(), name])
}

/// All entries.
pub(super) fn every_entry() -> Vec<u8> {
    vec![ENTRY]
}

/// All entries of `parent`.
pub(super) fn entries(parent: InodeId) -> Vec<u8> {
    key(ENTRY, parent.0, &[])
}

/// All entries of `parent` with this cookie; also the first of those with at least this cookie.
pub(super) fn entries_at(parent: InodeId, cookie: u64) -> Vec<u8> {
    key(ENTRY, parent.0, &[&cookie.to_be_bytes()])
}

/// Cookie and name of an entry's key; `None` when it is none.
pub(super) fn parse_entry(key: &[u8]) -> Option<(u64, &[u8])> {
    let (cookie, name) = key.get(9..)?.split_at_checked(8)?;
    Some((u64::from_be_bytes(cookie.try_into().ok()?), name))
}

/// `ino` has the name `name` in `parent`.
pub(super) fn back_pointer(ino: InodeId, parent: InodeId, name: &[u8]) -> Vec<u8> {
    key(BACK_POINTER, ino.0, &[&parent.0.to_be_bytes(), name])
}

/// All names of `ino`.
pub(super) fn back_pointers(ino: InodeId) -> Vec<u8> {
    key(BACK_POINTER, ino.0, &[])
}

/// Parent and name of a back pointer's key.
pub(super) fn parse_back_pointer(key: &[u8]) -> Option<(InodeId, &[u8])> {
    let (parent, name) = key.get(9..)?.split_at_checked(8)?;
    Some((InodeId(u64::from_be_bytes(parent.try_into().ok()?)), name))
}

/// The extended attribute `name` of `ino`.
pub(super) fn xattr(ino: InodeId, name: &[u8]) -> Vec<u8> {
    key(XATTR, ino.0, &[name])
}

/// All extended attributes of `ino`; also the mark that there are or were some.
pub(super) fn xattrs(ino: InodeId) -> Vec<u8> {
    key(XATTR, ino.0, &[])
}

/// Name of an extended attribute's key.
pub(super) fn parse_xattr(key: &[u8]) -> Option<&[u8]> {
    key.get(9..)
}

/// How much of a file is durable.
pub(super) fn durability(ino: InodeId) -> Vec<u8> {
    key(DURABILITY, ino.0, &[])
}

/// `ino` has no names any more.
pub(super) fn orphan(ino: InodeId) -> Vec<u8> {
    key(ORPHAN, ino.0, &[])
}

/// All inodes without names.
pub(super) fn orphans() -> Vec<u8> {
    vec![ORPHAN]
}

/// The number in a key that is a letter and a number: of an inode, an orphan, an intent.
pub(super) fn parse_number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))
}

/// A part of a file with another home is here.
pub(super) fn part_note(part: PartId) -> Vec<u8> {
    key(PART_NOTE, part.ino.0, &[&part.epoch.to_be_bytes(), &part.index.to_be_bytes()])
}

/// All such parts.
pub(super) fn part_notes() -> Vec<u8> {
    vec![PART_NOTE]
}

/// The part of a part note's key.
pub(super) fn parse_part_note(key: &[u8]) -> Option<PartId> {
    let (ino, rest) = key.get(1..)?.split_at_checked(8)?;
    let (epoch, index) = rest.split_at_checked(4)?;
    Some(PartId {
        ino: InodeId(u64::from_be_bytes(ino.try_into().ok()?)),
        epoch: u32::from_be_bytes(epoch.try_into().ok()?),
        index: u16::from_be_bytes(index.try_into().ok()?),
    })
}

/// An operation over several servers that is not finished.
pub(super) fn intent(id: u64) -> Vec<u8> {
    key(INTENT, id, &[])
}

/// All unfinished operations.
pub(super) fn intents() -> Vec<u8> {
    vec![INTENT]
}

/// This shard may hold entries of `dir`.
pub(super) fn dir_grant(dir: InodeId) -> Vec<u8> {
    key(DIR_GRANT, dir.0, &[])
}

/// Entries of `dir` are at the servers of their names, not all at its home.
pub(super) fn names_spread(dir: InodeId) -> Vec<u8> {
    key(NAMES_SPREAD, dir.0, &[])
}

/// `server` may hold entries of `dir`.
pub(super) fn dir_shard(dir: InodeId, server: ServerId) -> Vec<u8> {
    key(DIR_SHARD, dir.0, &[&server.0.to_be_bytes()])
}

/// All servers that may hold entries of `dir`.
pub(super) fn dir_shards(dir: InodeId) -> Vec<u8> {
    key(DIR_SHARD, dir.0, &[])
}

/// Server of a dir shard's key.
pub(super) fn parse_dir_shard(key: &[u8]) -> Option<ServerId> {
    Some(ServerId(u16::from_be_bytes(key.get(9..)?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_back() {
        let (ino, parent) = (InodeId(0x0102_0304_0506_0708), InodeId(9));
        assert_eq!(parse_entry(&entry(ino, b"n")), Some((cookie(b"n"), &b"n"[..])));
        assert_eq!(parse_back_pointer(&back_pointer(ino, parent, b"n")), Some((parent, &b"n"[..])));
        assert_eq!(parse_xattr(&xattr(ino, b"user.a")), Some(&b"user.a"[..]));
        assert_eq!(parse_number(&orphan(ino)), Some(ino.0));
        assert_eq!(parse_dir_shard(&dir_shard(ino, ServerId(7))), Some(ServerId(7)));
        let slot = AnswerSlot { process: ino.0, slot: 7 };
        assert_eq!(parse_answer(&answer(slot)), Some(slot));
        assert_eq!(parse_entry(b"e123"), None);
        assert_eq!(parse_number(b"i123"), None);
    }

    #[test]
    fn entries_lie_in_cookie_order() {
        let dir = InodeId(5);
        let mut names: Vec<Vec<u8>> = (0..1000u32).map(|i| i.to_string().into_bytes()).collect();
        names.sort_by_key(|name| entry(dir, name));
        assert!(names.is_sorted_by_key(|name| cookie(name)));
        let key = entry(dir, b"x");
        assert!(key.starts_with(&entries(dir)) && key.starts_with(&entries_at(dir, cookie(b"x"))));
        assert!(!entry(InodeId(6), b"x").starts_with(&entries(dir)));
    }
}
