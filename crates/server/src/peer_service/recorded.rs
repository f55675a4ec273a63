//! Recorded files at their home: how they begin, what is published, how they become whole.
//!
//! Not here: reading ([`crate::node_service`]), what is kept in memory ([`crate::recorded`]).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hayase_container::limits::LIST_TRIES_MAX;
use hayase_container::{Gathered, MARK, area};
use hayase_layout::{InodeId, Layout, LocalOffset, NodeId};
use hayase_store::namespace::{FileKind, Inode};
use hayase_store::{Part, SetTime};
use hayase_wire::message::{
    DirectoryRequest, Grants, NameRequest, NodeReply, PeerReply, Place, RecordedStep, Refused,
};

use super::Answer;
use super::durable_files::Asking;
use crate::convert::whole_part;
use crate::convert::{part_refused, stored_time};
use crate::limits::{FLATTEN_WAIT, GATHER_AT_ONCE, REMOVAL_ROUNDS};
use crate::node::Node;
use crate::node_service::NodeAnswer;
use crate::recorded::{DIRECTORY, Flattening, Recording, refused, shown_path};
use crate::refusals::{libc_errno, unexpected};

/// Whose caches nobody leaves alone.
const NOBODY: NodeId = NodeId(u16::MAX);

/// Of an index in one message: half of what a message may hold.
const PIECE: usize = hayase_wire::message::BODY_BYTES_MAX / 2;

/// One step of a copy.
const COPY_STEP: usize = hayase_wire::message::PAYLOAD_BYTES_MAX;

impl Node {
    pub(super) async fn recorded_step(self: &Rc<Self>, ino: InodeId, step: RecordedStep) -> Answer {
        match step {
            RecordedStep::Begin { container } => self.begin_recorded(ino, container).await,
            RecordedStep::Published { index } => self.published(ino, index).await,
            RecordedStep::Flatten { keep } => self.flatten(ino, keep).await,
        }
    }

    async fn begin_recorded(self: &Rc<Self>, ino: InodeId, container: InodeId) -> Answer {
        self.require_container_of(ino, container).await?;
        for node in self.homes.open_on(ino) {
            self.let_go(ino, node).await;
        }
        let _change = self.home_change(ino, NOBODY, Grants::ALL).await;
        let _held = self.inode_locks.lock(ino).await;
        let inode = self.meta.inode(ino)?;
        match inode.layout {
            Layout::Recorded { container: known } if known == container => {
                return Ok(PeerReply::Done);
            }
            Layout::Whole if inode.kind == FileKind::Regular => {}
            _ => return Err(Refused::because(libc_errno::EINVAL, "its layout is another one")),
        }
        if self.attr_of(&inode)?.size > 0 {
            return Err(Refused::because(libc_errno::EINVAL, "it has bytes already"));
        }
        if self.homes.is_open(ino) {
            return Err(Refused::because(libc_errno::EBUSY, "it is open"));
        }
        let cache = self.cache.of(ino);
        let _published = match cache {
            Some(cache) => Some(cache.publishing.lock(ino).await),
            None => None,
        };
        if let Some(cache) = cache {
            self.recorded_begins(cache, ino, container)?;
        }
        let now = stored_time(self.meta.now());
        self.meta.change_inode(ino, |inode| {
            inode.layout = Layout::Recorded { container };
            inode.layout_epoch += u32::from(cache.is_none());
            inode.trunc_epoch += 1;
            inode.size = 0;
            inode.bytes_changed(now);
        })?;
        self.files.forget(ino);
        self.recorded.forget(ino);
        let Some(cache) = cache else {
            self.data.remove_later(whole_part(ino, inode.layout_epoch));
            return Ok(PeerReply::Done);
        };
        // A power cut must not make an empty file of it, which would come to the tier as that.
        self.meta.durable().await?;
        cache.ledger_durable().await?;
        self.data.discard(whole_part(ino, inode.layout_epoch));
        Ok(PeerReply::Done)
    }

    /// Its place is where the containers are: whoever removes a file removes its container, and no other
    /// directory.
    async fn require_container_of(
        self: &Rc<Self>,
        ino: InodeId,
        container: InodeId,
    ) -> Result<(), Refused> {
        let none =
            || Refused::because(libc_errno::ENOENT, "this is not the container of this file");
        let above = match self.place_of_directory(container).await? {
            Some(Place { parent, name }) if name == area::name_of(ino.0).into_bytes() => parent,
            _ => return Err(none()),
        };
        match self.place_of_directory(above).await? {
            Some(Place { parent: InodeId::ROOT, name }) if name == DIRECTORY => Ok(()),
            _ => Err(none()),
        }
    }

