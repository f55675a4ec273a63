//! Homes of files of which the mount of one node gathers small writes: who may, room for them, their arrival, and
//! who waits for them.

use std::rc::Rc;

use hayase_layout::{InodeId, Layout, LocalOffset, NodeId};
use hayase_store::namespace::Time;
use hayase_store::{Part, PartError, SetTime, Whence};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{Gathered, PAYLOAD_BYTES_MAX, PartRef, PeerReply, Refused, Room};

use super::Answer;
use super::sizes::KEEP_SIZE;
use crate::convert::{part_id, part_refused, stored_time};
use crate::limits::TIME_TICK;
use crate::node::{Node, libc_errno};
use crate::node_service::{not_now, too_late};
use crate::ranges::Beside;

impl Node {
    /// Waits until other nodes have handed on what they have gathered of the file that a request shows or changes.
    pub(super) async fn until_handed_on(self: &Rc<Self>, from: NodeId, looks_at: Option<InodeId>) {
        if let Some(ino) = looks_at
            && ino.home() == self.me
        {
            self.home_look(ino, from).await;
        }
    }

    /// Keeps room for what `from` is going to gather, unless others have to do with the file.
    pub(super) async fn let_gather(
        self: &Rc<Self>,
        from: NodeId,
        ino: InodeId,
        at: Option<u64>,
        len: u32,
    ) -> Answer {
        if len == 0 || len as usize > PAYLOAD_BYTES_MAX {
            let why = format!("{len} bytes to gather: 1 to {PAYLOAD_BYTES_MAX} travel at once");
            return Err(Refused::because(libc_errno::EINVAL, why));
        }
        let inode = self.inode(ino)?;
        if inode.layout != Layout::Whole {
            return Err(not_now());
        }
        self.find_mapping(ino).await;
        // From here on others are let at the file when room has been granted, or given back.
        let _others_wait = self.handed_on.begin(ino);
        if !self.homes.may_gather(ino, from) {
            // An open that another node only keeps for a while shall not prevent it the next time. Where several nodes
            // have the file open it is shared, and none is disturbed.
            let others = self.homes.open_on(ino).into_iter().filter(|node| *node != from);
            let others: Vec<_> = others.collect();
            if others.len() == 1 {
                self.ask_to_let_go(ino, others);
            }
            return Err(not_now());
        }
        let part = self.whole(&inode)?;
        let _held = self.direct.hold(ino).await;
        let _range = self.ranges.begin(part.id(), 0..u64::MAX, Beside::None).await;
        let room = self.keep_room(&part, at, len.into()).await;
        match room {
            Ok(room) if self.homes.gather(ino, from) => {
                self.keep_late();
                self.homes.late.until_durable(&self.names_disk).await;
                // Others may have come meanwhile. Nothing is waited for from here on.
                match self.homes.takes_gathered(ino, from) {
                    true => Ok(PeerReply::Gathering(room)),
                    false => Err(not_now()),
                }
            }
            _ => {
                if !self.homes.is_gathered(ino) {
                    self.give_back_room(&part).await;
                }
                Err(not_now())
            }
        }
    }

    /// Room for a window that ends at a multiple of `len`, or has that length if it begins at the end of the file. Where
    /// there is none, or no telling, each write finds that out for itself. Nobody writes the part meanwhile.
    async fn keep_room(
        self: &Rc<Self>,
        part: &Part,
        at: Option<u64>,
        len: u64,
    ) -> Result<Room, Refused> {
        let ino = part.id().ino;
        let stat = part.stat().map_err(part_refused)?;
        let offset = at.unwrap_or(stat.size);
        let room = at.map_or(len, |at| len - at % len);
        let end = offset.checked_add(room).ok_or_else(not_now)?;
        let in_place = self.area.overwrites_in_place() && !self.kept_room.may_share_bytes(ino);
        let is_older = self.incarnation > 1;
        if offset < stat.size && !in_place || !self.kept_room.begin(ino, end, &stat, is_older) {
            return Err(not_now());
        }
        let (part, size) = (part.clone(), stat.size);
        let work = move || {
            if has_hole(&part, offset, end.min(size)).map_err(part_refused)? {
                return Err(not_now());
            }
            match end > size {
                true => part.allocate(KEEP_SIZE, offset.max(size), end - offset.max(size)),
                false => Ok(()),
            }
            .map_err(|_| not_now())
        };
        let kept = self.disk.run(work).await;
        self.usage_changed();
        kept.map(|()| Room { offset, len: room as u32, size }).map_err(|_| not_now())
    }

