//! Bytes between a process's arena and the parts of a file, wherever they are.

use std::rc::Rc;

use hayase_layout::{InodeId, Layout, LocalOffset, ServerId};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{
    Gathered, InodeRequest, MachineLife, NodeReply, PartRef, PartRequest, PeerReply, PeerRequest,
    Refused, SlotRange,
};
use tokio::time::Instant;

use super::Served;
use crate::clients::Process;
use crate::convert::{part_id, part_refused};
use crate::data::ranges::Beside;
use crate::files::Known;
use crate::limits::STALE_RETRIES;
use crate::node::Node;
use crate::refusals::too_late;
use crate::refusals::{libc_errno, refusal, unexpected};

/// The most of a copy within one node for which other writes of the place wait.
const COPY_HELD: u64 = 64 << 20;

/// One step of a copy inside the servers.
const COPY_STEP: usize = hayase_wire::message::PAYLOAD_BYTES_MAX;

/// Gathered bytes on their way to their home: they get older while they wait here.
#[derive(Clone, Copy)]
struct Ageing {
    /// As their mount said.
    after: Gathered,
    /// When it said so.
    since: Instant,
}

impl Ageing {
    /// As it is by now.
    fn now(self) -> Gathered {
        Gathered { age: self.after.age.saturating_add(self.since.elapsed()), ..self.after }
    }
}

/// A call that a truncate overtook is repeated as a whole.
pub(crate) enum Attempt<T> {
    Done(T),
    Stale,
}

impl Node {
    pub(super) async fn read(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        offset: u64,
        into: SlotRange,
    ) -> Served {
        let target = || Self::slot(process, into).map(boxed);
        let (slot, read) = self.read_file(ino, offset, into.len as usize, target).await?;
        drop(slot);
        Ok(NodeReply::Count(read as u32))
    }

    /// Reads into the first `len` bytes of a buffer that `target` makes; short only at the end of
    /// the file.
    pub(super) async fn read_file(
        self: &Rc<Self>,
        ino: InodeId,
        offset: u64,
        len: usize,
        target: impl Fn() -> Result<BoxBuffer, Refused>,
    ) -> Result<(BoxBuffer, usize), Refused> {
        let mut file = self.file(ino).await?;
        for _ in 0..STALE_RETRIES {
            let mut buffer = target()?;
            let attempt = match &*file.layout {
                Layout::Whole => {
                    let (home, part) = (ino.home(), file.part(ino, 0));
                    self.read_remote_or_here(home, part, LocalOffset(offset), len, buffer).await?
                }
                Layout::Striped { .. } => {
                    let bytes = &mut (*buffer).as_mut()[..len];
                    match self.read_striped(ino, &file, offset, bytes).await? {
                        Attempt::Done(read) => Attempt::Done((buffer, read)),
                        Attempt::Stale => Attempt::Stale,
                    }
                }
                Layout::Recorded { .. } => {
                    let bytes = &mut (*buffer).as_mut()[..len];
                    match self.read_recorded(ino, offset, bytes).await? {
                        Attempt::Done(read) => Attempt::Done((buffer, read)),
                        Attempt::Stale => Attempt::Stale,
                    }
                }
                _ => return Err(Refused::new(libc_errno::EINVAL)),
            };
            match attempt {
                Attempt::Done(done) => return Ok(done),
                Attempt::Stale => file = self.file_anew(ino).await?,
            }
        }
        Err(overtaken())
    }

    /// Bytes of one part, from this server or another, into `buffer`, which comes back.
    pub(super) async fn read_remote_or_here(
        self: &Rc<Self>,
        server: ServerId,
        part: PartRef,
        offset: LocalOffset,
        len: usize,
        buffer: BoxBuffer,
    ) -> Result<Attempt<(BoxBuffer, usize)>, Refused> {
        let is_here = part.ino.home() == self.me && self.cache.is_here(part.ino);
        if server == self.me && part.index == 0 && is_here {
            let found = self.data.parts.get(part_id(part));
            if let Ok(found) = found {
                return self
                    .data
                    .read_into(self, found, offset, len, buffer)
                    .await
                    .map(Attempt::Done);
            }
        }
        let request = PeerRequest::from(PartRequest::Read { part, offset, len: len as u32 });
        let served = if server == self.me {
            let served = Rc::clone(self).serve_here(self.node, request, None).await;
            // Bytes were read into a slot of the pool: one copy more, on the rare path.
            return self.copied(served, buffer);
        } else {
            self.rpc.call(server, &request, None, Some(buffer)).await?
        };
        match refusal(served.reply)? {
            PeerReply::Count(0) => Ok(Attempt::Done((Box::new(Vec::new()), 0))),
            PeerReply::Count(read) => match served.payload {
                Some((buffer, len)) if len as u64 == read => Ok(Attempt::Done((buffer, len))),
                _ => Err(Refused::because(libc_errno::EIO, "a read came without its bytes")),
            },
            PeerReply::Stale => Ok(Attempt::Stale),
            other => Err(unexpected(&other)),
        }
    }

