//! The bytes of one version of a file, in order, in large pieces, whatever its layout.
//!
//! A `Whole` file is read from its part by the thread that sends it. A striped one is gathered from all its servers
//! while the piece before is being sent: each of them is asked for [`PAYLOAD_BYTES_MAX`] at a time where the stripes
//! allow it, all at once. Of a recorded one its home looks up which part of which writer has the next piece, in the
//! order of the file, however small the blocks were that were written. Not here: whether the file stood still meanwhile, and what becomes of the bytes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use hayase_layout::{InodeId, Layout, LocalOffset, WriterId};
use hayase_store::namespace::Inode;
use hayase_store::{LedgerRecord, Part, PartStat, Parts};
use hayase_wire::message::{PAYLOAD_BYTES_MAX, Refused};

use crate::convert::part_refused;
use crate::convert::{is_missing, whole_part};
use crate::files::Known;
use crate::limits::FLUSH_BYTES;
use crate::node::Node;
use crate::node_service::Attempt;
use crate::recorded::Shown;
use crate::refusals::libc_errno;

/// Where the bytes of a version come from.
pub(crate) enum Source {
    /// One part on this node.
    Here(PartSource),
    /// Parts on several nodes.
    Spread(SpreadSource),
    /// Parts of several writers.
    Recorded(RecordedSource),
}

impl Source {
    /// Size and times of what is sent, known before the first byte is read.
    pub(crate) fn stat(&self) -> PartStat {
        match self {
            Self::Here(source) => source.stat,
            Self::Spread(source) => source.stat,
            Self::Recorded(source) => source.stat,
        }
    }

    /// Nothing that is written meanwhile is in it.
    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self, Self::Here(source) if source.snapshot.is_some())
    }
}

/// The part of a `Whole` file.
pub(crate) struct PartSource {
    part: Part,
    /// The part as it was at one moment, while it goes on being written.
    snapshot: Option<File>,
    pub(crate) stat: PartStat,
}

impl PartSource {
    /// A part that nobody should be writing.
    pub(crate) fn still(part: Part) -> Result<Self, Refused> {
        let stat = part.stat().map_err(part_refused)?;
        Ok(Self { part, snapshot: None, stat })
    }

    /// A part that somebody may be writing: frozen where the storage can do that. Costs a write-back of
    /// what the kernel holds of it.
    fn as_it_stands(part: Part) -> Result<Self, Refused> {
        // Before it is frozen: what is written between the two is told as newer, never as sent.
        let stat = part.stat().map_err(part_refused)?;
        let Some(snapshot) = part.snapshot().map_err(part_refused)? else {
            // A page that is dirty already may be written through a mapping without another time.
            part.sync(true).map_err(part_refused)?;
            return Self::still(part);
        };
        let snapshot = File::from(snapshot);
        let size = snapshot.metadata().map_err(|error| io_refused(&error))?.len();
        Ok(Self { part, snapshot: Some(snapshot), stat: PartStat { size, ..stat } })
    }

    /// Whether what was read is what was written, as far as the storage has told.
    pub(crate) fn check_written(&self) -> Result<(), Refused> {
        self.part.check_written().map_err(part_refused)
    }

    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Refused> {
        match &self.snapshot {
            None => self.part.read_at(LocalOffset(offset), buffer).map_err(part_refused),
            Some(snapshot) => {
                snapshot.read_exact_at(buffer, offset).map_err(|error| io_refused(&error))?;
                Ok(buffer.len())
            }
        }
    }
}

fn io_refused(error: &std::io::Error) -> Refused {
    Refused::because(error.raw_os_error().unwrap_or(libc_errno::EIO), error.to_string())
}

/// The part that holds a file.
pub(crate) fn part_of(parts: &Parts, ino: InodeId) -> Result<Part, Refused> {
    parts.get(whole_part(ino, 0)).map_err(|error| match is_missing(&error) {
        true => {
            let why =
                "its part is not there: lost with the power of the node before fsync(2), or removed";
            Refused::because(libc_errno::ENODATA, why)
        }
        false => part_refused(error),
    })
}

/// A recorded file of this home, as one publication shows it.
pub(crate) struct RecordedSource {
    pub(super) ino: InodeId,
    pub(super) shown: Rc<Shown>,
    /// Whose parts were read so far.
    pub(super) read: RefCell<BTreeSet<WriterId>>,
    stat: PartStat,
}

/// The parts of a striped file of this home.
pub(crate) struct SpreadSource {
    ino: InodeId,
    file: Known,
    /// Bytes that are asked for together.
    step: u64,
    pub(crate) stat: PartStat,
}

impl SpreadSource {
    fn of(inode: &Inode, stripe: u64, width: usize) -> Self {
        let file = Known {
            layout: Rc::new(inode.layout.clone()),
            layout_epoch: inode.layout_epoch,
            trunc_epoch: inode.trunc_epoch,
        };
        Self { ino: inode.ino, file, step: step_of(stripe, width as u64), stat: stat_of(inode) }
    }
}

/// Bytes of a file that are at most [`PAYLOAD_BYTES_MAX`] of each of its servers, wherever they begin.
fn step_of(stripe: u64, width: u64) -> u64 {
    let most = PAYLOAD_BYTES_MAX as u64;
    match most.is_multiple_of(stripe) {
        true => most * width,
        false => most,
    }
}

