//! The processes of this node: their arenas, their opens, and how to call them back.
//!
//! The home of an inode knows nodes, not processes: this table adds a node's processes up.

mod callbacks;
mod removing;
mod written_by_programs;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use hayase_layout::{InodeId, ServerId};
use hayase_ucx::Registration;
use hayase_wire::NodeChannel;
use hayase_wire::arena::Arena;
use hayase_wire::message::{
    Access, Callback, CallbackReply, Close, HeldLock, HeldOpen, NodeRequest, OpenKind, Opening,
    StillOpen,
};
use tokio::sync::{Notify, OnceCell, Semaphore};

use self::removing::RemovingIn;
use self::written_by_programs::WrittenByPrograms;
use crate::booked::Booked;
use crate::boxed::Local;
use crate::lent::LentSlots;
use crate::limits::TELL_WAIT;
use crate::network::Network;

/// Answers what the server asks of a mount; `None` once the mount is gone, as on a connection that has ended.
pub type AnswerCallback = dyn Fn(Callback) -> Local<Option<CallbackReply>>;

/// One process of this node.
pub(crate) struct Process {
    pub(crate) id: u64,
    /// Holds grants; anything else keeps nothing.
    pub(crate) mount: bool,
    pub(crate) arena: RefCell<Option<Rc<Arena>>>,
    /// The same at the network.
    registered: RefCell<Option<Registration>>,
    /// Its slots that are in use here.
    pub(crate) lent: Arc<LentSlots>,
    connections: Cell<usize>,
    /// It was here before, and has not said yet what it holds.
    untold: Cell<bool>,
    /// Inodes of which it held something that could not be given back: it may not go on as if it did.
    pub(crate) lost: RefCell<HashSet<InodeId>>,
    told: Notify,
    opens: RefCell<HashMap<InodeId, Booked>>,
    /// Directories that its kernel keeps locked while this server removes a name there.
    pub(crate) removing: RemovingIn,
    /// Homes that may know locks of it.
    pub(crate) lock_homes: RefCell<BTreeSet<ServerId>>,
    /// Servers that may remember answers to it.
    pub(crate) once_at: RefCell<BTreeSet<ServerId>>,
    /// Those on which nothing is asked at the moment.
    callbacks: RefCell<Vec<Callee>>,
    /// There is one; there is more than the last one.
    callee_idle: Notify,
    callee_spare: Notify,
    /// It has begun to look at files; the mounts have handed on what they had gathered.
    looks: Cell<bool>,
    pub(crate) mounts_handed_on: OnceCell<()>,
    /// Its last connection has ended.
    gone: Cell<bool>,
    /// For the one connection that its threads share at a time.
    pub(crate) sharing: Semaphore,
}

/// A way to ask a process.
pub(crate) enum Callee {
    /// Its callback connection.
    Socket(NodeChannel),
    /// It is this very process.
    Here(Rc<AnswerCallback>),
}

impl Callee {
    async fn ask(&mut self, callback: &Callback) -> Option<CallbackReply> {
        match self {
            Self::Socket(channel) => {
                let body = hayase_wire::encode(callback).ok()?;
                channel.send(&body, None).await.ok()?;
                let (body, _) = channel.recv().await.ok()?;
                hayase_wire::decode::<CallbackReply>(&body).ok()
            }
            Self::Here(answer) => answer(callback.clone()).await,
        }
    }
}

/// All processes of this node.
#[derive(Default)]
pub(crate) struct Clients {
    processes: RefCell<HashMap<u64, Rc<Process>>>,
    totals: RefCell<HashMap<InodeId, (u32, u32)>>,
    /// Opens that homes were asked for, ever.
    asked: Cell<u64>,
    /// Those that were not answered yet: one of an inode at a time.
    on_their_way: RefCell<HashMap<InodeId, Access>>,
    /// Files of which a mount here may gather what it writes.
    gathered: RefCell<BTreeSet<InodeId>>,
    /// Files that a program of this node has opened to change them while a mount that has them open did not answer: what
    /// that has gathered comes too late, until it closes them.
    too_late: RefCell<BTreeSet<InodeId>>,
    /// By processes that are no mounts.
    pub(crate) written_by_programs: WrittenByPrograms,
}

/// An open that its home is being asked for; nobody may think meanwhile that there is none.
pub(crate) struct OnItsWay<'a> {
    clients: &'a Clients,
    ino: InodeId,
    by_process: Opening,
    number: u64,
}

impl OnItsWay<'_> {
    /// As the home is asked: numbered by this node.
    pub(crate) fn by_node(&self) -> Opening {
        Opening { number: self.number, ..self.by_process }
    }

    /// The home agreed.
    pub(crate) fn booked(self, process: &Process) {
        self.clients.opened(process, self.ino, &self.by_process);
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.clients.on_their_way.borrow_mut().remove(&self.ino);
    }
}