    fn copied(
        &self,
        served: crate::rpc::peers::Served,
        mut buffer: BoxBuffer,
    ) -> Result<Attempt<(BoxBuffer, usize)>, Refused> {
        match refusal(served.reply)? {
            PeerReply::Stale => return Ok(Attempt::Stale),
            PeerReply::Count(_) => {}
            other => return Err(unexpected(&other)),
        }
        let Some((bytes, len)) = served.payload else { return Ok(Attempt::Done((buffer, 0))) };
        (*buffer).as_mut()[..len].copy_from_slice(&(*bytes).as_ref()[..len]);
        Ok(Attempt::Done((buffer, len)))
    }

    pub(super) async fn write(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        offset: u64,
        from: SlotRange,
    ) -> Served {
        self.rpc.meet_home(ino).await?;
        let source = || {
            self.clients.check_writable(process, ino)?;
            Self::slot(process, from).map(boxed)
        };
        self.write_file(ino, (offset, from.len as usize), None, source).await?;
        Ok(NodeReply::Count(from.len))
    }

    /// Bytes that a mount has gathered.
    pub(super) async fn write_gathered(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        offset: u64,
        from: SlotRange,
        after: Gathered,
    ) -> Served {
        let gathered = Ageing { after, since: Instant::now() };
        self.rpc.meet_home(ino).await?;
        let _on_its_way = self.handing_on.begin(ino);
        let source = || {
            self.clients.check_writable(process, ino)?;
            match process.mount && self.clients.takes_gathered(ino) {
                true => Self::slot(process, from).map(boxed),
                false => Err(too_late()),
            }
        };
        self.write_file(ino, (offset, from.len as usize), Some(gathered), source).await?;
        Ok(NodeReply::Count(from.len))
    }

