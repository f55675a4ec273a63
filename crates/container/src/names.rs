//! The names of the files in a container.
//!
//! ```text
//! .hayase-container            the mark
//! stub                         empty; what an MPI library opens to have a handle
//! n3-p4711-o1.part             bytes that one writer wrote
//! n3-p4711-o1.index            what it published about them
//! merged-8badf00d000000a1.index   indexes of many writers, by compaction
//! merging-5eed00c0ffee0001        the same while it is written: it does not count
//! ```

use hayase_layout::{NodeId, WriterId};

use crate::directory::random;

/// The mark of a container.
pub const MARK: &str = ".hayase-container";

/// The mark of a directory in which new MPI-IO files become containers.
pub const DIRECTORY_MARK: &str = ".hayase-containers";

/// An empty file in each container.
pub const STUB: &str = "stub";

/// What a file in a container is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mark,
    Stub,
    Part(WriterId),
    Index(WriterId),
    /// By its number.
    Merged(u64),
    /// A merged index that is being written, or whose compaction was killed: by a drawn number.
    Begun(u64),
    /// What NFS keeps of a file that was removed while a process of this host had it open, as long as it has.
    Removed,
    /// Not of a container.
    Foreign,
}

/// The node in the name of a part into which others were joined, so that the name is larger than theirs. A node may
/// have this number too: the process of a joined part is larger than those of the parts that went into it.
pub(crate) const JOINED: NodeId = NodeId(u16::MAX);

/// The bit in the numbers that compactions draw. Openings of writers have less than 53 bits, and builds before version
/// 2 counted merged indexes from 1 on.
const DRAWN: u64 = 1 << 63;

/// A number for what a compaction makes, which no other has.
pub(crate) fn drawn() -> u64 {
    random() | DRAWN
}

/// Whether a part was made by joining others.
pub(crate) fn is_joined(part: WriterId) -> bool {
    part.node == JOINED && part.opening & DRAWN != 0
}

/// Whether a merged index is of a build before version 2, which wrote it under its own name: a kill leaves a part of it.
pub(crate) fn is_written_in_place(name: &str) -> bool {
    matches!(kind(name), Kind::Merged(number) if number & DRAWN == 0)
}

pub(crate) fn part(id: WriterId) -> String {
    format!("{}.part", stem(id))
}

pub(crate) fn index(id: WriterId) -> String {
    format!("{}.index", stem(id))
}

pub(crate) fn merged(number: u64) -> String {
    format!("merged-{number:016x}.index")
}

/// A name under which a merged index is written.
pub(crate) fn begun(number: u64) -> String {
    format!("merging-{number:016x}")
}

fn stem(id: WriterId) -> String {
    format!("n{}-p{}-o{}", id.node, id.process, id.opening)
}

pub(crate) fn kind(name: &str) -> Kind {
    match name {
        MARK => return Kind::Mark,
        STUB => return Kind::Stub,
        _ if is_removed(name) => return Kind::Removed,
        _ => {}
    }
    let found = if let Some(stem) = name.strip_suffix(".part") {
        writer(stem).map(Kind::Part)
    } else if let Some(stem) = name.strip_suffix(".index") {
        let number = stem.strip_prefix("merged-").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        number.map(Kind::Merged).or_else(|| writer(stem).map(Kind::Index))
    } else if let Some(hex) = name.strip_prefix("merging-") {
        u64::from_str_radix(hex, 16).ok().map(Kind::Begun)
    } else {
        None
    };
    // Only names as they are made here: `n03-p1-o1.part` is not the part of writer 3.
    let made = match found {
        Some(Kind::Part(id)) => part(id),
        Some(Kind::Index(id)) => index(id),
        Some(Kind::Merged(number)) => merged(number),
        Some(Kind::Begun(number)) => begun(number),
        _ => return Kind::Foreign,
    };
    found.filter(|_| made == name).unwrap_or(Kind::Foreign)
}

/// The parts among `names`.
pub(crate) fn parts_among(names: &[String]) -> impl Iterator<Item = WriterId> {
    names.iter().filter_map(|name| match kind(name) {
        Kind::Part(id) => Some(id),
        _ => None,
    })
}

fn is_removed(name: &str) -> bool {
    let hex = name.strip_prefix(".nfs").unwrap_or_default();
    !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn writer(stem: &str) -> Option<WriterId> {
    let mut fields = stem.split('-');
    let node = fields.next()?.strip_prefix('n')?.parse().ok()?;
    let process = fields.next()?.strip_prefix('p')?.parse().ok()?;
    let opening = fields.next()?.strip_prefix('o')?.parse().ok()?;
    fields.next().is_none().then_some(WriterId { node: NodeId(node), process, opening })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compactions_draw_is_no_name_of_a_writer_or_of_a_build_before() {
        let of = |opening| WriterId { node: JOINED, process: 4711, opening };
        assert!(is_joined(of(drawn())) && !is_written_in_place(&merged(drawn())));
        // The largest openings that there are, on a node of that number.
        assert!(!is_joined(of((1 << 53) - 1)) && !is_joined(of(u64::from(u32::MAX))));
        assert!(is_written_in_place(&merged(1)) && !is_written_in_place(&index(of(1))));
    }

    #[test]
    fn names_are_read_as_they_are_made() {
        let id = WriterId { node: NodeId(3), process: 4711, opening: 1 };
        assert_eq!(part(id), "n3-p4711-o1.part");
        assert_eq!(kind(&part(id)), Kind::Part(id));
        assert_eq!(kind(&index(id)), Kind::Index(id));
        assert_eq!(kind(&merged(161)), Kind::Merged(161));
        assert_eq!(kind(&begun(161)), Kind::Begun(161));
        assert_eq!(kind(MARK), Kind::Mark);
        assert_eq!(kind(".nfs0000000000a1b2c300000001"), Kind::Removed);
        for foreign in [
            "",
            "n3-p4711-o1",
            "n03-p1-o1.part",
            "n3-p1-o1-x.part",
            "merged-a1.index",
            "x.index",
            ".nfs",
            ".nfsd-1",
            "merging-a1",
            "merging-00000000000000a1.index",
        ] {
            assert_eq!(kind(foreign), Kind::Foreign, "{foreign}");
        }
    }
}
