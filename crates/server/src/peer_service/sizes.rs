//! Sizes at their home: striped files, appends, truncate, and calls on the whole of a part.

use std::rc::Rc;

use hayase_layout::{ByteCount, InodeId, Layout, NodeId, ServerId, StripeMap};
use hayase_store::Whence;
use hayase_store::namespace::{FileKind, Inode};
use hayase_wire::message::{
    Grants, InodeRequest, MachineLife, NameRequest, PartRef, PartRequest, PeerReply, Place, Refused,
};

use super::Answer;
use super::durable_files::{
    Asking, forget_durability, is_of_container, note_broken, refuse_broken,
};
use crate::appends::Found;
use crate::convert::{part_refused, stored_time};
use crate::data::kept_room::KEEP_SIZE;
use crate::data::ranges::Beside;
use crate::keyed_lock::KeyGuard;
use crate::limits::NAMES_ASKED_MAX;
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

/// `FALLOC_FL_PUNCH_HOLE`.
const PUNCH_HOLE: i32 = 2;

impl Node {
    pub(super) async fn extend(
        self: &Rc<Self>,
        ino: InodeId,
        end: u64,
        trunc_epoch: u32,
    ) -> Answer {
        self.settled(ino).await;
        self.extend_to(ino, end, trunc_epoch)
    }

    fn extend_to(&self, ino: InodeId, end: u64, trunc_epoch: u32) -> Answer {
        if self.meta.inode(ino)?.trunc_epoch != trunc_epoch {
            return Ok(PeerReply::Stale);
        }
        self.turns.taken(ino);
        let now = stored_time(self.meta.now());
        let inode = self.meta.change_inode(ino, |inode| {
            inode.size = inode.size.max(end);
            inode.bytes_changed(now);
        })?;
        Ok(PeerReply::Size { size: inode.size, trunc_epoch })
    }

    /// Waits while a truncate is under way: the size before it must not be told after it.
    pub(super) async fn size_of(self: &Rc<Self>, ino: InodeId) -> Answer {
        self.settled(ino).await;
        let inode = self.meta.inode(ino)?;
        if inode.layout == Layout::Whole {
            // It was recorded when the asker looked: its part knows.
            return Ok(PeerReply::Stale);
        }
        self.turns.taken(ino);
        Ok(PeerReply::Size { size: inode.size, trunc_epoch: inode.trunc_epoch })
    }

    /// Cuts or stretches a file of this home. Others have given back their caches already.
    pub(crate) async fn truncate(self: &Rc<Self>, inode: &Inode, size: u64) -> Result<(), Refused> {
        match &inode.layout {
            Layout::Whole => {
                let part = self.data.whole(inode)?;
                let _held = self.data.direct.hold(inode.ino).await;
                let _range = self.data.ranges.begin(part.id(), 0..u64::MAX, Beside::None).await;
                let work = move || part.truncate(size).map_err(part_refused);
                self.data.disk.run(work).await?;
                if size == 0 && !inode.ino.is_cached() {
                    forget_durability(self.meta.store(), inode.ino)?;
                }
                self.data.usage.changed();
                Ok(())
            }
            Layout::Striped { .. } => self.truncate_striped(inode.ino, size).await,
            _ if inode.kind == FileKind::Directory => Err(Refused::new(libc_errno::EISDIR)),
            _ => Err(Refused::new(libc_errno::EINVAL)),
        }
    }

    /// Epoch first, so that no write or extension of before counts after; then the parts; then the
    /// size. Meanwhile nobody is told a size.
    async fn truncate_striped(self: &Rc<Self>, ino: InodeId, size: u64) -> Result<(), Refused> {
        let _held = self.turn_to_truncate(ino).await;
        let inode = self.meta.change_inode(ino, |inode| inode.trunc_epoch += 1)?;
        self.appends.forget(ino);
        self.cut_parts(&inode, size).await?;
        let now = stored_time(self.meta.now());
        self.meta.change_inode(ino, |inode| {
            inode.size = size;
            inode.bytes_changed(now);
        })?;
        Ok(())
    }

