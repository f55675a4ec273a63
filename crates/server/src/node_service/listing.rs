//! Listing a directory: every shard that holds entries is asked, and the answers merged by cookie.

use std::collections::BTreeMap;
use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{
    DirEntry, DirectoryRequest, Entry, InodeRequest, NameRequest, NodeReply, PeerReply, Refused,
    ShardEntry,
};

use super::Served;
use crate::acl::AclRoom;
use crate::node::Node;
use crate::recorded::DIRECTORY;
use crate::refusals::{libc_errno, unexpected};

/// Names of one reply take at most this much, whatever was asked.
const BYTES_MAX: u32 = 64 << 10;

/// Containers are shown as the files whose bytes they hold.
fn is_hidden(dir: InodeId, entry: &ShardEntry) -> bool {
    dir == InodeId::ROOT && entry.name == DIRECTORY
}

/// Those that fit, in their order, and names of one cookie together.
fn at_most(bytes: u32, mut entries: Vec<ShardEntry>) -> Vec<ShardEntry> {
    let mut room = i64::from(bytes);
    let mut fit = 0;
    while fit < entries.len() {
        let same_cookie = fit > 0 && entries[fit].cookie == entries[fit - 1].cookie;
        if room <= 0 && !same_cookie {
            break;
        }
        room -= entries[fit].name.len() as i64 + 24;
        fit += 1;
    }
    entries.truncate(fit);
    entries
}

impl Node {
    pub(crate) async fn read_dir(
        self: &Rc<Self>,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Served {
        let bytes = bytes.clamp(1, BYTES_MAX);
        if dir.is_cached() && cookie == 0 {
            self.import_directory(dir).await?;
        }
        let mut merged = self.entries_after(dir, cookie, bytes).await?;
        if let [only] = &merged[..]
            && is_hidden(dir, only)
        {
            // No entries would be the end.
            merged = self.entries_after(dir, only.cookie, bytes).await?;
        }
        merged.retain(|entry| !is_hidden(dir, entry));
        let mut attributes = match plus {
            true => self.attributes_of(&merged).await,
            false => BTreeMap::new(),
        };
        let mut room = AclRoom::new();
        let entries = merged.into_iter().map(|entry| DirEntry {
            cookie: entry.cookie,
            ino: entry.binding.ino,
            kind: entry.binding.kind,
            entry: attributes
                .remove(&entry.binding.ino)
                .filter(|entry| room.takes(entry.attr.acls.as_deref())),
            name: entry.name,
        });
        Ok(NodeReply::Entries(entries.collect()))
    }

    async fn entries_after(
        self: &Rc<Self>,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
    ) -> Result<Vec<ShardEntry>, Refused> {
        let shards = match self.rpc.ask(dir.home(), DirectoryRequest::Shards { dir }).await {
            Ok(PeerReply::Kept) => match self.kept_entries_after(dir, cookie, bytes).await? {
                Some(entries) => return Ok(entries),
                None => self.rpc.ask(dir.home(), DirectoryRequest::Shards { dir }).await,
            },
            other => other,
        };
        match shards {
            Ok(PeerReply::Shards(shards)) => self.merge_shards(dir, cookie, bytes, &shards).await,
            Ok(other) => Err(unexpected(&other)),
            // Removed while it was open: nothing is in it.
            Err(refused) if refused.errno == libc_errno::ENOENT => Ok(Vec::new()),
            Err(refused) => Err(refused),
        }
    }

    /// Of a directory whose names are all at its home; `None` when they were spread meanwhile.
    async fn kept_entries_after(
        self: &Rc<Self>,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
    ) -> Result<Option<Vec<ShardEntry>>, Refused> {
        let list = NameRequest::List { dir, cookie, bytes, all: true };
        match self.rpc.ask(dir.home(), list).await? {
            PeerReply::Listing { entries, .. } => Ok(Some(at_most(bytes, entries))),
            PeerReply::Spread => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    async fn merge_shards(
        self: &Rc<Self>,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        shards: &[u16],
    ) -> Result<Vec<ShardEntry>, Refused> {
        let request = NameRequest::List { dir, cookie, bytes, all: false };
        let asked: Vec<_> = shards
            .iter()
            .map(|shard| tokio::task::spawn_local(self.rpc.ask(ServerId(*shard), request.clone())))
            .collect();
        let mut merged = Vec::new();
        // Beyond the last entry of a shard that has more, other shards' entries are not complete.
        let mut horizon = u64::MAX;
        for answer in asked {
            match answer.await.map_err(|_| Refused::new(libc_errno::EIO))?? {
                PeerReply::Listing { entries, end } => {
                    if !end && let Some(last) = entries.last() {
                        horizon = horizon.min(last.cookie);
                    }
                    merged.extend(entries);
                }
                other => return Err(unexpected(&other)),
            }
        }
        merged.retain(|entry| entry.cookie <= horizon);
        merged.sort_by(|left, right| (left.cookie, &left.name).cmp(&(right.cookie, &right.name)));
        Ok(at_most(bytes, merged))
    }

    /// Attributes of listed inodes, one question per home; those that can not be had are left out.
    async fn attributes_of(self: &Rc<Self>, entries: &[ShardEntry]) -> BTreeMap<InodeId, Entry> {
        let mut by_home: BTreeMap<ServerId, Vec<InodeId>> = BTreeMap::new();
        for entry in entries {
            by_home.entry(entry.binding.ino.home()).or_default().push(entry.binding.ino);
        }
        let asked: Vec<_> = by_home
            .into_iter()
            .map(|(home, inos)| {
                tokio::task::spawn_local(self.rpc.ask(home, InodeRequest::GetAttrMany(inos)))
            })
            .collect();
        let mut found = BTreeMap::new();
        for answer in asked {
            if let Ok(Ok(PeerReply::Attrs(attrs))) = answer.await {
                for Entry { attr, grants } in attrs.into_iter().flatten() {
                    found.insert(attr.ino, self.received(attr, grants));
                }
            }
        }
        found
    }
}
