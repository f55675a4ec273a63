//! Bytes and attributes of the fake.

use std::os::unix::fs::{FileExt, MetadataExt};

use hayase_wire::message::{MetaChange, Room, SetTime, without_suidgid};

use super::{
    Attr, Bulk, Entry, File, FileKind, Inode, InodeId, NodeReply, NodeRequest, Refused, State,
    TimeSpec, now, refused,
};

impl State {
    pub(super) fn serve_parts(
        &mut self,
        request: &NodeRequest,
        bulk: Bulk<'_>,
    ) -> Result<NodeReply, Refused> {
        match (request, bulk) {
            (NodeRequest::GetAttr { ino }, _) => {
                let Entry { attr, grants } = self.entry(*ino)?;
                Ok(NodeReply::Attr { attr, grants })
            }
            (NodeRequest::SetAttr { ino, change }, _) => {
                self.inode(*ino)?.change(change)?;
                let Entry { attr, grants } = self.entry(*ino)?;
                Ok(NodeReply::Attr { attr, grants })
            }
            (NodeRequest::Read { ino, offset, .. }, Bulk::Into(slot)) => {
                let part = self.inode(*ino)?.part()?;
                let mut done = 0;
                while done < slot.len() {
                    let read = part.read_at(&mut slot[done..], *offset + done as u64);
                    match read.map_err(|error| refused(&error))? {
                        0 => break,
                        some => done += some,
                    }
                }
                Ok(NodeReply::Count(done as u32))
            }
            (NodeRequest::Write { ino, offset, .. }, Bulk::From(data)) => {
                self.inode(*ino)?.write(*offset, data)?;
                Ok(NodeReply::Count(data.len() as u32))
            }
            (NodeRequest::Gather { ino, at, len }, _) => {
                let lets_gather = self.lets_gather;
                let inode = self.inode(*ino)?;
                let (size, window) = (inode.current().size, u64::from(*len));
                let offset = at.unwrap_or(size);
                let len = window - at.map_or(0, |at| at % window);
                let room = Room { offset, len: len as u32, size };
                match lets_gather && !inode.written_elsewhere {
                    true => Ok(NodeReply::Gathering(room)),
                    false => Err(Refused::new(libc::EAGAIN)),
                }
            }
            (NodeRequest::WriteGathered { ino, offset, .. }, Bulk::From(data)) => {
                if let Some(errno) = self.gathered_refused {
                    return Err(Refused::new(errno));
                }
                self.inode(*ino)?.write(*offset, data)?;
                Ok(NodeReply::Count(data.len() as u32))
            }
            (NodeRequest::Append { ino, .. }, Bulk::From(data)) => {
                let inode = self.inode(*ino)?;
                let end = inode.current().size;
                inode.write(end, data)?;
                Ok(NodeReply::Offset(end))
            }
            (NodeRequest::Allocate { ino, mode, offset, len }, _) => {
                let part = self.inode(*ino)?.part()?;
                let flags = rustix::fs::FallocateFlags::from_bits_retain(mode.cast_unsigned());
                rustix::fs::fallocate(part, flags, *offset, *len)
                    .map_err(|error| refused(&error.into()))?;
                Ok(NodeReply::Done)
            }
            (NodeRequest::Seek { ino, offset, whence }, _) => {
                let from = match whence {
                    3 => rustix::fs::SeekFrom::Data(*offset),
                    _ => rustix::fs::SeekFrom::Hole(*offset),
                };
                let found = rustix::fs::seek(self.inode(*ino)?.part()?, from);
                found.map(NodeReply::Offset).map_err(|error| refused(&error.into()))
            }
            (NodeRequest::CopyRange { from, to, len }, _) => self.copy(*from, *to, *len),
            (NodeRequest::Fsync { ino, .. }, _) => {
                self.inode(*ino)?;
                Ok(NodeReply::Done)
            }
            _ => Err(Refused::new(libc::ENOSYS)),
        }
    }

    fn copy(
        &mut self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Result<NodeReply, Refused> {
        let mut bytes = vec![0; len.min(1 << 20) as usize];
        let read = self.inode(from.0)?.part()?.read_at(&mut bytes, from.1);
        let read = read.map_err(|error| refused(&error))?;
        self.inode(to.0)?.write(to.1, &bytes[..read])?;
        Ok(NodeReply::Count(read as u32))
    }
}

impl Inode {
    fn part(&self) -> Result<&File, Refused> {
        self.part.as_ref().ok_or_else(|| Refused::new(libc::EINVAL))
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Refused> {
        self.part()?.write_all_at(data, offset).map_err(|error| refused(&error))
    }

    pub(super) fn truncate(&mut self, size: u64) -> Result<(), Refused> {
        self.part()?.set_len(size).map_err(|error| refused(&error))
    }

    /// Attributes, with what the part knows better.
    pub(super) fn current(&self) -> Attr {
        let mut attr = self.attr.clone();
        if let Some(meta) = self.part.as_ref().and_then(|part| part.metadata().ok()) {
            let time = |seconds, nanos: i64| TimeSpec { seconds, nanos: nanos as u32 };
            attr.size = meta.size();
            attr.blocks = meta.blocks();
            attr.atime = time(meta.atime(), meta.atime_nsec());
            attr.mtime = time(meta.mtime(), meta.mtime_nsec());
            attr.ctime = attr.ctime.max(time(meta.ctime(), meta.ctime_nsec()));
        }
        attr
    }

    fn change(&mut self, change: &MetaChange) -> Result<(), Refused> {
        if let Some(size) = change.size {
            self.truncate(size)?;
        }
        if change.kill_suidgid && self.attr.kind == FileKind::Regular {
            self.attr.mode = without_suidgid(self.attr.mode);
        }
        if change.uid.is_some() || change.gid.is_some() {
            self.attr.uid = change.uid.unwrap_or(self.attr.uid);
            self.attr.gid = change.gid.unwrap_or(self.attr.gid);
            if self.attr.kind == FileKind::Regular {
                self.attr.mode &= !0o6000;
            }
        }
        self.attr.mode = change.mode.unwrap_or(self.attr.mode);
        self.attr.policy = change.policy.unwrap_or(self.attr.policy);
        self.set_times(change.atime, change.mtime)?;
        self.attr.ctime = now();
        Ok(())
    }

    fn set_times(&mut self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), Refused> {
        let plain = |set: SetTime| match set {
            SetTime::Now => now(),
            SetTime::To(time) => time,
        };
        if let Some(set) = atime {
            self.attr.atime = plain(set);
        }
        if let Some(set) = mtime {
            self.attr.mtime = plain(set);
        }
        let Some(part) = &self.part else { return Ok(()) };
        let spec = |set: Option<SetTime>| match set.map(plain) {
            Some(time) => rustix::fs::Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() },
            None => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        };
        let times =
            rustix::fs::Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        rustix::fs::futimens(part, &times).map_err(|error| refused(&error.into()))
    }
}