    /// Cuts the parts of a striped file to what belongs to `size` bytes, in the inode's epoch.
    async fn cut_parts(self: &Rc<Self>, inode: &Inode, size: u64) -> Result<(), Refused> {
        let Layout::Striped { stripe, servers } = &inode.layout else {
            return Err(Refused::new(libc_errno::ESTALE));
        };
        let ino = inode.ino;
        let map = stripe_map(*stripe, servers)?;
        let mut cuts = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            let index = index as u16;
            let part = PartRef { ino, layout_epoch: inode.layout_epoch, index };
            let len = map.part_len(index, ByteCount(size)).0;
            let trunc_epoch = inode.trunc_epoch;
            let request = PartRequest::Truncate { part, len, trunc_epoch };
            cuts.push(tokio::task::spawn_local(self.rpc.ask(*server, request)));
        }
        for cut in cuts {
            cut.await.map_err(|_| Refused::new(libc_errno::EIO))??;
        }
        Ok(())
    }

    /// What a former life dealt out may still be written to, under places that are dealt out again: the
    /// parts are told a new epoch, and lose what lies behind the end.
    async fn void_reservations(self: &Rc<Self>, ino: InodeId) -> Result<(), Refused> {
        {
            let _held = self.turn_to_truncate(ino).await;
            if self.appends.is_begun(ino) {
                return Ok(());
            }
            let inode = self.meta.change_inode(ino, |inode| inode.trunc_epoch += 1)?;
            let cut = self.cut_parts(&inode, inode.size).await;
            // To a part of a lost node nobody writes.
            if !self.rpc.membership.has_lost() {
                cut?;
            }
        }
        self.appends.begin(ino);
        Ok(())
    }

    /// Holds the inode, after the calls that earlier truncates overtook.
    async fn turn_to_truncate(&self, ino: InodeId) -> KeyGuard<InodeId> {
        let held = self.inode_locks.lock(ino).await;
        if !self.turns.is_owed(ino) {
            return held;
        }
        // They wait while it is held.
        drop(held);
        self.turns.give_way(ino).await;
        self.inode_locks.lock(ino).await
    }

    pub(super) async fn append_reserve(self: &Rc<Self>, ino: InodeId, len: u32) -> Answer {
        if self.incarnation > 1 && !self.appends.is_begun(ino) {
            self.void_reservations(ino).await?;
        }
        self.settled(ino).await;
        let inode = self.meta.inode(ino)?;
        let offset = self.appends.reserve(ino, inode.size, u64::from(len));
        Ok(PeerReply::Offset { offset, trunc_epoch: inode.trunc_epoch })
    }

    pub(super) async fn append_commit(
        self: &Rc<Self>,
        ino: InodeId,
        offset: u64,
        len: u32,
        trunc_epoch: u32,
    ) -> Answer {
        match self.appends.commit(ino, offset) {
            Found::Reserved => {}
            Found::GivenUp => return Ok(PeerReply::Count(u64::from(len))),
            Found::Nothing => return Ok(PeerReply::Stale),
        }
        loop {
            if let Some(size) = self.appends.settle(ino) {
                let extended = self.extend_to(ino, size, trunc_epoch)?;
                if extended == PeerReply::Stale {
                    return Ok(extended);
                }
            }
            if !self.appends.is_pending(ino, offset) {
                return Ok(PeerReply::Count(u64::from(len)));
            }
            self.appends.wait().await;
        }
    }

    pub(super) async fn allocate(
        self: &Rc<Self>,
        from: NodeId,
        ino: InodeId,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Answer {
        let _change = self.home_change(ino, from, Grants::ALL).await;
        let inode = self.meta.inode(ino)?;
        match inode.layout {
            Layout::Whole => {
                let part = self.data.whole(&inode)?;
                let _held = self.data.direct.hold(ino).await;
                let _range = self.data.ranges.begin(part.id(), 0..u64::MAX, Beside::None).await;
                if mode & KEEP_SIZE != 0 && mode & PUNCH_HOLE == 0 {
                    self.data.kept_room.program_keeps(ino);
                }
                let work = move || part.allocate(mode, offset, len).map_err(part_refused);
                self.data.disk.run(work).await?;
                self.data.usage.changed();
                Ok(PeerReply::Done)
            }
            // Room of several servers can not be promised in one step (documented).
            _ if mode & !KEEP_SIZE != 0 => Err(Refused::new(libc_errno::EOPNOTSUPP)),
            _ => Err(Refused::new(libc_errno::EOPNOTSUPP)),
        }
    }

    pub(super) async fn seek(self: &Rc<Self>, ino: InodeId, offset: u64, whence: u8) -> Answer {
        let mut inode = self.meta.inode(ino)?;
        if !self.cache.is_here(ino) {
            inode.size = self.attr_of(&inode)?.size;
        }
        let whence = if whence == 3 { Whence::Data } else { Whence::Hole };
        let found = match inode.layout {
            Layout::Whole if self.cache.is_here(ino) => {
                let part = self.data.whole(&inode)?;
                part.seek(offset, whence).map_err(part_refused)?
            }
            // One run of data, as POSIX allows for files that do not tell their holes.
            _ if offset >= inode.size => None,
            _ if whence == Whence::Data => Some(offset),
            _ => Some(inode.size),
        };
        match found {
            Some(offset) => Ok(PeerReply::Offset { offset, trunc_epoch: inode.trunc_epoch }),
            None => Err(Refused::new(libc_errno::ENXIO)),
        }
    }

    /// Home: all parts of a striped file survive a power cut from here on. Tells in which lives of their servers.
    pub(crate) async fn sync_parts(
        self: &Rc<Self>,
        inode: &Inode,
        data_only: bool,
    ) -> Result<Vec<(ServerId, MachineLife)>, Refused> {
        let mut lives = Vec::new();
        let Layout::Striped { servers, .. } = &inode.layout else { return Ok(lives) };
        let mut syncs = Vec::new();
        for (server, index) in servers.iter().zip(0..) {
            let part = PartRef { ino: inode.ino, layout_epoch: inode.layout_epoch, index };
            let request = PartRequest::Sync { part, data_only };
            syncs.push(tokio::task::spawn_local(self.rpc.ask(*server, request)));
        }
        for sync in syncs {
            match sync.await.map_err(|_| Refused::new(libc_errno::EIO))?? {
                PeerReply::Synced(synced) => lives.extend(synced),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(lives)
    }

    /// Parts first, then the inode, then the names that lead to it.
    pub(super) async fn fsync(self: &Rc<Self>, ino: InodeId, data_only: bool) -> Answer {
        let inode = self.meta.inode(ino)?;
        let mut lives = vec![(self.me, self.data.life)];
        match &inode.layout {
            // The tier has all of it.
            Layout::Whole if !self.cache.is_here(ino) => {}
            Layout::Whole if is_of_container(&inode) => {
                lives = self.sync_noted(&inode, Asking::Sync { data_only }).await?;
            }
            Layout::Whole => {
                let part = self.data.whole(&inode)?;
                match self.cache.of(ino) {
                    Some(cache) => cache.sync_part(&self.data.disk, part).await?,
                    None => {
                        refuse_broken(self.meta.store(), ino, self.me)?;
                        let found = part.clone();
                        let work = move || part.sync(data_only).map_err(part_refused);
                        let synced = self.data.disk.run(work).await;
                        if synced.is_err() && found.has_failed() {
                            note_broken(self.meta.store(), ino)?;
                            self.meta.durable().await?;
                        }
                        synced?;
                    }
                }
            }
            Layout::Striped { .. } => {
                if let Some(cache) = self.cache.of(ino) {
                    cache.ledger_durable().await?;
                }
                let synced = match is_of_container(&inode) {
                    true => self.sync_noted(&inode, Asking::Sync { data_only }).await,
                    false => self.sync_parts(&inode, data_only).await,
                };
                lives = synced.map_err(|refused| match refused.errno {
                    libc_errno::ENODATA => Refused { errno: libc_errno::EIO, ..refused },
                    _ => refused,
                })?;
            }
            Layout::Recorded { .. } => {
                if let Some(cache) = self.cache.of(ino) {
                    cache.ledger_durable().await?;
                }
                let mut syncs = Vec::new();
                for (_, part) in self.files_of_recorded(&inode).await? {
                    let request = InodeRequest::Fsync { ino: part, data_only };
                    syncs.push(tokio::task::spawn_local(self.rpc.ask(part.home(), request)));
                }
                for sync in syncs {
                    sync.await.map_err(|_| Refused::new(libc_errno::EIO))??;
                }
            }
            _ => {}
        }
        self.meta.durable().await?;
        self.sync_names_elsewhere(&inode).await?;
        Ok(PeerReply::Synced(lives))
    }

    async fn sync_names_elsewhere(self: &Rc<Self>, inode: &Inode) -> Result<(), Refused> {
        // Each time a directory that was asked about is known to be spread.
        for _ in 0..=NAMES_ASKED_MAX {
            let mut are_synced = true;
            for (shard, places) in self.names.names_elsewhere(inode)? {
                are_synced &= self.sync_names_at(shard, inode, places).await?;
            }
            if are_synced {
                return Ok(());
            }
        }
        let why = "names of this file are being spread over the servers: ask again";
        Err(Refused::because(libc_errno::EIO, why))
    }

    /// Names that were made and are gone, since their server lost power before this, are told. (In the cache area a
    /// file may have lost its name to another version in the tier; it asks for it before it comes there.) False: some
    /// of the names are at their shards, which are known now.
    async fn sync_names_at(
        self: &Rc<Self>,
        shard: ServerId,
        inode: &Inode,
        places: Vec<Place>,
    ) -> Result<bool, Refused> {
        let ino = inode.ino;
        let asked = match ino.is_cached() {
            true => Vec::new(),
            false => places.iter().take(NAMES_ASKED_MAX).map(|at| (at.clone(), ino)).collect(),
        };
        match self.rpc.ask(shard, NameRequest::SyncNames { bound: asked }).await? {
            PeerReply::Outcome(Some(true)) => return Ok(true),
            PeerReply::Outcome(_) => {}
            PeerReply::Spread => {
                for place in places.iter().take(NAMES_ASKED_MAX) {
                    // Whatever it says, it tells where the names of the directory are.
                    drop(self.names.ask_shard(place, NameRequest::Lookup(place.clone())).await);
                }
                return Ok(false);
            }
            other => return Err(unexpected(&other)),
        }
        // Renamed or removed meanwhile, it has lost nothing; nor where another server is going to tell this one of it.
        let now = self
            .meta
            .inode(ino)
            .ok()
            .map(|inode| self.names.names_elsewhere(&inode))
            .transpose()?;
        let now = now.and_then(|mut names| names.remove(&shard)).unwrap_or_default();
        if places.iter().any(|place| !now.contains(place))
            || self.is_spoken_of_anywhere(ino).await?
        {
            return Ok(true);
        }
        let why = format!(
            "server {shard} lost power, and with it a name of this file that was not synced: give it one anew"
        );
        Err(Refused::because(libc_errno::EIO, why))
    }
}

/// The arithmetic of a striped layout that was checked when the file was made.
pub(crate) fn stripe_map(
    stripe: ByteCount,
    servers: &[hayase_layout::ServerId],
) -> Result<StripeMap, Refused> {
    StripeMap::new(stripe, servers.to_vec())
        .map_err(|error| Refused::because(libc_errno::EIO, error.to_string()))
}