impl Clients {
    /// The process with this number, known from now on until its last connection ends.
    pub(crate) fn process(&self, id: u64, mount: bool, returning: bool) -> Rc<Process> {
        let mut processes = self.processes.borrow_mut();
        let process = processes.entry(id).or_insert_with(|| {
            Rc::new(Process {
                id,
                mount,
                arena: RefCell::new(None),
                registered: RefCell::new(None),
                lent: Arc::default(),
                connections: Cell::new(0),
                untold: Cell::new(returning),
                lost: RefCell::default(),
                told: Notify::new(),
                opens: RefCell::default(),
                removing: RemovingIn::default(),
                lock_homes: RefCell::default(),
                once_at: RefCell::default(),
                callbacks: RefCell::default(),
                callee_idle: Notify::new(),
                callee_spare: Notify::new(),
                looks: Cell::new(false),
                mounts_handed_on: OnceCell::new(),
                gone: Cell::new(false),
                sharing: Semaphore::new(1),
            })
        });
        Rc::clone(process)
    }

    /// The process with this number, if it is still there.
    pub(crate) fn find(&self, id: u64) -> Option<Rc<Process>> {
        self.processes.borrow().get(&id).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.processes.borrow().len()
    }

    /// A connection of a process ended; whether it was the last one.
    pub(crate) fn left(&self, process: &Process) -> bool {
        process.connections.set(process.connections.get() - 1);
        if process.connections.get() > 0 {
            return false;
        }
        self.processes.borrow_mut().remove(&process.id);
        process.gone.set(true);
        process.callee_idle.notify_waiters();
        process.callee_spare.notify_waiters();
        true
    }

    /// What this node has open of an inode, all processes together.
    pub(crate) fn open_here(&self, ino: InodeId) -> Access {
        let totals = self.totals.borrow();
        let (readers, writers) = totals.get(&ino).copied().unwrap_or_default();
        Access { read: readers > 0, write: writers > 0 }
    }

    /// What this node tells a home that recalls: an open whose answer is on its way counts.
    fn still_open(&self, ino: InodeId) -> StillOpen {
        let here = self.open_here(ino);
        let coming = self.on_their_way.borrow().get(&ino).copied().unwrap_or_default();
        let access = Access { read: here.read || coming.read, write: here.write || coming.write };
        StillOpen { access, as_of: self.asked.get() }
    }

