//! Bytes: of the plain file where it lies on this host, else through Gfarm's servers.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Lost, Request};
use hayase_wire::message::Refused;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::metadata::Metadata;
use super::nodes::Node;
use super::opens::{Opens, system};
use super::refused;

/// Opens for one read whose host does not answer: the copy that Gfarm chooses next, and one more.
const READ_TRIES: usize = 3;

/// Reads and writes.
pub(super) struct Data {
    pub(super) metadata: Arc<Metadata>,
    pub(super) opens: Arc<Opens>,
}

impl Data {
    pub(super) fn read(&self, ino: InodeId, offset: u64, len: u32) -> Result<Vec<u8>, Refused> {
        let node = self.metadata.nodes().get(ino)?;
        let here = node.lock().file.readable();
        if let Some(here) = here {
            return read_plain(&here, offset, len);
        }
        let mut tries = 1;
        loop {
            let using = node.using();
            let file = self.opens.usable(&node, false)?;
            let answer = self.metadata.lanes().read(file, offset, len);
            drop(using);
            match answer {
                Err(lost) if is_out_of_reach(&lost) && tries < READ_TRIES => {
                    tries += 1;
                    if node.lock().file.has_writers() {
                        // Another copy would lack what was written to this one.
                        return Err(refused(lost));
                    }
                    self.opens.give_up(&node, file);
                }
                answer => return answer.map_err(refused),
            }
        }
    }

    pub(super) fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        let node = self.metadata.nodes().get(ino)?;
        self.write_to(&node, offset, data)
    }

    fn write_to(&self, node: &Node, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        let written = u32::try_from(data.len()).map_err(|_| Refused::new(libc::EINVAL))?;
        let end = offset.checked_add(data.len() as u64).ok_or_else(|| Refused::new(libc::EFBIG))?;
        let here = node.lock().file.writes.clone();
        if let Some(here) = here {
            return write_plain(&here, offset, data).map(|()| written);
        }
        // A close of another descriptor of this open would end it.
        let _using = node.using();
        let file = self.opens.usable(node, true)?;
        let answer = self.metadata.lanes().write(file, offset, data);
        let mut state = node.lock();
        match answer {
            Ok(()) => {
                let size = state.file.size.unwrap_or(state.seen.size);
                state.file.size = Some(size.max(end));
                state.file.times = None;
                Ok(written)
            }
            Err(lost) => {
                state.file.failed = Some(lost.errno);
                Err(refused(lost))
            }
        }
    }

    /// At the end as this host knows it.
    pub(super) fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        let node = self.metadata.nodes().get(ino)?;
        let _one_after_the_other = node.appending.lock().unwrap_or_else(PoisonError::into_inner);
        let (here, size) = {
            let state = node.lock();
            (state.file.writes.clone(), state.file.size.unwrap_or(state.seen.size))
        };
        let end = match here {
            Some(here) => super::open_file::Plain::of(here).map_err(|error| system(&error))?.size,
            None => size,
        };
        self.write_to(&node, end, data)
    }

    /// Of an open file, or of one that is opened for it.
    pub(super) fn truncate(&self, node: &Arc<Node>, len: u64) -> Result<(), Refused> {
        let (writes, has_writers) = {
            let state = node.lock();
            (state.file.writes.clone(), state.file.has_writers())
        };
        if let Some(here) = writes {
            return rustix::fs::ftruncate(here, len).map_err(errno);
        }
        if !has_writers {
            return self.truncate_closed(node, len);
        }
        let _using = node.using();
        let file = self.opens.usable(node, true)?;
        self.metadata.lanes().truncate(file, len).map_err(refused)?;
        node.lock().file.size = Some(len);
        Ok(())
    }

    fn truncate_closed(&self, node: &Node, len: u64) -> Result<(), Refused> {
        let path = self.metadata.nodes().path(node.ino)?;
        let request = Request::Open { path, write: true, truncate: len == 0 };
        let opened = self
            .metadata
            .lanes()
            .open(&request)
            .map_err(|lost| self.metadata.gone(refused(lost)))?;
        if opened.stat.ino != node.gfarm {
            self.opens.close_quietly(opened.file);
            return Err(self.metadata.replaced("another host put another file there"));
        }
        self.metadata.lanes().close(opened.file, Some(len)).map_err(refused)
    }

    pub(super) fn sync(&self, ino: InodeId) -> Result<(), Refused> {
        let node = self.metadata.nodes().get(ino)?;
        let (here, failed, has_writers) = {
            let mut state = node.lock();
            let file = &mut state.file;
            (file.writes.clone(), file.failed.take(), file.has_writers())
        };
        if let Some(errno) = failed {
            return Err(Refused::because(errno, "bytes that were written are lost"));
        }
        if let Some(here) = here {
            return rustix::fs::fsync(here).map_err(errno);
        }
        if !has_writers || node.lock().file.untouched {
            return Ok(()); // a directory, a file that nobody writes, or one that has no bytes yet
        }
        // Also when a close has told of what was written: the bytes may still be in memory where they are.
        let _using = node.using();
        let file = self.opens.usable(&node, true)?;
        self.metadata.lanes().sync(file).map_err(refused)
    }

    pub(super) fn allocate(
        &self,
        ino: InodeId,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Result<(), Refused> {
        let node = self.metadata.nodes().get(ino)?;
        let Some(here) = node.lock().file.writes.clone() else {
            return Err(Refused::because(libc::EOPNOTSUPP, "the file is on another host"));
        };
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        rustix::fs::fallocate(here, mode, offset, len).map_err(errno)
    }
}

/// Another open may do.
fn is_out_of_reach(lost: &Lost) -> bool {
    lost.broken || matches!(lost.errno, libc::EHOSTUNREACH | libc::ETIMEDOUT | libc::ESTALE)
}

fn errno(errno: Errno) -> Refused {
    Refused::new(errno.raw_os_error())
}

fn read_plain(file: &OwnedFd, offset: u64, len: u32) -> Result<Vec<u8>, Refused> {
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file, &mut bytes[done..], offset + done as u64) {
            Err(Errno::INTR) => {}
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) => return Err(errno(error)),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn write_plain(file: &OwnedFd, offset: u64, data: &[u8]) -> Result<(), Refused> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Refused::new(libc::EIO)),
            Ok(count) => done += count,
            Err(error) => return Err(errno(error)),
        }
    }
    Ok(())
}
