//! A file of the tier that is about to be changed comes into stripes, where its home alone has no room for it, or
//! its directory says so.
//!
//! The home deals what it reads from the tier out over the parts, several pieces at once. Nobody has the file open
//! meanwhile, and nobody gets it: an open that comes waits, and so does a truncate. Order: the ledger says durably
//! that it is in the tier and striped, which is no state to stay in ([`Node::finish_evictions`]), before the names say
//! that it is striped; the parts are durable before the ledger says that a copy is here. So what is cut short is
//! begun anew, and never taken for the file.
//!
//! Invariant: its parts have a layout epoch that no part of this file ever had: a removal of earlier ones that comes
//! late does not meet them.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{ByteCount, InodeId, Layout};
use hayase_layout::{ServerUse, Wish, place};
use hayase_store::namespace::Inode;
use hayase_store::{FileState, LedgerRecord, TierVersion};
use hayase_tier::{ObjectMeta, Reader, Tier};
use hayase_wire::message::{PAYLOAD_BYTES_MAX, PeerReply, Refused};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::convert::system_time;
use super::fetch::Fetch;
use super::paths::key;
use super::{Cache, tier_refused};
use crate::cache::area::CacheArea;
use crate::convert::whole_part;
use crate::files::Known;
use crate::limits::{FETCH_AHEAD, FETCH_BYTES, FETCH_PAUSE, FETCH_WAIT};
use crate::node::Node;
use crate::node_service::Attempt;
use crate::refusals::libc_errno;

/// Who keeps the file open only for the next open lets go of it within this.
const LET_GO_WAIT: Duration = Duration::from_millis(500);

/// One that is on its way.
#[derive(Default)]
pub(crate) struct Striping {
    /// Of its parts; 0 before the first of them may be there.
    epoch: Cell<u32>,
    ended: RefCell<Option<Result<(), Refused>>>,
    changed: Notify,
}

/// A file in the middle of an open or a truncate.
pub(crate) struct Opening<'a>(&'a CacheArea, InodeId);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(cache) = self.0.of(self.1) {
            let active = cache.active(self.1);
            active.openings.set(active.openings.get().saturating_sub(1));
        }
    }
}