    /// Begins to ask a home for an open; the caller holds the inode's lock of opens.
    pub(crate) fn asks(&self, ino: InodeId, by_process: Opening) -> OnItsWay<'_> {
        self.asked.set(self.asked.get() + 1);
        self.on_their_way.borrow_mut().insert(ino, by_process.access);
        OnItsWay { clients: self, ino, by_process, number: self.asked.get() }
    }

    /// The number of the last open that a home was asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.get()
    }

    /// Numbers of opens grow over incarnations, too.
    pub(crate) fn numbering_from(incarnation: u64) -> Self {
        Self { asked: Cell::new(incarnation << 40), ..Self::default() }
    }

    /// What this node has open of inodes of one home.
    pub(crate) fn held_at(&self, home: ServerId, number: u64) -> Vec<HeldOpen> {
        let totals = self.totals.borrow();
        let held = totals.iter().filter(|(ino, _)| ino.home() == home);
        let access = |readers, writers| Access { read: readers > 0, write: writers > 0 };
        let mut opens: Vec<_> = held
            .map(|(ino, (readers, writers))| held_open(*ino, access(*readers, *writers), number))
            .collect();
        opens.sort_unstable_by_key(|held| held.ino);
        opens
    }

    fn opened(&self, process: &Process, ino: InodeId, open: &Opening) {
        let mut opens = process.opens.borrow_mut();
        let booked = opens.entry(ino).or_default();
        let held = booked.access();
        let mut totals = self.totals.borrow_mut();
        let total = totals.entry(ino).or_default();
        total.0 += u32::from(open.access.read && !held.read);
        total.1 += u32::from(open.access.write && !held.write);
        booked.book(open);
        if !process.mount && open.access.write && !held.write {
            self.written_by_programs.begin(ino);
        }
    }

    /// Books a close; returns what the whole node no longer has open.
    pub(crate) fn closed(&self, process: &Process, close: Close) -> Access {
        let mut opens = process.opens.borrow_mut();
        let Some(booked) = opens.get_mut(&close.ino) else { return Access::default() };
        let ended = booked.end(close.access, close.as_of);
        if !process.mount && ended.write {
            self.written_by_programs.end(close.ino);
        }
        if ended.write && process.mount {
            self.gathered.borrow_mut().remove(&close.ino);
            self.too_late.borrow_mut().remove(&close.ino);
        }
        if booked.is_empty() {
            opens.remove(&close.ino);
            process.lost.borrow_mut().remove(&close.ino);
        }
        let mut totals = self.totals.borrow_mut();
        let Some(total) = totals.get_mut(&close.ino) else { return Access::default() };
        total.0 -= u32::from(ended.read);
        total.1 -= u32::from(ended.write);
        let gone = Access { read: ended.read && total.0 == 0, write: ended.write && total.1 == 0 };
        if *total == (0, 0) {
            totals.remove(&close.ino);
        }
        gone
    }

    /// Whether its process was told that it has lost it.
    pub(crate) fn has_lost(&self, held: &HeldLock) -> bool {
        let process = self.find(held.process);
        held.ticket.is_none() && process.is_some_and(|p| p.lost.borrow().contains(&held.ino))
    }

    /// No process of this node but its mounts looks at files. (Two mounts of one node show none in common: the second
    /// is the private tree of a node without storage.)
    pub(crate) fn has_mounts_only(&self) -> bool {
        self.processes.borrow().values().all(|process| process.mount || !process.looks.get())
    }

    /// The mount of this node may gather what it writes to a file.
    pub(crate) fn begins_to_gather(&self, ino: InodeId) {
        self.gathered.borrow_mut().insert(ino);
    }

    /// Whether it may have, since it opened the file.
    pub(crate) fn may_gather(&self, ino: InodeId) -> bool {
        self.gathered.borrow().contains(&ino)
    }

    /// It may not: its home has refused, or there are others.
    pub(crate) fn does_not_gather(&self, ino: InodeId) {
        self.gathered.borrow_mut().remove(&ino);
    }

    /// Nothing more is taken of what mounts of this node have gathered of a file.
    pub(crate) fn take_no_more_gathered(&self, ino: InodeId) {
        if self.may_gather(ino) || self.written_by_mounts().contains(&ino) {
            self.too_late.borrow_mut().insert(ino);
        }
    }

    pub(crate) fn takes_gathered(&self, ino: InodeId) -> bool {
        !self.too_late.borrow().contains(&ino)
    }

    /// Files of which a mount of this node may have gathered something, as far as this life of the server can know.
    pub(crate) fn gathered(&self) -> BTreeSet<InodeId> {
        self.gathered.borrow().clone()
    }

    /// What mounts have open for writing.
    pub(crate) fn written_by_mounts(&self) -> BTreeSet<InodeId> {
        let processes = self.processes.borrow();
        let mounts = processes.values().filter(|process| process.mount);
        let opens = mounts.flat_map(|mount| mount.opens.borrow().clone());
        opens.filter(|(_, held)| held.access().write).map(|(ino, _)| ino).collect()
    }

    pub(crate) fn has_mounts(&self) -> bool {
        self.processes.borrow().values().any(|process| process.mount)
    }

    pub(crate) fn mounts(&self) -> Vec<Rc<Process>> {
        self.processes.borrow().values().filter(|process| process.mount).cloned().collect()
    }
}

impl Process {
    /// All that it has open, closed.
    pub(crate) fn closes(&self) -> Vec<Close> {
        let all = |(ino, held): (&InodeId, &Booked)| Close {
            ino: *ino,
            access: held.access(),
            as_of: u64::MAX,
        };
        self.opens.borrow().iter().map(all).collect()
    }

    /// From now on no mount of its node gathers anything.
    pub(crate) fn begins_to_look(&self) {
        self.looks.set(true);
    }

    pub(crate) fn connect(&self) {
        self.connections.set(self.connections.get() + 1);
    }

    /// It has brought its arena.
    pub(crate) fn take_arena(&self, arena: Arena, network: &Network) {
        *self.registered.borrow_mut() = network.register_arena(&arena);
        *self.arena.borrow_mut() = Some(Rc::new(arena));
    }

    /// It has said what it holds.
    pub(crate) fn has_told(&self) {
        self.untold.set(false);
        self.told.notify_waiters();
    }

