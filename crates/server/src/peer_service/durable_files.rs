//! Parts and indexes of recorded files: made durable, and what their homes note of that.
//!
//! Programs write them past every server. So the home of such a file notes, each time it was synced, how long it was then
//! ([`ops::durability`]): after a power cut `hayase resume` sends nothing else. The kernel tells an error of write-back once, to
//! whoever syncs first, often the writer: the home notes that too, durably, until the file is emptied or removed.
//!
//! Of any other whole file of `shared` it notes that error alone, which no later sync would tell, nor any sync to its next life.
//!
//! Before the tier gets a version, what was read for it is made durable, one request for each server. That tells of errors
//! of the storage that nobody has seen, and a power cut can not bring back an older state than the tier has.
//! Faults: "fsync(2) or write-back fails once", "every node loses power" in `docs/design/000-faults.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hayase_container::Gathered;
use hayase_layout::{InodeId, Layout, ServerId, WriterId};
use hayase_store::namespace::Inode;
use hayase_store::{Namespace, ops};
use hayase_wire::message::{MachineLife, PartRequest, PeerReply, Refused};

use super::Answer;
use crate::convert::{meta_refused, part_refused};
use crate::limits::{FILES_SYNCED_MAX, SYNCS_AT_ONCE};
use crate::node::Node;
use crate::recorded::Shown;
use crate::refusals::{libc_errno, unexpected};

/// How a file is asked for what its storage has lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    /// It survives a power cut from then on.
    Sync { data_only: bool },
    /// Nothing is written for it.
    Look,
}

impl Node {
    /// Home: a part or an index is as it was written, as far as its storage has told. Once it was synced, that is noted; the note
    /// is durable when the names are.
    ///
    /// # Errors
    /// `EIO`, each time, where the storage has lost bytes of it.
    pub(super) async fn sync_noted(
        self: &Rc<Self>,
        inode: &Inode,
        asking: Asking,
    ) -> Result<Vec<(ServerId, MachineLife)>, Refused> {
        if is_broken(self.meta.store(), inode.ino)? {
            return Err(lost_bytes_of(name_of(inode).unwrap_or("a part"), self.me));
        }
        let data_only = asking != Asking::Sync { data_only: false };
        if let Layout::Striped { .. } = inode.layout {
            let lives = self.sync_parts(inode, data_only).await?;
            if asking != Asking::Look && self.cache.get().is_some() {
                note_durable(self.meta.store(), inode.ino, inode.size, inode.size)?;
            }
            return Ok(lives);
        }
        let part = self.data.whole(inode)?;
        let found = part.clone();
        let work = move || {
            let bytes = found.stat().map_err(part_refused)?.size;
            let asked = match asking {
                Asking::Sync { data_only } => found.sync(data_only),
                Asking::Look => found.check_written(),
            };
            asked.map_err(part_refused)?;
            Ok((bytes, found.stat().map_err(part_refused)?.size))
        };
        let done = self.data.disk.run(work).await;
        if done.is_err() && part.has_failed() {
            note_broken(self.meta.store(), inode.ino)?;
            self.meta.durable().await?;
            return Err(lost_bytes_of(name_of(inode).unwrap_or("a part"), self.me));
        }
        let (bytes, len) = done?;
        // Nobody resumes a job that has no tier.
        if asking != Asking::Look && self.cache.get().is_some() {
            note_durable(self.meta.store(), inode.ino, bytes, len)?;
        }
        Ok(vec![(self.me, self.data.life)])
    }

    /// Home of each of these files.
    pub(super) async fn sync_files(self: &Rc<Self>, inos: Vec<InodeId>, only_look: bool) -> Answer {
        let asking = if only_look { Asking::Look } else { Asking::Sync { data_only: true } };
        let mut lost = Vec::new();
        for some in inos.chunks(SYNCS_AT_ONCE) {
            let mut syncs = Vec::new();
            for ino in some {
                match self.meta.inode(*ino) {
                    Ok(inode) => {
                        let this = Rc::clone(self);
                        let sync = async move { this.sync_noted(&inode, asking).await };
                        syncs.push((*ino, tokio::task::spawn_local(sync)));
                    }
                    // Merged into another index, which was durable first, or removed.
                    Err(refused) if refused.errno == libc_errno::ESTALE => {}
                    Err(refused) => return Err(refused),
                }
            }
            for (ino, sync) in syncs {
                match sync.await.map_err(|_| Refused::new(libc_errno::EIO))? {
                    Ok(_) => {}
                    // A server that has a piece of a striped one says `ENODATA`.
                    Err(refused)
                        if refused.errno == libc_errno::ENODATA
                            || is_broken(self.meta.store(), ino)? =>
                    {
                        lost.push(ino);
                    }
                    Err(refused) => return Err(refused),
                }
            }
        }
        if !only_look {
            self.meta.durable().await?;
        }
        Ok(PeerReply::Broken(lost))
    }