impl Node {
    /// Home, before a file is written: all of it comes into stripes; `None` when it is to lie whole. As long as a
    /// message may take, then `Ready(false)`.
    pub(super) async fn fetch_striped(
        self: &Rc<Self>,
        ino: InodeId,
    ) -> Result<Option<PeerReply>, Refused> {
        let Some(cache) = self.cache.of(ino) else { return Ok(None) };
        if self.give_half_a_copy_up(cache, ino).await? {
            return Ok(Some(PeerReply::Ready(true)));
        }
        let running = cache.active(ino).striping.borrow().clone();
        let striping = match running {
            Some(striping) => striping,
            None => match self.begin_striping(cache, ino).await? {
                Some(striping) => striping,
                None => return Ok(None),
            },
        };
        let ended = async {
            loop {
                let changed = striping.changed.notified();
                if let Some(ended) = striping.ended.borrow().clone() {
                    return ended;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(FETCH_WAIT, ended).await {
            Ok(ended) => ended.map(|()| Some(PeerReply::Ready(true))),
            Err(_) => Ok(Some(PeerReply::Ready(false))),
        }
    }

    /// Whether one was left that could not be given up at its time. It is refused as long as it can not.
    async fn give_half_a_copy_up(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<bool, Refused> {
        let is_left = || {
            let is_coming = cache.active(ino).striping.borrow().is_some();
            self.cache.has_half_a_copy(ino) && !is_coming
        };
        if !is_left() {
            return Ok(false);
        }
        let _held = cache.publishing.lock(ino).await;
        if is_left() {
            self.only_in_tier_again(cache, ino).await?;
        }
        Ok(true)
    }

    async fn begin_striping(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<Option<Rc<Striping>>, Refused> {
        let Some(version) = self.cache.only_in_tier(ino) else { return Ok(None) };
        let Some(layout) = self.stripes_for(cache, ino, version.size).await? else {
            return Ok(None);
        };
        self.ask_to_let_go(ino, self.homes.open_on(ino));
        let until = Instant::now() + LET_GO_WAIT;
        while self.homes.is_open(ino) && Instant::now() < until {
            tokio::time::sleep(FETCH_PAUSE).await;
        }
        let _held = cache.publishing.lock(ino).await;
        let active = cache.active(ino);
        if let Some(striping) = active.striping.borrow().clone() {
            return Ok(Some(striping));
        }
        let record = cache.record(ino).filter(|record| {
            let is_same = record.version == Some(version) && record.layout == Layout::Whole;
            record.state == FileState::InTier && is_same && !record.is_nameless
        });
        let is_fetching = active.fetch.borrow().as_ref().is_some_and(Fetch::is_used);
        let is_used = self.homes.is_open(ino) || active.openings.get() > 0 || is_fetching;
        let Some(record) = record.filter(|_| !is_used) else { return Ok(None) };
        // From here on nobody opens it. What came of it into a whole part is of no use.
        cache.update(ino, |record| record.layout = layout.clone())?;
        *active.fetch.borrow_mut() = None;
        let striping = Rc::<Striping>::default();
        *active.striping.borrow_mut() = Some(Rc::clone(&striping));
        let (this, told) = (Rc::clone(self), Rc::clone(&striping));
        tokio::task::spawn_local(async move {
            let ended = this.stripe((ino, &told), layout.clone(), &record, version).await;
            this.striping_ended((ino, &told), &layout, &ended).await;
            *told.ended.borrow_mut() = Some(ended);
            told.changed.notify_waiters();
        });
        Ok(Some(striping))
    }

    /// Over which servers, when it is to be striped.
    async fn stripes_for(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
        size: u64,
    ) -> Result<Option<Layout>, Refused> {
        let Some((parent, _)) = self.meta.inode(ino)?.name else { return Ok(None) };
        let policy = match parent.home() == self.me {
            true => self.meta.inode(parent)?.policy,
            false => self.entry(parent).await?.attr.policy,
        };
        // A whole copy that is on its way takes room itself: what has begun to come is not asked for again.
        let coming = cache.active(ino).fetch.borrow().clone();
        let needed = coming.map_or(size, |fetch| fetch.bytes_absent());
        if policy.is_none() && needed <= self.data.usage.now().free {
            return Ok(None);
        }
        let row = |(server, usage): (_, hayase_wire::message::AreaUse)| {
            let (total, free) = (ByteCount(usage.total), ByteCount(usage.free));
            ServerUse { server, total, free }
        };
        let table: Vec<_> = self.usage_of_all().await.into_iter().map(row).collect();
        let (local, size, turn) = (Some(self.me), Some(ByteCount(size)), self.turn.get());
        let wish = Wish { local, policy, in_one: false, size, turn };
        let decision = place(&wish, &table)
            .map_err(|error| Refused::because(libc_errno::EINVAL, error.to_string()))?;
        match decision.into_layout() {
            Some(Layout::Striped { stripe, mut servers }) if servers.len() > 1 => {
                // The first part at home, as of all files, if it has one.
                let home = servers.iter().position(|server| *server == self.me);
                servers.rotate_left(home.unwrap_or(0));
                Ok(Some(Layout::Striped { stripe, servers }))
            }
            _ => Ok(None),
        }
    }

    /// All bytes, and the ledger that says so.
    async fn stripe(
        self: &Rc<Self>,
        (ino, striping): (InodeId, &Striping),
        layout: Layout,
        record: &LedgerRecord,
        version: TierVersion,
    ) -> Result<(), Refused> {
        let cache = self.cache.need()?;
        cache.ledger_durable().await?;
        self.data.parts.remove(whole_part(ino, 0)).map_err(crate::convert::part_refused)?;
        let inode = self.meta.change_inode(ino, |inode| {
            inode.trunc_epoch += 1;
            (inode.layout, inode.layout_epoch) = (layout, inode.trunc_epoch);
            (inode.size, inode.mtime) = (version.size, version.mtime);
        })?;
        striping.epoch.set(inode.layout_epoch);
        self.files.forget(ino);
        // The epoch is never given twice, also after a power cut.
        self.meta.durable().await?;
        let (key, meta) = (key(&record.path)?, meta_of(version));
        let open = move |tier: &dyn Tier| {
            tier.open_listed(&key, meta).map_err(|error| tier_refused(&error))
        };
        let reader: Arc<dyn Reader> = cache.tier_work(open).await?.into();
        self.deal_out(&inode, &reader).await?;
        self.sync_parts(&inode, false).await?;
        self.meta.durable().await?;
        let _held = cache.publishing.lock(ino).await;
        let is_same = cache.record(ino).is_some_and(|now| {
            let identity = now.version.map(|version| version.identity);
            now.state == FileState::InTier && identity == Some(version.identity)
        });
        if !is_same || self.meta.inode(ino)?.nlink == 0 {
            return Err(Refused::because(libc_errno::EAGAIN, "it changed while it was fetched"));
        }
        cache.update(ino, |record| record.state = FileState::Clean)
    }

    /// Several pieces at once, each from the tier to its parts.
    async fn deal_out(
        self: &Rc<Self>,
        inode: &Inode,
        reader: &Arc<dyn Reader>,
    ) -> Result<(), Refused> {
        let file = Known {
            layout: Rc::new(inode.layout.clone()),
            layout_epoch: inode.layout_epoch,
            trunc_epoch: inode.trunc_epoch,
        };
        let mut start = 0;
        while start < inode.size {
            let mut pieces = Vec::new();
            while start < inode.size && pieces.len() < FETCH_AHEAD {
                let piece = start..(start + FETCH_BYTES).min(inode.size);
                start = piece.end;
                let (this, reader) = (Rc::clone(self), Arc::clone(reader));
                let (ino, file) = (inode.ino, file.clone());
                pieces.push(tokio::task::spawn_local(async move {
                    this.deal_piece((ino, &file), reader, piece).await
                }));
            }
            // All of them: who removes the parts of half a copy meets no piece that is still being written.
            let mut dealt = Ok(());
            for piece in pieces {
                let ended = piece.await.unwrap_or_else(|_| Err(Refused::new(libc_errno::EIO)));
                dealt = dealt.and(ended);
            }
            dealt?;
        }
        Ok(())
    }

    async fn deal_piece(
        self: &Rc<Self>,
        (ino, file): (InodeId, &Known),
        reader: Arc<dyn Reader>,
        piece: Range<u64>,
    ) -> Result<(), Refused> {
        let (cache, len) = (self.cache.need()?, piece.end - piece.start);
        let read = move |_: &dyn Tier| {
            let mut bytes = vec![0; len as usize];
            let read = reader.read_at(piece.start, &mut bytes);
            if read.map_err(|error| tier_refused(&error))? < bytes.len() {
                let why = "the file became shorter in the tier while it was read";
                return Err(Refused::because(libc_errno::EIO, why));
            }
            Ok(bytes)
        };
        let bytes = cache.tier_work(read).await?;
        cache.traffic.fetched(len);
        for (chunk, number) in bytes.chunks(PAYLOAD_BYTES_MAX).zip(0..) {
            let at = piece.start + number * PAYLOAD_BYTES_MAX as u64;
            if let Attempt::Stale = self.write_pieces(ino, file, at, chunk).await? {
                let why = "it was changed while it was fetched";
                return Err(Refused::because(libc_errno::EAGAIN, why));
            }
        }
        Ok(())
    }

    /// It is a copy in stripes now, or in the tier only, as before.
    async fn striping_ended(
        self: &Rc<Self>,
        (ino, striping): (InodeId, &Striping),
        layout: &Layout,
        ended: &Result<(), Refused>,
    ) {
        let Some(cache) = self.cache.of(ino) else { return };
        if let Err(refused) = ended {
            tracing::warn!(%ino, %refused, "a file does not come into stripes");
            let _held = cache.publishing.lock(ino).await;
            let undone = match layout {
                _ if self.cache.has_half_a_copy(ino) => self.only_in_tier_again(cache, ino).await,
                // Removed meanwhile, with the parts that there were then.
                Layout::Striped { servers, .. } if self.meta.inode(ino).is_err() => {
                    self.remove_stripes(ino, striping.epoch.get(), servers)
                }
                _ => Ok(()),
            };
            if let Err(error) = undone {
                tracing::error!(%ino, %error, "half a copy stays until the next start");
            }
        }
        *cache.active(ino).striping.borrow_mut() = None;
        self.data.usage.changed();
    }

    /// Before a file is written: all of it comes here. `Ready(false)` when that takes longer than a
    /// message may: ask again.
    pub(crate) async fn fetch_all(self: &Rc<Self>, ino: InodeId) -> Result<PeerReply, Refused> {
        if let Some(reply) = self.fetch_striped(ino).await? {
            return Ok(reply);
        }
        let all = self.cache.fetch_range(ino, 0, u64::MAX);
        match tokio::time::timeout(FETCH_WAIT, all).await {
            Ok(fetched) => fetched.map(|()| PeerReply::Ready(true)),
            Err(_) => Ok(PeerReply::Ready(false)),
        }
    }
}

fn meta_of(version: TierVersion) -> ObjectMeta {
    ObjectMeta {
        size: ByteCount(version.size),
        mode: version.mode,
        mtime: system_time(version.mtime),
        identity: version.identity,
    }
}

impl CacheArea {
    /// Home: an open has begun, or a truncate; it is booked, done or given up when this is dropped.
    pub(crate) fn opening(&self, ino: InodeId) -> Opening<'_> {
        if let Some(cache) = self.of(ino) {
            let active = cache.active(ino);
            active.openings.set(active.openings.get() + 1);
        }
        Opening(self, ino)
    }

    /// Home: what is here of it is not the file: it is on its way into stripes, or a copy on several nodes is given up.
    pub(crate) fn has_half_a_copy(&self, ino: InodeId) -> bool {
        let record = self.of(ino).and_then(|cache| cache.record(ino));
        record.is_some_and(|record| {
            record.state == FileState::InTier && record.layout != Layout::Whole
        })
    }
}
