//! A counter under a lock, from all nodes: nobody else holds it meanwhile, no increment is lost (I7).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::Access;

use super::World;
use crate::check::counter::{Counter, CounterStep};
use crate::history::History;
use crate::kind::Kind;
use crate::mount::{Fate, Mount, Seat};
use crate::random::Random;

const ROUNDS: u64 = 4;

/// One file that is a counter.
pub(crate) struct Locks {
    world: Rc<World>,
    ino: InodeId,
    holder: RefCell<Option<Holder>>,
    history: History<Counter>,
    /// Increments that were answered, and those that were not.
    done: RefCell<Vec<Fate>>,
    unknown: Cell<u64>,
}

/// Who was granted the lock last, and how often its node had been cut off by then.
struct Holder {
    owner: u64,
    mount: Rc<Mount>,
    cuts: u64,
}

impl Locks {
    pub(crate) async fn new(world: &Rc<World>) -> Rc<Self> {
        let mount = world.seats[2].mount();
        let ino = mount.create("counter", None).await.expect("nothing fails yet");
        Rc::new(Self {
            world: Rc::clone(world),
            ino,
            holder: RefCell::default(),
            history: History::default(),
            done: RefCell::default(),
            unknown: Cell::new(0),
        })
    }

    /// One program on one node.
    pub(crate) async fn run(self: Rc<Self>, seat: Rc<Seat>, owner: u64, random: Random) {
        for _ in 0..ROUNDS {
            self.world.pause(&random).await;
            if seat.is_gone() {
                return;
            }
            let mount = seat.mount();
            let ticket = mount.ticket();
            let lock = mount.lock(self.ino, owner, ticket);
            match self.world.call(&format!("lock {owner} t{ticket}"), lock).await {
                Ok(()) => {
                    self.hold(owner, &mount);
                    self.increment(&mount, &random).await;
                    self.give_up(owner);
                }
                Err(_) if !mount.is_dead() => {
                    let cancel = || mount.cancel(self.ino, ticket);
                    let what = format!("cancel {owner} t{ticket}");
                    self.world.insist(&what, self.ino, cancel).await;
                }
                Err(_) => {}
            }
            // Also when nobody knows whether it was granted: who is not told must not keep it.
            if !mount.is_dead() {
                let unlock = || async {
                    match mount.unlock(self.ino, owner).await {
                        Err(_) if mount.is_dead() => Ok(()),
                        done => done,
                    }
                };
                self.world.insist("unlock", self.ino, unlock).await;
            }
        }
    }

    /// Nobody else may hold it. Where nodes may be taken for lost without knowing it, that is not asked:
    /// what such a one writes is refused, which the counter tells.
    fn hold(&self, owner: u64, mount: &Rc<Mount>) {
        let holder = Holder { owner, mount: Rc::clone(mount), cuts: mount.cuts() };
        let may_be_lost = matches!(self.world.kind(), Kind::Cuts | Kind::Losses);
        let holder = Some(holder).filter(|_| !may_be_lost && !mount.is_in_trouble());
        if let Some(before) = self.holder.replace(holder)
            && before.mount.holds(self.ino, before.owner, before.cuts)
        {
            self.world.violated(format!("{owner} and {} both hold the lock", before.owner));
        }
    }

    fn give_up(&self, owner: u64) {
        let mut holder = self.holder.borrow_mut();
        holder.take_if(|holder| holder.owner == owner);
    }

    async fn increment(&self, mount: &Mount, random: &Random) {
        let access = Access { read: true, write: true };
        let begin = self.history.tick();
        let Ok(handle) = self.world.call("open", mount.open(self.ino, access)).await else {
            return;
        };
        self.history.seen_by(mount.node(), begin);
        let begin = self.history.tick();
        if let Ok(value) = self.world.call("read", mount.read(&handle, 0)).await {
            self.history.answered(begin, CounterStep::Read(value));
            self.world.pause(random).await;
            let (begin, step) = (self.history.tick(), CounterStep::WriteAfter(value));
            match self.world.call("write", mount.write(&handle, 0, value + 1)).await {
                Ok(fate) => {
                    self.history.acknowledged(begin, step, mount.node(), &fate);
                    self.done.borrow_mut().push(fate);
                }
                Err(_) => {
                    self.history.unknown(begin, step);
                    self.unknown.set(self.unknown.get() + 1);
                }
            }
        }
        let _told_by_recall = self.world.call("close", mount.close(handle)).await;
    }

    /// Reads the counter, once nobody writes.
    pub(crate) async fn check(&self) {
        let mount = self.world.survivor().mount();
        let access = Access { read: true, write: false };
        let open = || mount.open(self.ino, access);
        if let Some(handle) = self.world.insist("open", self.ino, open).await {
            let begin = self.history.tick();
            let read = || mount.read(&handle, 0);
            let Some(value) = self.world.insist("read", self.ino, read).await else { return };
            self.history.answered(begin, CounterStep::Read(value));
            let done = self.done.borrow();
            let lost = done.iter().filter(|fate| fate.may_be_lost()).count() as u64;
            let (done, unknown) = (done.len() as u64 - lost, self.unknown.get() + lost);
            if value < done || value > done + unknown {
                self.world.violated(format!(
                    "{done} increments under the lock, and {unknown} of which nobody knows, made {value}"
                ));
            }
        }
        self.world.check("the counter under the lock:", &self.history, &Counter);
    }
}
