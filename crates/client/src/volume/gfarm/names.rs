//! Names and attributes.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Answer, Kind, Request, SetTime, Stat, Time};
use hayase_wire::message::{
    AreaUse, FileKind, MetaChange, Name, NewNode, Refused, XattrMode, without_suidgid,
};

use super::data::Data;
use super::look_ahead::Look;
use super::metadata::Metadata;
use super::nodes::{Node, State};
use super::open_file::{Plain, TimesLater};
use super::opens::Opens;
use super::refused;
use crate::volume::Found;

/// What gfarm2fs tells of a path, and others ask for.
const URL: &[u8] = b"gfarm2fs.url";
const SCHEME: &[u8] = b"gfarm://";
/// Attributes of other kinds are the kernel's and not kept by Gfarm.
const KINDS: [&[u8]; 3] = [b"user.", b"gfarm.", b"gfarm_root."];

/// Names and attributes, as programs ask for them.
pub(super) struct Names {
    pub(super) metadata: Arc<Metadata>,
    pub(super) opens: Arc<Opens>,
    pub(super) data: Arc<Data>,
}

impl Names {
    pub(super) fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        let path = self.metadata.nodes().path_in(parent, name)?;
        let stat = match self.looked_ahead(parent, name) {
            Some(stat) => stat,
            None => self
                .metadata
                .stat(path.clone())
                .inspect_err(|_| self.metadata.look_ahead().missed(parent))?,
        };
        let mut node = self.metadata.nodes().seen(parent, name, stat);
        let unlinked = node.lock().file.unlinked;
        if unlinked {
            node = self.look_again(node, parent, name, path)?;
        }
        self.opens.follow(&node);
        Ok(self.metadata.found(&node))
    }

    /// What was fetched with others, just now or a moment ago, and is not open here: of that this host knows more.
    fn looked_ahead(&self, parent: InodeId, name: &[u8]) -> Option<Stat> {
        let stat = match self.metadata.look_ahead().look(parent, name) {
            Look::Known(stat) => stat,
            Look::Ask => return None,
            Look::Fetch(fetching) => {
                // What stands against it the look at the name itself is told.
                let names = self.metadata.entries(parent, fetching.window).unwrap_or_default();
                self.metadata.look_ahead().came(parent, name, &fetching, names)?
            }
        };
        (!self.metadata.nodes().is_open(stat.ino)).then_some(stat)
    }

    /// It lost its last name here: another host made this one, or it was removed during the look. What is told after the
    /// removal is true.
    fn look_again(
        &self,
        node: Arc<Node>,
        parent: InodeId,
        name: &[u8],
        path: Vec<u8>,
    ) -> Result<Arc<Node>, Refused> {
        let stat = self
            .metadata
            .stat(path)
            .inspect_err(|_| drop(self.metadata.nodes().unname(parent, name)))?;
        if stat.ino != node.gfarm {
            return Ok(self.metadata.nodes().seen(parent, name, stat));
        }
        let mut state = node.lock();
        state.seen = stat;
        state.file.unlinked = false;
        drop(state);
        Ok(node)
    }

    pub(super) fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        let node = self.metadata.nodes().get(ino)?;
        let (is_open, unlinked, is_known, asks) = {
            let state = node.lock();
            let (is_open, now) = (!state.file.slots.is_empty(), Instant::now());
            (is_open, state.file.unlinked, state.is_known(now), state.asks())
        };
        if (unlinked && is_open) || is_known {
            return Ok(self.metadata.found(&node));
        }
        match self.metadata.look_at(&node) {
            Ok((_, stat)) => {
                node.lock().told(stat, asks);
                self.opens.follow(&node);
            }
            // Its name is gone on another host: it is what it was, until it is released.
            Err(why) if is_open && why.errno == libc::ESTALE => node.lock().seen.nlink = 0,
            Err(why) => return Err(why),
        }
        Ok(self.metadata.found(&node))
    }

    pub(super) fn set_attributes(
        &self,
        ino: InodeId,
        change: &MetaChange,
    ) -> Result<Found, Refused> {
        if change.policy.is_some() {
            return Err(Refused::because(libc::EOPNOTSUPP, "a file of Gfarm lies whole on a host"));
        }
        let node = self.metadata.nodes().get(ino)?;
        if let Some(size) = change.size {
            self.data.truncate(&node, size)?;
        }
        let (is_nameless, mode) = {
            let state = node.lock();
            (state.file.unlinked && !state.file.slots.is_empty(), state.seen.mode)
        };
        let kills = change.kill_suidgid && without_suidgid(mode) != mode;
        let killed = kills.then(|| without_suidgid(mode));
        let change = &MetaChange { mode: change.mode.or(killed), kill_suidgid: false, ..*change };
        if is_nameless {
            note(&mut node.lock(), change, now());
        } else if (MetaChange { size: None, ..*change }) != MetaChange::default() {
            self.set_named(&node, change)?;
        }
        node.lock().changed();
        self.metadata.look_ahead().changed();
        self.attributes(ino)
    }

    /// Mode, owner and times, by its name.
    fn set_named(&self, node: &Node, change: &MetaChange) -> Result<(), Refused> {
        let path = self.metadata.own_path(node)?;
        if let Some(mode) = change.mode {
            self.metadata
                .done(&Request::SetMode { path: path.clone(), mode })
                .map_err(|why| self.metadata.gone(why))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid, change.gid);
            self.metadata
                .done(&Request::SetOwner { path: path.clone(), uid, gid })
                .map_err(|why| self.metadata.gone(why))?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let (atime, mtime) = (time_set(change.atime), time_set(change.mtime));
            set_times_later(&mut node.lock(), atime, mtime);
            self.metadata
                .done(&Request::SetTimes { path, atime, mtime })
                .map_err(|why| self.metadata.gone(why))?;
        }
        Ok(())
    }

    pub(super) fn make(&self, new: &NewNode) -> Result<Found, Refused> {
        let path = self.metadata.nodes().path_in(new.parent, &new.name)?;
        let there = path.clone();
        match (new.kind, &new.target) {
            (FileKind::Directory, _) => {
                self.metadata.done(&Request::MakeDirectory { path, mode: new.mode })?;
            }
            (FileKind::Symlink, Some(target)) => {
                self.metadata.done(&Request::Symlink { target: target.clone(), path })?;
            }
            (FileKind::Regular, _) => {
                let request = Request::Create { path, mode: new.mode, place: false, like: None };
                let opened = self.metadata.lanes().open(&request).map_err(refused)?;
                self.metadata.lanes().close(opened.file, None).map_err(refused)?;
            }
            _ => return Err(Refused::because(libc::EPERM, "Gfarm keeps no such files")),
        }
        self.metadata.names_changed(&[new.parent]);
        let stat = self.metadata.stat(there)?;
        Ok(self.metadata.found(&self.metadata.nodes().seen(new.parent, &new.name, stat)))
    }

    pub(super) fn link(
        &self,
        ino: InodeId,
        parent: InodeId,
        name: &[u8],
    ) -> Result<Found, Refused> {
        let (from, to) =
            (self.metadata.nodes().path(ino)?, self.metadata.nodes().path_in(parent, name)?);
        let there = to.clone();
        self.metadata.done(&Request::Link { from, to })?;
        self.metadata.names_changed(&[parent]);
        let stat = self.metadata.stat(there)?;
        Ok(self.metadata.found(&self.metadata.nodes().seen(parent, name, stat)))
    }

    pub(super) fn remove(
        &self,
        parent: InodeId,
        name: &[u8],
        directory: bool,
    ) -> Result<(), Refused> {
        let path = self.metadata.nodes().path_in(parent, name)?;
        let had = self.metadata.nodes().named(parent, name);
        let _using = had.as_ref().map(|node| self.opens.hold(node));
        self.metadata.done(&match directory {
            true => Request::RemoveDirectory { path },
            false => Request::Unlink { path },
        })?;
        self.metadata.names_changed(&[parent]);
        if let Some(node) = self.metadata.nodes().unname(parent, name) {
            lost_a_name(&node);
        }
        Ok(())
    }

    pub(super) fn rename(
        &self,
        from: &(InodeId, Name),
        to: &(InodeId, Name),
        flags: bool,
    ) -> Result<(), Refused> {
        if flags {
            return Err(Refused::because(libc::EINVAL, "Gfarm has one kind of rename"));
        }
        let (source, target) = (
            self.metadata.nodes().path_in(from.0, &from.1)?,
            self.metadata.nodes().path_in(to.0, &to.1)?,
        );
        let replaced = self.metadata.nodes().named(to.0, &to.1);
        let _using = replaced.as_ref().map(|node| self.opens.hold(node));
        self.metadata.done(&Request::Rename { from: source, to: target })?;
        self.metadata.names_changed(&[from.0, to.0]);
        if let Some(node) = self.metadata.nodes().renamed(from, to) {
            lost_a_name(&node);
        }
        Ok(())
    }

    pub(super) fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        self.metadata
            .bytes(&Request::ReadLink { path: self.metadata.nodes().path(ino)? })
            .map_err(|why| self.metadata.gone(why))
    }

    pub(super) fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        if name == URL {
            let path = self.metadata.nodes().path(ino)?;
            let scheme = if path.starts_with(SCHEME) { &[][..] } else { SCHEME };
            return Ok([scheme, &path].concat());
        }
        check_kind(name)?;
        self.metadata
            .bytes(&Request::Xattr { path: self.metadata.nodes().path(ino)?, name: name.to_vec() })
    }

    pub(super) fn set_xattr(
        &self,
        ino: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Refused> {
        check_kind(name)?;
        let flags = match mode {
            XattrMode::Set => 0,
            XattrMode::Create => libc::XATTR_CREATE,
            XattrMode::Replace => libc::XATTR_REPLACE,
        };
        let path = self.metadata.own_path(&*self.metadata.nodes().get(ino)?)?;
        let request = Request::SetXattr { path, name: name.to_vec(), flags };
        self.metadata.lanes().call(&request, value).map(drop).map_err(refused)
    }

    pub(super) fn xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        let names =
            self.metadata.bytes(&Request::Xattrs { path: self.metadata.nodes().path(ino)? })?;
        let names = names.split(|&byte| byte == 0);
        Ok(names.filter(|name| check_kind(name).is_ok()).map(<[u8]>::to_vec).collect())
    }

    pub(super) fn remove_xattr(&self, ino: InodeId, name: &[u8]) -> Result<(), Refused> {
        check_kind(name)?;
        let path = self.metadata.own_path(&*self.metadata.nodes().get(ino)?)?;
        self.metadata.done(&Request::RemoveXattr { path, name: name.to_vec() })
    }

    pub(super) fn usage(&self) -> Result<AreaUse, Refused> {
        let path = self.metadata.nodes().path(InodeId::ROOT)?;
        match self.metadata.lanes().call(&Request::Room { path }, &[]).map_err(refused)? {
            (Answer::Room { used, free, files }, _) => {
                let bytes = |kib: u64| kib.saturating_mul(1024);
                let total = bytes(used).saturating_add(bytes(free));
                Ok(AreaUse { total, free: bytes(free), inodes: files, inodes_free: 0 })
            }
            _ => Err(Refused::because(libc::EIO, "the server did not say how much room there is")),
        }
    }
}

