//! What lies on the nodes once nobody works any more: names, inodes, parts and intents fit together
//! (I1, I9).
//!
//! Checks: each name is at its shard and stands for an inode that is at its home; an inode has as many
//! names as it says, and knows them; nothing that lost its last name stays; no operation is left half
//! done; the part of a whole file is at its home, and no part belongs to nothing. Not: bytes (the
//! other checkers), nodes that are gone, parts of striped files that were removed (they may stay where
//! a server was killed, as the protocol page says).

use std::collections::BTreeMap;
use std::sync::Arc;

use hayase_layout::shard::name_shard;
use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::{Device, FileKind, Inode, Namespace, NamespaceError, PartId, Time, ops};

use crate::job::Job;

/// More records than one run makes.
const RECORDS: usize = 100_000;

/// All that living nodes keep.
#[derive(Default)]
struct Found {
    /// Directories whose names are at their home, with servers to which these were handed in vain.
    kept: BTreeMap<InodeId, Vec<ServerId>>,
    inodes: BTreeMap<InodeId, Inode>,
    /// Names by what they stand for.
    names: BTreeMap<InodeId, Vec<(InodeId, Vec<u8>)>>,
    parts: Vec<(ServerId, PartId)>,
    wrong: Vec<String>,
}

/// What does not fit.
pub(crate) fn check(job: &Job) -> Vec<String> {
    let mut found = Found::default();
    let living = || (0..job.servers()).filter(|server| !job.is_gone(*server));
    for server in living() {
        match kept_directories(job, server) {
            Ok(kept) => found.kept.extend(kept),
            Err(error) => {
                found.wrong.push(format!("server {server} can not read its directories: {error}"));
            }
        }
    }
    for server in living() {
        if let Err(error) = found.look(job, server) {
            found.wrong.push(format!("server {server} can not read its names: {error}"));
        }
    }
    let lives = |ino: InodeId| !job.is_gone(ino.home().0);
    let loses = living().count() < usize::from(job.servers());
    found.names_have_inodes(lives);
    found.inodes_have_names(loses);
    found.parts_have_inodes(lives);
    found.wrong
}

fn kept_directories(
    job: &Job,
    server: u16,
) -> Result<BTreeMap<InodeId, Vec<ServerId>>, NamespaceError> {
    let (store, _) = job.storage(server);
    let names = Namespace::open(Arc::new(store), ServerId(server), Time::default())?;
    let txn = names.begin();
    let mut kept = BTreeMap::new();
    for inode in ops::inodes(&txn, None, RECORDS)? {
        let may_be = inode.kind == FileKind::Directory
            && inode.ino != InodeId::ROOT
            && !inode.ino.is_cached();
        if may_be && !ops::are_names_spread(&txn, inode.ino)? {
            let mut handed = ops::dir_shards(&txn, inode.ino)?;
            handed.retain(|shard| *shard != inode.ino.home());
            kept.insert(inode.ino, handed);
        }
    }
    Ok(kept)
}

impl Found {
    fn look(&mut self, job: &Job, server: u16) -> Result<(), NamespaceError> {
        let (store, parts) = job.storage(server);
        let names = Namespace::open(Arc::new(store), ServerId(server), Time::default())?;
        let txn = names.begin();
        for entry in ops::all_entries(&txn, &[], RECORDS)? {
            let shard = match self.kept.get(&entry.parent) {
                // Nobody asks for them there.
                Some(handed) if handed.contains(&ServerId(server)) => continue,
                Some(_) => entry.parent.home(),
                None => name_shard(entry.parent, ops::cookie(&entry.name), job.servers()),
            };
            if shard != ServerId(server) {
                self.wrong.push(format!("{:?} is at {server}, not at its shard", entry.name));
            }
            self.names.entry(entry.entry.ino).or_default().push((entry.parent, entry.name));
        }
        for inode in ops::inodes(&txn, None, RECORDS)? {
            let mut known = ops::names_of(&txn, inode.ino)?;
            known.sort();
            if inode.kind != FileKind::Directory && known.len() != inode.nlink as usize {
                let (ino, nlink) = (inode.ino, inode.nlink);
                self.wrong.push(format!("{ino} says {nlink} links and knows {known:?}"));
            }
            self.inodes.insert(inode.ino, inode);
        }
        let orphans = ops::orphans(&txn, RECORDS)?;
        if !orphans.is_empty() {
            self.wrong.push(format!("server {server} keeps orphans: {orphans:?}"));
        }
        let waits_for_the_lost = |intent: &ops::Intent| {
            (0..job.servers()).any(|other| job.is_gone(other)) && intent.id != 0
        };
        let intents = ops::intents(&txn)?;
        let left: Vec<_> =
            intents.into_iter().filter(|intent| !waits_for_the_lost(intent)).collect();
        if !left.is_empty() {
            self.wrong.push(format!("server {server} left half done: {left:?}"));
        }
        match parts.list() {
            Ok(list) => self.parts.extend(list.into_iter().map(|part| (ServerId(server), part))),
            Err(error) => self.wrong.push(format!("server {server} can not list parts: {error}")),
        }
        Ok(())
    }

    fn names_have_inodes(&mut self, lives: impl Fn(InodeId) -> bool) {
        for (ino, names) in self.names.iter().filter(|(ino, _)| lives(**ino)) {
            if !self.inodes.contains_key(ino) {
                self.wrong.push(format!("{names:?} stand for {ino}, which is not there"));
            }
        }
    }

    /// `loses`: names may have been at a node that is gone.
    fn inodes_have_names(&mut self, loses: bool) {
        for inode in self
            .inodes
            .values()
            .filter(|inode| ![InodeId::ROOT, InodeId::CACHE_ROOT].contains(&inode.ino))
        {
            let names = self.names.get(&inode.ino).map_or(0, Vec::len);
            let fits = match loses {
                true => names <= inode.nlink as usize,
                false => names == inode.nlink as usize,
            };
            if !fits {
                let (ino, nlink) = (inode.ino, inode.nlink);
                self.wrong.push(format!("{ino} says {nlink} links and has {names} names"));
            }
        }
    }

    fn parts_have_inodes(&mut self, lives: impl Fn(InodeId) -> bool) {
        for (server, part) in self.parts.iter().filter(|(_, part)| lives(part.ino)) {
            let fits = match self.inodes.get(&part.ino).map(|inode| &inode.layout) {
                Some(Layout::Whole) => part.ino.home() == *server && part.index == 0,
                Some(Layout::Striped { servers, .. }) => {
                    servers.get(usize::from(part.index)) == Some(server)
                }
                Some(_) => false,
                // Of a striped file that was removed.
                None => part.ino.home() != *server,
            };
            if !fits {
                self.wrong.push(format!("{part:?} at {server} belongs to nothing there"));
            }
        }
        for inode in self.inodes.values().filter(|inode| inode.layout == Layout::Whole) {
            let is_its = |(server, part): &&(ServerId, PartId)| {
                part.ino == inode.ino && *server == inode.ino.home()
            };
            if self.parts.iter().filter(is_its).count() != 1 {
                self.wrong.push(format!("{} has no part at its home", inode.ino));
            }
        }
    }
}