    /// Writes the first `len` bytes of a buffer that `source` makes for each attempt, all of them or none
    /// is said.
    async fn write_file(
        self: &Rc<Self>,
        ino: InodeId,
        (offset, len): (u64, usize),
        gathered: Option<Ageing>,
        source: impl Fn() -> Result<BoxBuffer, Refused>,
    ) -> Result<(), Refused> {
        if len == 0 {
            return Ok(());
        }
        let mut file = self.file(ino).await?;
        for _ in 0..STALE_RETRIES {
            let buffer = source()?;
            let attempt = match &*file.layout {
                Layout::Whole => {
                    let (part, offset) = (file.part(ino, 0), LocalOffset(offset));
                    let trunc_epoch = file.trunc_epoch;
                    let request = match gathered {
                        None => PartRequest::Write { part, offset, trunc_epoch },
                        Some(gathered) => {
                            let after = gathered.now();
                            PartRequest::WriteGathered { part, offset, trunc_epoch, after }
                        }
                    };
                    self.write_remote_or_here(ino.home(), (ino, &file), request, (buffer, len))
                        .await
                }
                Layout::Striped { .. } if gathered.is_none() => {
                    self.write_striped(ino, &file, offset, &(*buffer).as_ref()[..len]).await
                }
                _ => Err(Refused::new(libc_errno::EINVAL)),
            };
            match attempt? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Stale => file = self.file_anew(ino).await?,
            }
        }
        Err(overtaken())
    }

    pub(super) async fn write_remote_or_here(
        self: &Rc<Self>,
        server: ServerId,
        (ino, file): (InodeId, &Known),
        request: PartRequest,
        bytes: (BoxBuffer, usize),
    ) -> Result<Attempt<()>, Refused> {
        let request = PeerRequest::from(request);
        let served = if server == self.me {
            Rc::clone(self).serve_here(self.node, request, Some(bytes)).await
        } else {
            self.rpc.call(server, &request, Some(bytes), None).await?
        };
        match refusal(served.reply)? {
            PeerReply::Written(life) => {
                // Of these the server itself keeps account, durably ([`crate::data::unsynced`]).
                let is_noted = ino.is_cached() && matches!(&*file.layout, Layout::Striped { .. });
                if !is_noted {
                    self.written_by(server, ino, life);
                }
                Ok(Attempt::Done(()))
            }
            PeerReply::Stale => Ok(Attempt::Stale),
            other => Err(unexpected(&other)),
        }
    }

    /// A server has taken what this node wrote. Here it goes with the process that wrote it.
    fn written_by(&self, server: ServerId, ino: InodeId, life: MachineLife) {
        if server != self.me {
            let is_open = |ino| self.clients.open_here(ino).write;
            self.unsynced_elsewhere.written(ino, (server, life), is_open);
        }
    }

    /// fsync(2) of a process here.
    pub(super) async fn fsync_for(self: &Rc<Self>, ino: InodeId, data_only: bool) -> Served {
        let asked = self.unsynced_elsewhere.asked(ino);
        let lives = match self.rpc.ask(ino.home(), InodeRequest::Fsync { ino, data_only }).await? {
            PeerReply::Synced(lives) => lives,
            other => return Err(unexpected(&other)),
        };
        if !self.unsynced_elsewhere.synced(ino, asked, &lives) {
            let why =
                "a node lost power, and with it what was written here since the last fsync(2)";
            return Err(Refused::because(libc_errno::EIO, why));
        }
        self.sync_to_tier(ino).await?;
        Ok(NodeReply::Done)
    }

    pub(super) async fn append(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        from: SlotRange,
    ) -> Served {
        self.rpc.meet_home(ino).await?;
        let len = from.len as usize;
        let mut file = self.file(ino).await?;
        for _ in 0..STALE_RETRIES {
            self.clients.check_writable(process, ino)?;
            let buffer = boxed(Self::slot(process, from)?);
            let attempt = match &*file.layout {
                Layout::Whole => self.append_at_home(ino, (buffer, len)).await,
                Layout::Striped { .. } => {
                    self.append_striped(ino, &file, &(*buffer).as_ref()[..len]).await
                }
                _ => Err(Refused::new(libc_errno::EINVAL)),
            };
            match attempt? {
                Attempt::Done(offset) => return Ok(NodeReply::Offset(offset)),
                Attempt::Stale => file = self.file_anew(ino).await?,
            }
        }
        Err(overtaken())
    }

    async fn append_at_home(
        self: &Rc<Self>,
        ino: InodeId,
        bytes: (BoxBuffer, usize),
    ) -> Result<Attempt<u64>, Refused> {
        let request = PeerRequest::from(PartRequest::Append { ino });
        let served = if ino.home() == self.me {
            Rc::clone(self).serve_here(self.node, request, Some(bytes)).await
        } else {
            self.rpc.call(ino.home(), &request, Some(bytes), None).await?
        };
        match refusal(served.reply)? {
            PeerReply::Appended { offset, life } => {
                self.written_by(ino.home(), ino, life);
                Ok(Attempt::Done(offset))
            }
            PeerReply::Stale => Ok(Attempt::Stale),
            other => Err(unexpected(&other)),
        }
    }

    /// Both parts here: the local file system copies (and may share blocks). Else through a buffer.
    pub(super) async fn copy_range(
        self: &Rc<Self>,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Served {
        let (source, target) = (self.file(from.0).await?, self.file(to.0).await?);
        let here = |ino: InodeId, file: &Known| {
            ino.home() == self.me && *file.layout == Layout::Whole && self.cache.is_here(ino)
        };
        if here(from.0, &source) && here(to.0, &target) {
            let part = |ino, file: &Known| {
                self.data.parts.get(part_id(file.part(ino, 0))).map_err(part_refused)
            };
            let (source, target) = (part(from.0, &source)?, part(to.0, &target)?);
            // Whoever waits for the range waits for no more than this; copy_file_range(2) may be short.
            let len = len.min(COPY_HELD);
            let _range = self.data.ranges.begin(target.id(), to.1..to.1 + len, Beside::None).await;
            self.data.kept_room.copied(from.0, to.0);
            let work =
                move || source.copy_range_to(from.1, &*target, to.1, len).map_err(part_refused);
            let copied = self.data.disk.run(work).await?;
            return Ok(NodeReply::Count(copied as u32));
        }
        let step = (len as usize).min(COPY_STEP);
        let bounce = || Ok::<BoxBuffer, Refused>(Box::new(vec![0; step]));
        let (bytes, read) = self.read_file(from.0, from.1, step, bounce).await?;
        let copy = || Ok::<BoxBuffer, Refused>(Box::new((*bytes).as_ref()[..read].to_vec()));
        self.write_file(to.0, (to.1, read), None, copy).await?;
        Ok(NodeReply::Count(read as u32))
    }
}

fn boxed(slot: crate::lent::LentSlot) -> BoxBuffer {
    Box::new(slot)
}

fn overtaken() -> Refused {
    Refused::because(libc_errno::EIO, "truncates of this file overtook the call too often")
}