/// Size and times of a file on several nodes, as a part would tell them.
pub(super) fn stat_of(inode: &Inode) -> PartStat {
    PartStat {
        size: inode.size,
        blocks: 0,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
    }
}

impl Node {
    /// As the names say, which the ledger follows; it outlives a file that nobody had synced.
    pub(super) fn layout_for_flush(&self, record: &LedgerRecord) -> Layout {
        self.meta.inode(record.ino).map_or_else(|_| record.layout.clone(), |inode| inode.layout)
    }

    /// What is read for a flush: of a part that somebody may go on writing, a snapshot. A striped file's parts are durable
    /// from here on, or it is refused: what a power cut took of one of them is not sent as if it was the file.
    pub(super) async fn source(
        self: &Rc<Self>,
        (ino, layout): (InodeId, &Layout),
        is_written: bool,
    ) -> Result<Source, Refused> {
        if let Layout::Striped { stripe, servers } = layout {
            let inode = self.meta.spread_inode(ino)?;
            // Its size and time here are of bytes that are in the parts by now.
            let source = SpreadSource::of(&inode, stripe.get(), servers.len());
            self.sync_parts(&inode, false).await?;
            self.meta.durable().await?;
            return Ok(Source::Spread(source));
        }
        if let Layout::Recorded { .. } = layout {
            return self.recorded_source(ino).await.map(Source::Recorded);
        }
        let part = part_of(&self.data.parts, ino)?;
        if !is_written {
            return PartSource::still(part).map(Source::Here);
        }
        self.data.disk.run(move || PartSource::as_it_stands(part)).await.map(Source::Here)
    }

    /// Size and times of a file of this home as they are now.
    pub(super) fn stat_for_flush(
        &self,
        (ino, layout): (InodeId, &Layout),
    ) -> Result<PartStat, Refused> {
        match layout {
            Layout::Striped { .. } | Layout::Recorded { .. } => {
                Ok(stat_of(&self.meta.spread_inode(ino)?))
            }
            _ => part_of(&self.data.parts, ino)?.stat().map_err(part_refused),
        }
    }

    async fn recorded_source(self: &Rc<Self>, ino: InodeId) -> Result<RecordedSource, Refused> {
        let overtaken =
            || Refused::because(libc_errno::EAGAIN, "it changed while it was looked at");
        self.meta.spread_inode(ino)?;
        let shown = self.shown(ino).await?.ok_or_else(overtaken)?;
        let inode = self.meta.spread_inode(ino)?;
        match inode.trunc_epoch == shown.trunc_epoch {
            true => {
                self.recorded.refuse_broken(ino, shown.trunc_epoch)?;
                let (stat, read) = (stat_of(&inode), RefCell::default());
                Ok(RecordedSource { ino, shown, read, stat })
            }
            false => Err(overtaken()),
        }
    }

    /// The bytes of a file on several nodes from `offset` on, [`FLUSH_BYTES`] at most; fewer where it became shorter,
    /// and none when a truncate came in between.
    pub(super) async fn gather_piece(
        self: &Rc<Self>,
        source: &Source,
        offset: u64,
    ) -> Result<Vec<u8>, Refused> {
        match source {
            Source::Here(_) => {
                Err(Refused::because(libc_errno::EIO, "its part is read where it is"))
            }
            Source::Spread(source) => self.gather_stripes(source, offset).await,
            Source::Recorded(RecordedSource { shown, read, .. }) => {
                let len = FLUSH_BYTES.min(shown.size.saturating_sub(offset));
                let mut bytes = vec![0; len as usize];
                let mut from = |writer| {
                    read.borrow_mut().insert(writer);
                };
                self.read_shown(shown, offset, &mut bytes, &mut from).await?;
                Ok(bytes)
            }
        }
    }

    async fn gather_stripes(
        self: &Rc<Self>,
        source: &SpreadSource,
        offset: u64,
    ) -> Result<Vec<u8>, Refused> {
        let end = (offset + FLUSH_BYTES).min(source.stat.size);
        let mut reads = Vec::new();
        let mut start = offset;
        while start < end {
            let len = source.step.min(end - start) as usize;
            let (this, ino, file) = (Rc::clone(self), source.ino, source.file.clone());
            reads.push(tokio::task::spawn_local(async move {
                let mut bytes = vec![0; len];
                match this.read_striped(ino, &file, start, &mut bytes).await? {
                    Attempt::Done(read) => bytes.truncate(read),
                    Attempt::Stale => bytes.clear(),
                }
                Ok::<_, Refused>(bytes)
            }));
            start += len as u64;
        }
        let (mut gathered, mut is_short) = (Vec::with_capacity((end - offset) as usize), false);
        for (read, number) in reads.into_iter().zip(1..) {
            let bytes = read.await.map_err(|_| Refused::new(libc_errno::EIO))??;
            if !is_short {
                gathered.extend_from_slice(&bytes);
            }
            let wanted = (number * source.step).min(end - offset);
            is_short |= (gathered.len() as u64) < wanted;
        }
        Ok(gathered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_asked_for_as_much_as_a_message_holds() {
        const MIB: u64 = PAYLOAD_BYTES_MAX as u64;
        assert_eq!(step_of(64 << 10, 3), 3 * MIB);
        assert_eq!(step_of(MIB, 4), 4 * MIB);
        assert_eq!(step_of(4 * MIB, 4), MIB);
        assert_eq!(step_of(3 << 16, 4), MIB);
    }
}
