//! Homes of files of which the mount of one node gathers small writes: who may, room for them, their arrival, and
//! who waits for them.

use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{InodeId, Layout, LocalOffset, NodeId};
use hayase_store::namespace::Time;
use hayase_store::{Part, SetTime};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{Gathered, PAYLOAD_BYTES_MAX, PartRef, PeerReply, Refused};

use super::Answer;
use crate::convert::{part_id, part_refused, stored_time};
use crate::data::LocalUsers;
use crate::data::ranges::Beside;
use crate::limits::TIME_TICK;
use crate::node::Node;
use crate::refusals::libc_errno;
use crate::refusals::{not_now, too_late};

/// In a second.
const NANOS: i128 = 1_000_000_000;

/// The time `age` before `now`.
fn before(now: Time, age: Duration) -> Time {
    let nanos = i128::from(now.seconds) * NANOS + i128::from(now.nanos);
    let nanos = nanos - i128::try_from(age.as_nanos()).unwrap_or(0);
    let (seconds, nanos) = (nanos.div_euclid(NANOS), nanos.rem_euclid(NANOS));
    Time { seconds: i64::try_from(seconds).unwrap_or(0), nanos: nanos as u32 }
}

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
        let inode = self.meta.inode(ino)?;
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
        let part = self.data.whole(&inode)?;
        let _held = self.data.direct.hold(ino).await;
        let _range = self.data.ranges.begin(part.id(), 0..u64::MAX, Beside::None).await;
        let room = self.data.keep_room(&part, at, len.into()).await;
        match room {
            Ok(room) if self.homes.gather(ino, from) => {
                self.keep_late();
                self.homes.late.until_durable(&self.meta.disk).await;
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

    /// Bytes that a mount of `from` has gathered.
    pub(super) async fn write_gathered_part(
        self: &Rc<Self>,
        from: NodeId,
        (part, offset, trunc_epoch): (PartRef, LocalOffset, u32),
        bytes: (BoxBuffer, usize),
        after: Gathered,
    ) -> Answer {
        let ino = part.ino;
        let written = before(stored_time(self.meta.now()), after.age);
        // One that its mount has given up to wait for may still be on its way.
        self.handed_on.until_settled(ino).await;
        if !self.homes.takes_gathered(ino, from) {
            return Err(too_late());
        }
        self.homes.gatherer_came(ino);
        let _on_its_way = self.handed_on.begin(ino);
        let target = self.data.parts.get(part_id(part)).map_err(part_refused)?;
        let earlier = target.stat().map_err(part_refused)?.mtime;
        let len = bytes.1 as u64;
        let done = self.write_part(part, offset, trunc_epoch, bytes).await?;
        self.activity.bytes_gathered(len);
        if after.is_last && self.data.kept_room.has(ino) {
            let _held = self.data.direct.hold(ino).await;
            let _range = self.data.ranges.begin(target.id(), 0..u64::MAX, Beside::None).await;
            self.give_back_room(&target).await;
        }
        if after.age >= TIME_TICK && matches!(done, PeerReply::Written(_)) {
            self.put_time_back(&target, earlier, written);
        }
        Ok(done)
    }

    /// The time of a file whose last bytes were `written` a while ago, and which had the time `earlier` before they came;
    /// one that lay ahead of us does not stay.
    fn put_time_back(&self, part: &Part, earlier: Time, written: Time) {
        let now = stored_time(self.meta.now());
        let written = if earlier > now { written } else { earlier.max(written) };
        if let Err(error) = part.set_times(None, Some(SetTime::To(written))) {
            tracing::warn!(ino = %part.id().ino, %error, "its time is that at which its bytes came");
        }
    }

    /// Unless a program of this node has its descriptor: then until the next time.
    async fn give_back_room(&self, part: &Part) {
        if !self.homes.has_local_users(part.id().ino) {
            self.data.give_back_room(part).await;
        }
    }

    /// Nobody gathers this file any more: what was kept for it goes, before others are let at the file.
    pub(crate) fn end_room(self: &Rc<Self>, ino: InodeId) {
        if !self.data.kept_room.has(ino) {
            return;
        }
        let (this, others_wait) = (Rc::clone(self), self.handed_on.begin(ino));
        tokio::task::spawn_local(async move {
            let part = this.meta.inode(ino).and_then(|inode| this.data.whole(&inode));
            if let Ok(part) = part {
                let _held = this.data.direct.hold(ino).await;
                let _range = this.data.ranges.begin(part.id(), 0..u64::MAX, Beside::None).await;
                // It may have begun again.
                if !this.homes.is_gathered(ino) {
                    this.give_back_room(&part).await;
                }
            }
            drop(others_wait);
        });
    }
}
