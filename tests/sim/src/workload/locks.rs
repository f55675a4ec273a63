//! A counter under a lock, from all nodes: nobody else holds it meanwhile, no increment is lost (I7).

use std::cell::Cell;
use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::Access;

use super::{World, pause};
use crate::mount::Mount;
use crate::random::Random;

const ROUNDS: u64 = 4;

/// One file that is a counter.
pub(crate) struct Locks {
    world: Rc<World>,
    ino: InodeId,
    holder: Cell<Option<u64>>,
    /// Increments that were answered, and those that were not.
    done: Cell<u64>,
    unknown: Cell<u64>,
}

impl Locks {
    pub(crate) async fn new(world: &Rc<World>) -> Rc<Self> {
        let ino = world.mounts[2].create("counter", None).await.expect("nothing fails yet");
        let (holder, done, unknown) = (Cell::new(None), Cell::new(0), Cell::new(0));
        Rc::new(Self { world: Rc::clone(world), ino, holder, done, unknown })
    }

    /// One program on one node.
    pub(crate) async fn run(self: Rc<Self>, mount: Rc<Mount>, owner: u64, random: Random) {
        for _ in 0..ROUNDS {
            pause(&random).await;
            let ticket = mount.ticket();
            match self
                .world
                .call(&format!("lock {owner} t{ticket}"), mount.lock(self.ino, owner, ticket))
                .await
            {
                Ok(()) => {
                    if let Some(other) = self.holder.replace(Some(owner)) {
                        self.world.violated(format!("{owner} and {other} both hold the lock"));
                    }
                    self.increment(&mount, &random).await;
                    self.holder.set(None);
                }
                Err(_) => {
                    self.world
                        .insist(&format!("cancel {owner} t{ticket}"), || {
                            mount.cancel(self.ino, ticket)
                        })
                        .await;
                }
            }
            // Also when nobody knows whether it was granted: who is not told must not keep it.
            self.world.insist("unlock", || mount.unlock(self.ino, owner)).await;
        }
    }

    async fn increment(&self, mount: &Mount, random: &Random) {
        let access = Access { read: true, write: true };
        let Ok(handle) = self.world.call("open", mount.open(self.ino, access)).await else {
            return;
        };
        if let Ok(value) = self.world.call("read", mount.read(&handle, 0)).await {
            pause(random).await;
            let counted = match self.world.call("write", mount.write(&handle, 0, value + 1)).await {
                Ok(()) => &self.done,
                Err(_) => &self.unknown,
            };
            counted.set(counted.get() + 1);
        }
        let _told_by_recall = self.world.call("close", mount.close(handle)).await;
    }

    /// Reads the counter, once nobody writes.
    pub(crate) async fn check(&self, mount: &Mount) {
        let access = Access { read: true, write: false };
        let open = || mount.open(self.ino, access);
        let Some(handle) = self.world.insist("open", open).await else { return };
        let Some(value) = self.world.insist("read", || mount.read(&handle, 0)).await else {
            return;
        };
        let (done, unknown) = (self.done.get(), self.unknown.get());
        if unknown == 0 && value != done {
            self.world.violated(format!("{done} increments under the lock made {value}"));
        }
    }
}
