//! Listings.
//!
//! An entry's offset is its cookie; `.` is 1 and `..` is 2. The server sends more than the kernel
//! asks for at once; the rest waits in the handle. With attributes (readdirplus) it grows old.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use fuser::{FileHandle, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use hayase_client::limits::LISTING_BYTES;
use hayase_client::volume::{Found, Listed};
use hayase_layout::InodeId;
use hayase_wire::message::Refused;

use super::{GENERATION, Shared};
use crate::attributes::{file_attr, file_type};
use crate::errno::errno;
use crate::handles::Listing;

/// Attributes are ten times as long as names.
const PLUS_BYTES: u32 = LISTING_BYTES / 8;

const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

impl Shared {
    pub(crate) fn readdir(
        &self,
        dir: InodeId,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let result = self.with_listing(dir, handle, offset, false, |listing| {
            for (at, ino, name) in self.dots(dir, offset) {
                if reply.add(INodeNo(ino.0), at, fuser::FileType::Directory, name) {
                    return;
                }
            }
            while let Some(Listed { entry, .. }) = listing.rest.front() {
                let name = std::ffi::OsStr::new(as_os(&entry.name));
                let kind = file_type(entry.kind);
                if reply.add(INodeNo(entry.ino.0), entry.cookie, kind, name) {
                    return;
                }
                listing.pass();
            }
        });
        match result {
            Ok(()) => reply.ok(),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    pub(crate) fn readdirplus(
        &self,
        dir: InodeId,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let here = match self.volume.attributes(dir) {
            Ok(found) => file_attr(&found.attr),
            Err(refused) => return reply.error(errno(&refused)),
        };
        let result = self.with_listing(dir, handle, offset, true, |listing| {
            for (at, ino, name) in self.dots(dir, offset) {
                let attr = fuser::FileAttr { ino: INodeNo(ino.0), ..here };
                let ino = attr.ino;
                if reply.add(ino, at, name, &Duration::ZERO, &attr, GENERATION) {
                    return None;
                }
            }
            let begun = self.kernel.replies.begin_all();
            let kept = listing.may_be_kept();
            while let Some(Listed { entry, stamp }) = listing.rest.front() {
                // Its home was not asked: the next request begins with it.
                let Some(known) = &entry.entry else { break };
                let found = Found { attr: known.attr.clone(), stamp: *stamp };
                let ttl = self.shared_ttl(&found).min(kept);
                let (attr, name) = (file_attr(&found.attr), as_os(&entry.name));
                self.kernel.inodes.remember(entry.ino, dir);
                self.kernel.set_ids.told(&found.attr);
                if reply.add(attr.ino, entry.cookie, name, &ttl, &attr, GENERATION) {
                    self.forget(entry.ino, 1);
                    break;
                }
                listing.pass();
            }
            Some(begun)
        });
        match result {
            Ok(_begun) => reply.ok(),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    /// Calls `fill` with the entries that follow `offset`, fetched if need be.
    fn with_listing<T>(
        &self,
        dir: InodeId,
        handle: FileHandle,
        offset: u64,
        plus: bool,
        fill: impl FnOnce(&mut Listing) -> T,
    ) -> Result<T, Refused> {
        let listing = self.directories.get(handle).ok_or_else(|| Refused::new(libc::EBADF))?;
        let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
        let cookie = if offset <= DOT_DOT { 0 } else { offset };
        let follows = listing.after == cookie && listing.plus == plus && offset != 0;
        listing.is_new = !follows || listing.rest.is_empty();
        if listing.is_new {
            let bytes = if plus { PLUS_BYTES } else { LISTING_BYTES };
            let at = Instant::now();
            let rest = self.volume.list(dir, cookie, bytes, plus)?.into();
            *listing = Listing { rest, after: cookie, plus, at: Some(at), is_new: true };
        }
        if plus {
            self.complete_first(&mut listing);
        }
        Ok(fill(&mut listing))
    }

    /// readdirplus can not leave attributes out, so what the listing lacks is asked here.
    fn complete_first(&self, listing: &mut Listing) {
        while let Some(first) = listing.rest.front_mut().filter(|first| first.entry.entry.is_none())
        {
            match self.volume.attributes(first.entry.ino) {
                Ok(Found { attr, stamp }) => {
                    let grants = hayase_wire::message::Grants::NONE;
                    first.entry.entry = Some(hayase_wire::message::Entry { attr, grants });
                    first.stamp = stamp;
                }
                Err(refused) if [libc::ENOENT, libc::ESTALE].contains(&refused.errno) => {
                    listing.pass(); // Removed meanwhile.
                }
                Err(refused) => {
                    tracing::warn!(ino = %first.entry.ino, %refused, "listed without attributes");
                    let grants = hayase_wire::message::Grants::NONE;
                    let attr = unknown(&first.entry);
                    first.entry.entry = Some(hayase_wire::message::Entry { attr, grants });
                }
            }
        }
    }

    /// `.` and `..`, as far as they come after `offset`.
    fn dots(
        &self,
        dir: InodeId,
        offset: u64,
    ) -> impl Iterator<Item = (u64, InodeId, &'static str)> {
        let parent = self.kernel.inodes.parent(dir).unwrap_or(dir);
        [(DOT, dir, "."), (DOT_DOT, parent, "..")].into_iter().filter(move |(at, ..)| *at > offset)
    }
}

impl Listing {
    /// The first entry is given to the kernel.
    fn pass(&mut self) {
        if let Some(passed) = self.rest.pop_front() {
            self.after = passed.entry.cookie;
        }
    }
}

fn as_os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

/// Of an inode whose home does not answer: its kind is all we know.
fn unknown(entry: &hayase_wire::message::DirEntry) -> hayase_wire::message::Attr {
    let time = hayase_wire::message::TimeSpec::default();
    hayase_wire::message::Attr {
        ino: entry.ino,
        kind: entry.kind,
        mode: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        nlink: 1,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        layout: hayase_layout::Layout::None,
        layout_epoch: 0,
        trunc_epoch: 0,
        policy: None,
        acls: None,
    }
}