fn check_kind(name: &[u8]) -> Result<(), Refused> {
    match KINDS.iter().any(|kind| name.starts_with(kind)) {
        true => Ok(()),
        false => Err(Refused::new(libc::EOPNOTSUPP)),
    }
}

fn lost_a_name(node: &Arc<Node>) {
    let mut state = node.lock();
    state.seen.nlink = state.seen.nlink.saturating_sub(1);
    if state.seen.nlink == 0 && state.seen.kind == Kind::File {
        state.file.unlinked = true;
    }
}

/// Of an open file without a name: Gfarm can not be told, and nobody else sees it.
fn note(state: &mut State, change: &MetaChange, now: Time) {
    let time = |was: Time, set| match time_set(set) {
        SetTime::Keep => was,
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    set_times_later(state, time_set(change.atime), time_set(change.mtime));
    let seen = &mut state.seen;
    seen.mode = change.mode.unwrap_or(seen.mode);
    seen.uid = change.uid.unwrap_or(seen.uid);
    seen.gid = change.gid.unwrap_or(seen.gid);
    seen.atime = time(seen.atime, change.atime);
    seen.mtime = time(seen.mtime, change.mtime);
    seen.ctime = now;
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs().cast_signed(), since.subsec_nanos())
}

/// Its close would put others in their place, when it is written.
fn set_times_later(state: &mut State, atime: SetTime, mtime: SetTime) {
    if (atime, mtime) != (SetTime::Keep, SetTime::Keep) && state.file.has_writers() {
        let plain = state.file.writes.as_ref().and_then(|writes| Plain::of(writes).ok());
        state.file.times = Some(TimesLater { atime, mtime, plain });
    }
}

fn time_set(time: Option<hayase_wire::message::SetTime>) -> SetTime {
    match time {
        None => SetTime::Keep,
        Some(hayase_wire::message::SetTime::Now) => SetTime::Now,
        Some(hayase_wire::message::SetTime::To(time)) => SetTime::To((time.seconds, time.nanos)),
    }
}