    /// Home of a recorded file: the parts of these writers, which were read for a copy of it, are as they were written, as far as
    /// their storage has told. `asking` to sync them, they survive a power cut from here on; so do its indexes and the
    /// names of its files, where these can be reached: this server knows what they say, and nothing of the copy comes
    /// from them. Costs a request for each server that has some of them.
    ///
    /// # Errors
    /// `EIO`, each time, where the storage has lost bytes of one of them.
    pub(crate) async fn read_is_kept(
        self: &Rc<Self>,
        ino: InodeId,
        shown: &Shown,
        read: &BTreeSet<WriterId>,
        asking: Asking,
    ) -> Result<(), Refused> {
        let inode = self.meta.inode(ino)?;
        let Layout::Recorded { container } = inode.layout else { return Ok(()) };
        let parts: BTreeSet<InodeId> =
            read.iter().filter_map(|writer| shown.parts.get(writer)).copied().collect();
        if parts.is_empty() {
            return Ok(());
        }
        let files = match self.recorded.with(ino, |recording| recording.files.clone()) {
            Some(files) => files,
            None => self.files_of_recorded(&inode).await?.into_iter().collect(),
        };
        let mut wanted = BTreeMap::<ServerId, Vec<InodeId>>::new();
        let indexes = files.iter().filter(|(name, _)| Gathered::is_index(name));
        let indexes = indexes.map(|(_, ino)| ino).filter(|_| asking != Asking::Look);
        for file in parts.iter().chain(indexes) {
            wanted.entry(file.home()).or_default().push(*file);
        }
        if asking != Asking::Look {
            // It has the names of the files, unless they are many.
            wanted.entry(container.home()).or_default();
        }
        let this = Rc::clone(self);
        let ask = move |server, request| this.rpc.ask(server, request);
        let lost = ask_for_lost(wanted, &parts, asking == Asking::Look, ask).await?;
        if asking != Asking::Look {
            self.meta.durable().await?;
        }
        let Some(first) = lost.iter().find(|ino| parts.contains(ino)) else { return Ok(()) };
        let name = files.iter().find(|(_, ino)| *ino == first).map(|(name, _)| name.as_str());
        let refused = lost_bytes_of(name.unwrap_or("a part"), first.home());
        self.recorded.broken(ino, shown.trunc_epoch, refused.clone());
        Err(refused)
    }
}

/// Those of which bytes are lost. Servers without any of `needed` may be out of reach.
async fn ask_for_lost<F>(
    wanted: BTreeMap<ServerId, Vec<InodeId>>,
    needed: &BTreeSet<InodeId>,
    only_look: bool,
    ask: impl Fn(ServerId, PartRequest) -> F + 'static,
) -> Result<Vec<InodeId>, Refused>
where
    F: Future<Output = Result<PeerReply, Refused>> + 'static,
{
    let (ask, mut asked) = (Rc::new(ask), Vec::new());
    for (server, inos) in wanted {
        let is_needed = inos.iter().any(|ino| needed.contains(ino));
        let ask = Rc::clone(&ask);
        // One request after the other, so that each has its whole time.
        let all = async move {
            let some = inos.chunks(FILES_SYNCED_MAX).map(<[_]>::to_vec);
            let some = if inos.is_empty() { vec![Vec::new()] } else { some.collect() };
            let mut lost = Vec::new();
            for inos in some {
                match ask(server, PartRequest::SyncFiles { inos, only_look }).await? {
                    PeerReply::Broken(broken) => lost.extend(broken),
                    other => return Err(unexpected(&other)),
                }
            }
            Ok(lost)
        };
        asked.push((server, is_needed, tokio::task::spawn_local(all)));
    }
    let mut lost = Vec::new();
    for (server, is_needed, all) in asked {
        match all.await.map_err(|_| Refused::new(libc_errno::EIO))? {
            Ok(broken) => lost.extend(broken),
            Err(refused) if is_needed => return Err(refused),
            Err(refused) => tracing::warn!(%server, %refused, "indexes are not synced"),
        }
    }
    Ok(lost)
}

/// Whether its name is that of the mark, a part or an index of a container, or of what becomes one.
pub(super) fn is_of_container(inode: &Inode) -> bool {
    !inode.ino.is_cached() && name_of(inode).is_some_and(Gathered::is_synced)
}

fn name_of(inode: &Inode) -> Option<&str> {
    inode.name.as_ref().and_then(|(_, name)| std::str::from_utf8(name).ok())
}

fn is_broken(names: &Namespace, ino: InodeId) -> Result<bool, Refused> {
    let noted = ops::durability(&names.begin(), ino).map_err(meta_refused)?;
    Ok(noted.is_broken)
}

/// Before a whole file of `shared` that is no part of a container is synced.
///
/// # Errors
/// `EIO` where the storage has lost bytes of it, until it is emptied or removed.
pub(super) fn refuse_broken(
    names: &Namespace,
    ino: InodeId,
    server: ServerId,
) -> Result<(), Refused> {
    if !is_broken(names, ino)? {
        return Ok(());
    }
    let why =
        format!("the storage of node {server} has lost bytes of this file: empty it, or remove it");
    Err(Refused::because(libc_errno::EIO, why))
}

/// Notes that the first `bytes` bytes of a file of a container of this home, which has `len`, are durable. The note is durable
/// when the names are.
pub(crate) fn note_durable(
    names: &Namespace,
    ino: InodeId,
    bytes: u64,
    len: u64,
) -> Result<(), Refused> {
    let mut txn = names.begin();
    match ops::note_durable(&mut txn, ino, bytes, len).map_err(meta_refused)? {
        true => txn.commit().map_err(meta_refused),
        false => Ok(()),
    }
}

/// Notes that the storage has lost bytes of a file of this home. The note is durable when the names are.
pub(super) fn note_broken(names: &Namespace, ino: InodeId) -> Result<(), Refused> {
    let mut txn = names.begin();
    ops::note_broken(&mut txn, ino).map_err(meta_refused)?;
    txn.commit().map_err(meta_refused)
}

/// Nothing of a file is left of which something could be lost.
pub(super) fn forget_durability(names: &Namespace, ino: InodeId) -> Result<(), Refused> {
    let mut txn = names.begin();
    ops::forget_durability(&mut txn, ino).map_err(meta_refused)?;
    txn.commit().map_err(meta_refused)
}

/// Of a file whose container has this part or index.
pub(crate) fn lost_bytes_of(name: &str, server: ServerId) -> Refused {
    let why = format!(
        "the storage of node {server} has lost bytes of {name} of its container: write the file again"
    );
    Refused::because(libc_errno::EIO, why)
}
