//! The parts of one server: their bytes, their room, and which of them are durable (object storage target).
//!
//! Here: the state that all of it shares. [`bytes`]: reads and writes of a part, past the page cache ([`direct`]) or through
//! it ([`crate::disk`]), and which writes exclude each other ([`ranges`]). [`parts`]: requests about whole parts. [`removal`]: their
//! end. [`usage`]: free room; [`kept_room`]: room behind the ends of files. [`unsynced`]: what a power cut may have taken.
//! Not here: where the bytes of a file lie, who may write them now (the homes of inodes).

mod bytes;
pub(crate) mod direct;
pub(crate) mod kept_room;
mod parts;
pub(crate) mod ranges;
mod removal;
pub(crate) mod unsynced;
pub(crate) mod usage;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::{Area, Parts, Removal, SlotPool};
use hayase_wire::message::MachineLife;

pub(crate) use self::bytes::LocalUsers;
use self::direct::DirectIo;
use self::kept_room::KeptRoom;
use self::ranges::Ranges;
use self::unsynced::UnsyncedParts;
use self::usage::Usage;
use crate::activity::Activity;
use crate::disk::Disk;
use crate::meta::Meta;

/// What the parts of a server stand on.
pub(crate) struct Storage {
    pub(crate) parts: Parts,
    pub(crate) area: Rc<dyn Area>,
    pub(crate) disk: Rc<Disk>,
    /// Buffers, and whether transfers may pass by the page cache.
    pub(crate) direct_io: (SlotPool, bool),
    /// Of this machine.
    pub(crate) life: MachineLife,
}

/// See the module.
pub(crate) struct Data {
    me: ServerId,
    /// Starts of this server, this one included.
    incarnation: u64,
    meta: Rc<Meta>,
    activity: Rc<Activity>,
    pub(crate) parts: Arc<Parts>,
    /// Parts on their way out: they go when the end of their names is durable.
    removal: Arc<Removal>,
    pub(crate) area: Rc<dyn Area>,
    pub(crate) disk: Rc<Disk>,
    pub(crate) direct: DirectIo,
    /// What moves between parts and buffers.
    pub(crate) ranges: Ranges,
    pub(crate) kept_room: KeptRoom,
    pub(crate) usage: Usage,
    /// Parts of striped files of the cache area here that were written since they were synced.
    pub(crate) unsynced: UnsyncedParts,
    /// Truncate epochs of striped parts here: writes of earlier ones are refused.
    epochs: RefCell<HashMap<InodeId, u32>>,
    pub(crate) life: MachineLife,
}

impl Data {
    pub(crate) fn new(
        (me, incarnation): (ServerId, u64),
        storage: Storage,
        meta: &Rc<Meta>,
        activity: &Rc<Activity>,
    ) -> Rc<Self> {
        let Storage { parts, area, disk, direct_io: (slots, may_pass_by), life } = storage;
        let is_empty = parts.list().is_ok_and(|parts| parts.is_empty());
        let parts = Arc::new(parts);
        Rc::new(Self {
            me,
            incarnation,
            removal: Arc::new(Removal::new(Arc::clone(meta.store()), Arc::clone(&parts))),
            usage: Usage::new(&area, is_empty),
            unsynced: UnsyncedParts::new(meta, &parts, &disk),
            meta: Rc::clone(meta),
            activity: Rc::clone(activity),
            parts,
            area,
            direct: DirectIo::new(slots, may_pass_by && disk.waits()),
            disk,
            ranges: Ranges::default(),
            kept_room: KeptRoom::default(),
            epochs: RefCell::default(),
            life,
        })
    }
}