    /// Waits until it has said what it holds, if the request depends on that. False when it does not.
    pub(crate) async fn may_ask(&self, request: &NodeRequest) -> bool {
        // Reads go on: giving pages back, which comes before telling, may wait for them.
        if matches!(request, NodeRequest::Reclaim(_) | NodeRequest::Read { .. }) {
            return true;
        }
        let told = async {
            loop {
                let told = self.told.notified();
                if !self.untold.get() {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(TELL_WAIT, told).await.is_ok()
    }

    /// What it had open as far as is known here, and has no more by its answer to a recall.
    pub(crate) fn no_longer_open(&self, ino: InodeId, still_open: StillOpen) -> Access {
        let booked = self.opens.borrow().get(&ino).copied().unwrap_or_default();
        booked.ended_by(still_open)
    }

    /// One more way on which this process answers.
    pub(crate) fn add_callback(&self, callee: Callee) {
        let idle = {
            let mut callbacks = self.callbacks.borrow_mut();
            callbacks.push(callee);
            callbacks.len()
        };
        self.callee_idle.notify_one();
        if idle > 1 {
            self.callee_spare.notify_one();
        }
    }

    /// Asks the process, on another way when one turns out to be dead; `None` when it is gone.
    pub(crate) async fn call(&self, callback: &Callback) -> Option<CallbackReply> {
        loop {
            let reply = self.call_once(callback).await;
            if reply.is_some() || self.gone.get() {
                return reply;
            }
        }
    }

    /// A way is with one caller or in the list: one whose caller gives up in the middle is out of
    /// step, and ends with the call. The last idle one is never for what waits for the kernel: on
    /// all the others may be asked what waits for this server, which may wait for what is asked then.
    async fn call_once(&self, callback: &Callback) -> Option<CallbackReply> {
        let (kept, returned) = match callback.waits_for_kernel() {
            true => (1, &self.callee_spare),
            false => (0, &self.callee_idle),
        };
        let mut callee = loop {
            let returned = returned.notified();
            let idle = {
                let mut callbacks = self.callbacks.borrow_mut();
                if callbacks.len() > kept { callbacks.pop() } else { None }
            };
            match idle {
                Some(callee) => break callee,
                None if self.gone.get() => return None,
                None => returned.await,
            }
        };
        let reply = callee.ask(callback).await?;
        self.add_callback(callee);
        Some(reply)
    }
}

/// An open of this node, as it is reported to its home again.
pub(crate) fn held_open(ino: InodeId, access: Access, number: u64) -> HeldOpen {
    let open = Opening { access, kind: OpenKind::Remote, number };
    HeldOpen { ino, open }
}

#[cfg(test)]
mod tests {
    use hayase_wire::message::Grants;
    use tokio::task::LocalSet;

    use super::*;
    use crate::limits::RECALL_DEADLINE;

    const WAYS: usize = 4;

    /// A mount whose kernel gives nothing back before `release` is told so.
    fn stuck_mount(release: &Rc<Notify>) -> Rc<Process> {
        let process = Clients::default().process(1, true, false);
        let release = Rc::clone(release);
        let answer: Rc<AnswerCallback> = Rc::new(move |callback: Callback| {
            let release = Rc::clone(&release);
            Box::pin(async move {
                Some(match callback {
                    Callback::LocksAt { .. } => CallbackReply::Holds { locks: Vec::new() },
                    _ => {
                        release.notified().await;
                        CallbackReply::Told
                    }
                })
            })
        });
        for _ in 0..WAYS {
            process.add_callback(Callee::Here(Rc::clone(&answer)));
        }
        process
    }

    #[tokio::test(start_paused = true)]
    async fn locks_are_told_while_every_recall_waits_for_the_kernel() {
        let test = async {
            let release = Rc::new(Notify::new());
            let process = stuck_mount(&release);
            let home = ServerId(1);
            let mut recalls = tokio::task::JoinSet::new();
            for number in 0..2 * WAYS {
                let process = Rc::clone(&process);
                recalls.spawn_local(async move {
                    let callback = match number % 3 {
                        0 => Callback::HomeLost { home },
                        1 => Callback::Recall { ino: InodeId(number as u64), bits: Grants::ALL },
                        _ => Callback::InvalName {
                            parent: InodeId::ROOT,
                            name: b"a".to_vec(),
                            busy: false,
                        },
                    };
                    process.call(&callback).await
                });
            }
            tokio::time::sleep(RECALL_DEADLINE).await;
            for _ in 0..3 {
                let asked = Callback::LocksAt { home };
                let told = tokio::time::timeout(RECALL_DEADLINE, process.call(&asked)).await;
                assert_eq!(told, Ok(Some(CallbackReply::Holds { locks: Vec::new() })));
            }
            tokio::task::spawn_local(async move {
                loop {
                    tokio::time::sleep(TELL_WAIT / 100).await;
                    release.notify_waiters();
                }
            });
            for _ in 0..2 * WAYS {
                let recall = tokio::time::timeout(RECALL_DEADLINE, recalls.join_next()).await;
                let recall = recall.expect("no recall is forgotten").expect("one is left");
                assert_eq!(recall.expect("no panic"), Some(CallbackReply::Told));
            }
            assert_eq!(process.callbacks.borrow().len(), WAYS);
        };
        LocalSet::new().run_until(test).await;
    }
}