    /// Bytes that a mount of `from` has gathered.
    pub(super) async fn write_gathered_part(
        self: &Rc<Self>,
        from: NodeId,
        (part, offset, trunc_epoch): (PartRef, LocalOffset, u32),
        bytes: (BoxBuffer, usize),
        after: Gathered,
    ) -> Answer {
        let ino = part.ino;
        // One that its mount has given up to wait for may still be on its way.
        self.handed_on.until_settled(ino).await;
        if !self.homes.takes_gathered(ino, from) {
            return Err(too_late());
        }
        self.homes.gatherer_came(ino);
        let _on_its_way = self.handed_on.begin(ino);
        let target = self.parts.get(part_id(part)).map_err(part_refused)?;
        let before = target.stat().map_err(part_refused)?.mtime;
        let len = bytes.1 as u64;
        let done = self.write_part(part, offset, trunc_epoch, bytes).await?;
        self.counters.bytes_gathered.set(self.counters.bytes_gathered.get() + len);
        if after.is_last && self.kept_room.has(ino) {
            let _held = self.direct.hold(ino).await;
            let _range = self.ranges.begin(target.id(), 0..u64::MAX, Beside::None).await;
            self.give_back_room(&target).await;
        }
        if after.age >= TIME_TICK {
            self.put_time_back(&target, before, after);
        }
        Ok(done)
    }

    /// The time of a file whose bytes were written a while ago, `before` them; one that lay ahead of us does not stay.
    fn put_time_back(&self, part: &Part, before: Time, after: Gathered) {
        let now = stored_time(self.now());
        let written = self.time_before(after);
        let written = if before > now { written } else { before.max(written) };
        if let Err(error) = part.set_times(None, Some(SetTime::To(written))) {
            tracing::warn!(ino = %part.id().ino, %error, "its time is that at which its bytes came");
        }
    }

    /// When gathered bytes were written.
    fn time_before(&self, after: Gathered) -> Time {
        let now = stored_time(self.now());
        let nanos = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos);
        let nanos = nanos - i128::try_from(after.age.as_nanos()).unwrap_or(0);
        let (seconds, nanos) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
        Time { seconds: i64::try_from(seconds).unwrap_or(0), nanos: nanos as u32 }
    }

    /// Nobody gathers this file any more: what was kept for it goes, before others are let at the file.
    pub(crate) fn end_room(self: &Rc<Self>, ino: InodeId) {
        if !self.kept_room.has(ino) {
            return;
        }
        let (this, others_wait) = (Rc::clone(self), self.handed_on.begin(ino));
        tokio::task::spawn_local(async move {
            let part = this.inode(ino).and_then(|inode| this.whole(&inode));
            if let Ok(part) = part {
                let _held = this.direct.hold(ino).await;
                let _range = this.ranges.begin(part.id(), 0..u64::MAX, Beside::None).await;
                // It may have begun again.
                if !this.homes.is_gathered(ino) {
                    this.give_back_room(&part).await;
                }
            }
            drop(others_wait);
        });
    }

    /// What was kept behind the end of a part, if anything is left of it. Nobody writes it meanwhile: the end would be
    /// another one; and where a program of this node has its descriptor, it stays.
    async fn give_back_room(self: &Rc<Self>, part: &Part) {
        let ino = part.id().ino;
        if self.homes.has_local_users(ino) {
            return; // Until the next time.
        }
        let is_left = part.stat().is_ok_and(|stat| self.kept_room.take(ino, stat.size));
        if !is_left {
            return;
        }
        let part = part.clone();
        let work = move || {
            let stat = part.stat().map_err(part_refused)?;
            part.truncate(stat.size).map_err(part_refused)?;
            // That is no change of the file.
            let time = |time| Some(SetTime::To(time));
            part.set_times(time(stat.atime), time(stat.mtime)).map_err(part_refused)
        };
        if let Err(error) = self.disk.run(work).await {
            tracing::warn!(%ino, %error, "room behind the end of a file could not be given back");
        }
        self.usage_changed();
    }
}

/// Whether some of these bytes, all of them in the file, are not there.
fn has_hole(part: &Part, start: u64, end: u64) -> Result<bool, PartError> {
    let is_before_end = |hole: u64| hole < end;
    Ok(start < end && part.seek(start, Whence::Hole)?.is_some_and(is_before_end))
}
