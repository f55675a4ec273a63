//! Reading recorded files, and what programs of this node do with them.
//!
//! A read asks the home which publication is the last, finds in its index where the bytes lie, and reads
//! the parts, which are files like others.
//! Not here: the home ([`crate::peer_service`]), what is kept ([`crate::recorded`]).

use std::rc::Rc;

use hayase_container::{PartRead, part_reads};
use hayase_layout::{ByteCount, Extent, GlobalOffset, InodeId, WriterId};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{
    FileRequest, NodeReply, PAYLOAD_BYTES_MAX, PeerReply, RecordedStep, Refused,
};

use super::Served;
use super::read_write::Attempt;
use crate::boxed::Local;
use crate::limits::{FLATTEN_ROUNDS_MAX, PART_READS_AT_ONCE, STALE_RETRIES};
use crate::node::Node;
use crate::recorded::Shown;
use crate::refusals::{libc_errno, unexpected};

impl Node {
    /// What a program asks for, of the home.
    pub(super) async fn recorded(self: &Rc<Self>, ino: InodeId, step: RecordedStep) -> Served {
        if let RecordedStep::Flatten { keep } = step {
            self.make_whole_at_home(ino, keep).await?;
            return Ok(NodeReply::Done);
        }
        let answer = self.rpc.ask(ino.home(), FileRequest::Recorded { ino, step }).await;
        self.files.forget(ino);
        match answer? {
            PeerReply::Done => Ok(NodeReply::Done),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until a recorded file is a whole one, however long that takes.
    pub(super) async fn make_whole_at_home(
        self: &Rc<Self>,
        ino: InodeId,
        keep: Option<u64>,
    ) -> Result<(), Refused> {
        for _ in 0..FLATTEN_ROUNDS_MAX {
            let request = FileRequest::Recorded { ino, step: RecordedStep::Flatten { keep } };
            match self.rpc.ask(ino.home(), request).await? {
                PeerReply::Done => {
                    self.files.forget(ino);
                    return Ok(());
                }
                PeerReply::Stale => {}
                other => return Err(unexpected(&other)),
            }
        }
        Err(Refused::because(libc_errno::EIO, "making it one whole file does not come to an end"))
    }

    pub(super) async fn read_recorded(
        self: &Rc<Self>,
        ino: InodeId,
        offset: u64,
        target: &mut [u8],
    ) -> Result<Attempt<usize>, Refused> {
        let Some(shown) = self.shown(ino).await? else { return Ok(Attempt::Stale) };
        match self.read_shown(&shown, offset, target, &mut |_| ()).await {
            Ok(read) => Ok(Attempt::Done(read)),
            // Its parts may have gone because it became something else meanwhile.
            Err(refused) => match self.shown(ino).await? {
                Some(now) if Rc::ptr_eq(&now, &shown) => Err(refused),
                _ => Ok(Attempt::Stale),
            },
        }
    }

    /// The file as its last publication shows it; `None` when it is no recorded file any more.
    pub(crate) async fn shown(self: &Rc<Self>, ino: InodeId) -> Result<Option<Rc<Shown>>, Refused> {
        // Answered to who has no session too: what giving back pages waits for may be this read.
        let last = match self.rpc.ask(ino.home(), FileRequest::SizeOf { ino }).await? {
            PeerReply::Size { trunc_epoch, .. } => trunc_epoch,
            PeerReply::Stale => {
                self.recorded.forget(ino);
                return Ok(None);
            }
            other => return Err(unexpected(&other)),
        };
        let known = self.recorded.shown(ino).filter(|shown| shown.trunc_epoch == last);
        if known.is_some() {
            return Ok(known);
        }
        let Some(shown) = self.fetch_shown(ino).await? else { return Ok(None) };
        let shown = Rc::new(shown);
        self.recorded.show(ino, Rc::clone(&shown));
        Ok(Some(shown))
    }

    async fn fetch_shown(self: &Rc<Self>, ino: InodeId) -> Result<Option<Shown>, Refused> {
        let (mut told, mut of) = (Vec::new(), None);
        for _ in 0..STALE_RETRIES {
            let request = FileRequest::RecordedIndex { ino, from: told.len() as u64 };
            let (epoch, size, total, bytes) = match self.rpc.ask(ino.home(), request).await? {
                PeerReply::RecordedIndex { trunc_epoch, size, total, bytes } => {
                    (trunc_epoch, size, total, bytes)
                }
                PeerReply::Stale => return Ok(None),
                other => return Err(unexpected(&other)),
            };
            if of.replace(epoch).is_some_and(|before| before != epoch) {
                // Published anew between two pieces.
                told.clear();
                of = None;
                continue;
            }
            let is_empty = bytes.is_empty();
            told.extend_from_slice(&bytes);
            if told.len() as u64 >= total || is_empty {
                return Shown::decode(ino, epoch, size, &told).map(Some);
            }
        }
        Err(Refused::because(libc_errno::EIO, "its index changes faster than it can be read"))
    }

    /// Up to the end of the file; holes are zeros. Tells `from` whose parts were read.
    pub(crate) async fn read_shown(
        self: &Rc<Self>,
        shown: &Shown,
        offset: u64,
        target: &mut [u8],
        from: &mut dyn FnMut(WriterId),
    ) -> Result<usize, Refused> {
        let end = shown.size.min(offset.saturating_add(target.len() as u64));
        let Some(len) = end.checked_sub(offset) else { return Ok(0) };
        let target = &mut target[..len as usize];
        target.fill(0);
        let extent = Extent::between(GlobalOffset(offset), GlobalOffset(end))
            .map_err(|error| Refused::because(libc_errno::EFBIG, error.to_string()))?;
        let reads = part_reads(&shown.index, extent, ByteCount(PAYLOAD_BYTES_MAX as u64));
        for some in reads.chunks(PART_READS_AT_ONCE) {
            let started: Vec<_> = some
                .iter()
                .map(|read| Ok((read, tokio::task::spawn_local(self.read_piece(shown, read)?))))
                .collect::<Result<_, Refused>>()?;
            for (read, bytes) in started {
                let bytes = bytes.await.map_err(|_| Refused::new(libc_errno::EIO))??;
                let needed = read.local().len().get();
                if (bytes.len() as u64) < needed {
                    let why = format!(
                        "the part of {:?} ends {} bytes before what was published",
                        read.writer(),
                        needed - bytes.len() as u64
                    );
                    return Err(Refused::because(libc_errno::EIO, why));
                }
                read.scatter(&bytes, target);
                from(read.writer());
            }
        }
        Ok(len as usize)
    }

    fn read_piece(
        self: &Rc<Self>,
        shown: &Shown,
        read: &PartRead,
    ) -> Result<Local<Result<Vec<u8>, Refused>>, Refused> {
        let (writer, local) = (read.writer(), read.local());
        let missing = || {
            let why = format!("the part of {writer:?} is missing");
            Refused::because(libc_errno::EIO, why)
        };
        let part = *shown.parts.get(&writer).ok_or_else(missing)?;
        let read = self.read_bytes(part, local.start().0, local.len().get() as usize);
        Ok(Box::pin(async move {
            // A file that is gone says so by its inode number, which means nothing to a reader.
            read.await.map_err(|refused| match refused.errno {
                libc_errno::ESTALE | libc_errno::ENOENT => {
                    Refused::because(libc_errno::EIO, format!("the part of {writer:?} is gone"))
                }
                _ => refused,
            })
        }))
    }

    /// Bytes of a file of any layout; fewer than asked for only at its end. Boxed: a recorded file is
    /// read by reading its parts.
    pub(crate) fn read_bytes(
        self: &Rc<Self>,
        ino: InodeId,
        offset: u64,
        len: usize,
    ) -> Local<Result<Vec<u8>, Refused>> {
        let this = Rc::clone(self);
        Box::pin(async move {
            let buffer = || Ok::<BoxBuffer, Refused>(Box::new(vec![0; len]));
            let (buffer, read) = this.read_file(ino, offset, len, buffer).await?;
            Ok((*buffer).as_ref()[..read].to_vec())
        })
    }
}