    /// `None` when it is gone, has none, or is no directory.
    async fn place_of_directory(self: &Rc<Self>, dir: InodeId) -> Result<Option<Place>, Refused> {
        match self.rpc.ask(dir.home(), DirectoryRequest::Name { dir }).await {
            Ok(PeerReply::Named(place)) => Ok(place),
            Ok(other) => Err(unexpected(&other)),
            Err(error) => match error.errno {
                libc_errno::ESTALE | libc_errno::ENOENT | libc_errno::ENOTDIR => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Reads what a writer has appended to its index. Those who publish at once share the work.
    async fn published(self: &Rc<Self>, ino: InodeId, index: String) -> Answer {
        if !matches!(self.meta.inode(ino)?.layout, Layout::Recorded { .. }) {
            return Err(Refused::because(libc_errno::EINVAL, "it is not a file of MPI programs"));
        }
        let cache = self.cache.of(ino);
        if let Some(cache) = cache {
            self.written_by_mpi(cache, ino).await?;
        }
        let publication = self.recorded.publication(ino, index.clone());
        let _change = self.home_change(ino, NOBODY, Grants::ALL).await;
        let _held = self.inode_locks.lock(ino).await;
        if !self.recorded.has(ino, publication) {
            let gathered = self.gather(ino, Some(index)).await;
            if let Some(cache) = cache {
                // Nor is a flush worth anything that began before it was read.
                cache.active(ino).changed();
            }
            gathered?;
        }
        Ok(PeerReply::Done)
    }

    /// A piece of what readers need to know.
    pub(super) async fn recorded_index(self: &Rc<Self>, ino: InodeId, from: u64) -> Answer {
        self.settled(ino).await;
        if self.recorded.with(ino, |_| ()).is_none() {
            let _held = self.inode_locks.lock(ino).await;
            if self.recorded.with(ino, |_| ()).is_none() {
                self.gather(ino, None).await?;
            }
        }
        let inode = self.meta.inode(ino)?;
        let known = self.recorded.with(ino, |found| (Rc::clone(&found.told), found.size));
        let (Layout::Recorded { .. }, Some((told, size))) = (inode.layout, known) else {
            return Ok(PeerReply::Stale);
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(told.len());
        let bytes = told[from..told.len().min(from + PIECE)].to_vec();
        let (trunc_epoch, total) = (inode.trunc_epoch, told.len() as u64);
        Ok(PeerReply::RecordedIndex { trunc_epoch, size, total, bytes })
    }

    /// Reads all that is published, under the inode's lock. What could be read counts, also when
    /// something else is out of reach; but of a file that this incarnation has not read whole before,
    /// nobody is told a part.
    async fn gather(self: &Rc<Self>, ino: InodeId, own: Option<String>) -> Result<(), Refused> {
        let as_of = self.recorded.last_publication();
        // Whoever of these is not served by this turn comes with its own name.
        let mut unread = self.recorded.take_unread(ino);
        unread.extend(own);
        let Layout::Recorded { container } = self.meta.inode(ino)?.layout else { return Ok(()) };
        let known = self.recorded.take(ino);
        let is_first = known.is_none();
        let mut recording = match known {
            Some(known) => known,
            None => self.meet(ino, container).await?,
        };
        let read = self.read_indexes(container, &mut recording, &unread, is_first).await;
        if is_first {
            read.clone()?;
        }
        let settled = recording.settle(ino);
        if let Ok(true) = settled {
            let size = recording.size;
            let now = stored_time(self.meta.now());
            if is_first
                && self.meta.inode(ino)?.size != size
                && let Some(cache) = self.cache.of(ino)
            {
                // Its writer died before it told of this: the tier does not have it.
                cache.becomes_dirty(ino)?;
            }
            self.meta.change_inode(ino, |inode| {
                if !is_first || inode.size != size {
                    inode.bytes_changed(now);
                }
                inode.size = size;
                inode.trunc_epoch += 1;
            })?;
        }
        if settled.is_ok() {
            recording.as_of = if read.is_ok() { as_of } else { recording.as_of };
            self.recorded.put(ino, recording);
        }
        settled?;
        read
    }

    /// A container that this incarnation has not read yet.
    async fn meet(self: &Rc<Self>, ino: InodeId, container: InodeId) -> Result<Recording, Refused> {
        let files = self.files_in(container, Vec::new()).await?;
        let missing = || Refused::because(libc_errno::EIO, "the mark of its container is missing");
        let mark = *files.get(MARK).ok_or_else(missing)?;
        let mark = self.read_rest(mark, 0).await?;
        let gathered = Gathered::new(&shown_path(ino), mark).map_err(refused)?;
        Ok(Recording { files, ..Recording::new(gathered) })
    }

    /// Files of a container by name, of which some are `known`, sorted. A listing that is made while indexes are merged
    /// may have neither the old names nor the new one: then it is listed again.
    async fn files_in(
        self: &Rc<Self>,
        container: InodeId,
        mut known: Vec<String>,
    ) -> Result<BTreeMap<String, InodeId>, Refused> {
        let (mut files, mut cookie, mut listings) = (BTreeMap::new(), 0, 1);
        loop {
            let entries = match self.read_dir(container, cookie, u32::MAX, false).await? {
                NodeReply::Entries(entries) => entries,
                _ => return Err(Refused::new(libc_errno::EIO)),
            };
            let Some(last) = entries.last() else {
                let names: Vec<String> = files.keys().cloned().collect();
                if Gathered::has_all(&known, &names) || listings == LIST_TRIES_MAX {
                    return Ok(files);
                }
                (known, files, cookie, listings) = (names, BTreeMap::new(), 0, listings + 1);
                continue;
            };
            cookie = last.cookie;
            files.extend(
                entries
                    .into_iter()
                    .filter_map(|entry| Some((String::from_utf8(entry.name).ok()?, entry.ino))),
            );
        }
    }

    /// Those that are `unread`; all of them where one of these is new, or nothing was read before. The
    /// first error is told when all that can be read was read.
    async fn read_indexes(
        self: &Rc<Self>,
        container: InodeId,
        recording: &mut Recording,
        unread: &BTreeSet<String>,
        is_first: bool,
    ) -> Result<(), Refused> {
        let mut outcome = Ok(());
        let is_known = |name: &String| recording.files.contains_key(name);
        let is_all = is_first || !unread.iter().all(is_known);
        if is_all {
            let known: BTreeSet<String> = recording.files.keys().chain(unread).cloned().collect();
            match self.files_in(container, known.into_iter().collect()).await {
                Ok(files) => recording.files = files,
                Err(error) if is_first => return Err(error),
                Err(error) => outcome = Err(error),
            }
        }
        let names = recording.files.keys().map(String::as_str);
        let wanted: Vec<(String, InodeId, u64)> = recording
            .gathered
            .wanted(names)
            .into_iter()
            .filter(|(name, _)| is_all || unread.contains(*name))
            .map(|(name, from)| (name.to_owned(), recording.files[name], from))
            .collect();
        for some in wanted.chunks(GATHER_AT_ONCE) {
            let reads: Vec<_> = some
                .iter()
                .map(|(_, index, from)| {
                    let (this, index, from) = (Rc::clone(self), *index, *from);
                    tokio::task::spawn_local(async move { this.read_rest(index, from).await })
                })
                .collect();
            for ((name, ..), read) in some.iter().zip(reads) {
                let read = read.await.map_err(|_| Refused::new(libc_errno::EIO))?;
                let taken =
                    read.and_then(|bytes| recording.gathered.take(name, &bytes).map_err(refused));
                outcome = outcome.and(taken);
            }
        }
        outcome
    }

    /// All bytes of a file from `from` on.
    async fn read_rest(self: &Rc<Self>, ino: InodeId, from: u64) -> Result<Vec<u8>, Refused> {
        let mut bytes = Vec::new();
        loop {
            let piece = self.read_bytes(ino, from + bytes.len() as u64, COPY_STEP).await?;
            bytes.extend_from_slice(&piece);
            if piece.len() < COPY_STEP {
                return Ok(bytes);
            }
            if bytes.len() as u64 > hayase_container::limits::INDEX_BYTES_MAX.get() {
                return Err(Refused::because(libc_errno::EFBIG, "this is not an index"));
            }
        }
    }

    /// Parts and indexes of a recorded file: their inodes.
    pub(super) async fn files_of_recorded(
        self: &Rc<Self>,
        inode: &Inode,
    ) -> Result<Vec<(String, InodeId)>, Refused> {
        let Layout::Recorded { container } = inode.layout else { return Ok(Vec::new()) };
        Ok(self.files_in(container, Vec::new()).await?.into_iter().collect())
    }
}

/// Becoming whole.
impl Node {
    /// Waits for its end, but not for long: `Stale` says that it goes on.
    async fn flatten(self: &Rc<Self>, ino: InodeId, keep: Option<u64>) -> Answer {
        if !matches!(self.meta.inode(ino)?.layout, Layout::Recorded { .. }) {
            return Ok(PeerReply::Done);
        }
        let (flattening, is_new) = self.recorded.flattening(ino);
        if is_new {
            let (this, flattening) = (Rc::clone(self), Rc::clone(&flattening));
            tokio::task::spawn_local(async move { this.run_flatten(ino, keep, &flattening).await });
        }
        let ended = flattening.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if flattening.outcome.borrow().is_none() {
            let _in_time = tokio::time::timeout(FLATTEN_WAIT, ended).await;
        }
        let outcome = flattening.outcome.borrow().clone();
        match outcome {
            None => Ok(PeerReply::Stale),
            Some((outcome, _)) => {
                self.recorded.flattening_told(ino);
                outcome.map(|()| PeerReply::Done)
            }
        }
    }

    async fn run_flatten(
        self: &Rc<Self>,
        ino: InodeId,
        keep: Option<u64>,
        flattening: &Flattening,
    ) {
        let outcome = self.make_whole(ino, keep).await;
        if let Err(error) = &outcome {
            tracing::info!(%ino, %error, "a recorded file stays as it is");
        }
        *flattening.outcome.borrow_mut() = Some((outcome, tokio::time::Instant::now()));
        flattening.ended.notify_waiters();
    }

    /// All bytes into a part here, then the layout. Until then it is what it was.
    async fn make_whole(self: &Rc<Self>, ino: InodeId, keep: Option<u64>) -> Result<(), Refused> {
        if let Some(cache) = self.cache.of(ino) {
            // Its room may be on its way back; from here on it is not.
            drop(cache.publishing.lock(ino).await);
        }
        let before = self.meta.inode(ino)?;
        let Layout::Recorded { container } = before.layout else { return Ok(()) };
        self.require_no_mpi(container).await?;
        let id = whole_part(ino, self.cache.whole_epoch(&before));
        // What a crash left of an earlier try.
        self.data.discard(id);
        let part = self.data.parts.create(id).map_err(part_refused)?;
        let made = match self.copy_recorded(ino, &part, keep.unwrap_or(u64::MAX)).await {
            Ok(trunc_epoch) => self.become_whole(&before, container, trunc_epoch, &part).await,
            Err(error) => Err(error),
        };
        if made.is_err() {
            self.data.discard(id);
        }
        self.data.usage.changed();
        made
    }

    /// Programs that have the file open by MPI-IO hold a lock on the mark of its container.
    async fn require_no_mpi(self: &Rc<Self>, container: InodeId) -> Result<(), Refused> {
        match self.mpi_lock(container).await? {
            false => Ok(()),
            true => {
                let why = "an MPI program has it open: other programs can only read it now";
                Err(Refused::because(libc_errno::EBUSY, why))
            }
        }
    }

    /// As of which publication.
    async fn copy_recorded(
        self: &Rc<Self>,
        ino: InodeId,
        part: &Part,
        keep: u64,
    ) -> Result<u32, Refused> {
        let written = || Refused::because(libc_errno::EBUSY, "it was written meanwhile");
        let shown = self.shown(ino).await?.ok_or_else(written)?;
        let size = shown.size.min(keep);
        let (mut at, mut read) = (0, BTreeSet::new());
        while at < size {
            let mut bytes = vec![0; COPY_STEP.min((size - at) as usize)];
            let mut from = |writer| {
                read.insert(writer);
            };
            self.read_shown(&shown, at, &mut bytes, &mut from).await?;
            let (part, place, len) = (part.clone(), LocalOffset(at), bytes.len() as u64);
            if bytes.iter().any(|byte| *byte != 0) {
                self.data.write_from(self, part, place, (Box::new(bytes), len as usize)).await?;
            }
            at += len;
        }
        // Else what a part has lost would not be known of the copy.
        self.read_is_kept(ino, &shown, &read, Asking::Look).await?;
        let part = part.clone();
        let _held = self.data.direct.hold(part.id().ino).await;
        let end = move || {
            part.truncate(size).map_err(part_refused)?;
            // What is durable in the container, which goes, stays durable.
            part.sync(false).map_err(part_refused)
        };
        self.data.disk.run(end).await?;
        Ok(shown.trunc_epoch)
    }

    async fn become_whole(
        self: &Rc<Self>,
        before: &Inode,
        container: InodeId,
        trunc_epoch: u32,
        part: &Part,
    ) -> Result<(), Refused> {
        let ino = before.ino;
        let _change = self.home_change(ino, NOBODY, Grants::ALL).await;
        let _held = self.inode_locks.lock(ino).await;
        self.require_no_mpi(container).await?;
        let cache = self.cache.of(ino);
        let _published = match cache {
            Some(cache) => Some(cache.publishing.lock(ino).await),
            None => None,
        };
        let inode = self.meta.inode(ino)?;
        if (inode.layout_epoch, inode.trunc_epoch) != (before.layout_epoch, trunc_epoch) {
            return Err(Refused::because(libc_errno::EBUSY, "it was written meanwhile"));
        }
        let (atime, mtime) = (SetTime::To(inode.atime), SetTime::To(inode.mtime));
        part.set_times(Some(atime), Some(mtime)).map_err(part_refused)?;
        let layout_epoch = self.cache.whole_epoch(&inode);
        if let Some(cache) = cache {
            cache.becomes_dirty(ino)?;
            cache.ledger_durable().await?;
        }
        self.meta.change_inode(ino, |inode| {
            inode.layout = Layout::Whole;
            inode.layout_epoch = layout_epoch;
            // What somebody still knows of it is older, whatever its layout epoch.
            inode.trunc_epoch += 1;
        })?;
        self.files.forget(ino);
        self.recorded.forget(ino);
        if let Some(cache) = cache {
            self.meta.durable().await?;
            cache.update(ino, |record| record.layout = Layout::Whole)?;
        }
        self.remove_container_later(container);
        Ok(())
    }
}

/// The end of a container.
impl Node {
    /// Nobody needs its files any more.
    pub(crate) fn remove_container_later(self: &Rc<Self>, container: InodeId) {
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(error) = this.remove_container(container).await {
                tracing::warn!(%container, %error, "a container's files stay until the next start");
            }
        });
    }

    async fn remove_container(self: &Rc<Self>, container: InodeId) -> Result<(), Refused> {
        for _ in 0..REMOVAL_ROUNDS {
            for name in self.files_in(container, Vec::new()).await?.into_keys() {
                let removed = self.remove(None, container, name.into_bytes(), false, None).await;
                match removed.map(NodeAnswer::completed) {
                    Err(error) if error.errno != libc_errno::ENOENT => return Err(error),
                    _ => {}
                }
            }
            let Some(place) = self.place_of_directory(container).await? else { return Ok(()) };
            match self.remove(None, place.parent, place.name, true, None).await {
                // A writer made another part meanwhile.
                Err(error) if error.errno == libc_errno::ENOTEMPTY => {}
                other => return other.map(|answer| drop(answer.completed())),
            }
        }
        Err(Refused::because(libc_errno::ENOTEMPTY, "it is being written while it is removed"))
    }

    /// After a start: containers of files of this home that are no recorded files (any more).
    pub(crate) async fn collect_containers(self: &Rc<Self>) -> Result<(), Refused> {
        let place = Place { parent: InodeId::ROOT, name: DIRECTORY.to_vec() };
        let all = match self
            .rpc
            .ask(self.names.shard_of(place.parent, DIRECTORY), NameRequest::Lookup(place))
            .await
        {
            Ok(PeerReply::Bound(binding)) => binding.ino,
            Ok(other) => return Err(unexpected(&other)),
            Err(error) if error.errno == libc_errno::ENOENT => return Ok(()),
            Err(error) => return Err(error),
        };
        for (name, container) in self.files_in(all, Vec::new()).await? {
            let Some(ino) = area::inode_of(&name).map(InodeId) else { continue };
            let is_mine = ino.home() == self.me;
            let layout = self.meta.inode(ino).map(|inode| inode.layout).ok();
            if is_mine && layout != Some(Layout::Recorded { container }) {
                self.remove_container_later(container);
            }
        }
        Ok(())
    }
}
