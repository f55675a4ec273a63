//! Files that are written, renamed and synced before the power fails: what fsync(2) has answered for is
//! there afterwards.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_wire::message::Access;

use super::World;
use crate::check::synced::Synced;
use crate::mount::{Failure, Handle, Mount, Seat};
use crate::random::Random;

const STRIPE: u64 = 4096;
const BLOCKS: u64 = 2;
const CALLS: u64 = 40;

/// Each program's own file, by the name that it was made under.
pub(crate) struct SyncedFiles {
    world: Rc<World>,
    files: RefCell<BTreeMap<String, Synced>>,
}

impl SyncedFiles {
    pub(crate) fn new(world: &Rc<World>) -> Rc<Self> {
        Rc::new(Self { world: Rc::clone(world), files: RefCell::default() })
    }

    /// One program on one node, until its mount dies.
    pub(crate) async fn run(self: Rc<Self>, seat: Rc<Seat>, owner: u64, random: Random) {
        let (mount, first) = (seat.mount(), format!("synced-{owner}"));
        let striped = StripePolicy { stripe: ByteCount(STRIPE), width: 0 };
        let policy = random.chance(50).then_some(striped);
        let made = self.world.call("create", mount.create(&first, policy)).await;
        let Ok(ino) = made else { return };
        self.files.borrow_mut().insert(first.clone(), Synced::new(first.clone()));
        let access = Access { read: true, write: true };
        let Ok(handle) = self.world.call("open", mount.open(ino, access)).await else { return };
        for call in 0..CALLS {
            self.world.pause(&random).await;
            let went_on = match random.below(5) {
                0 | 1 => self.write(&mount, &handle, &first, random.below(BLOCKS)).await,
                2 | 3 => self.sync(&mount, ino, &first).await,
                _ => self.rename(&mount, &first, format!("synced-{owner}-{call}")).await,
            };
            if went_on.is_err() {
                return;
            }
        }
    }

    fn of(&self, first: &str, change: impl FnOnce(&mut Synced)) {
        change(self.files.borrow_mut().get_mut(first).expect("made before"));
    }

    async fn write(
        &self,
        mount: &Mount,
        handle: &Handle,
        first: &str,
        block: u64,
    ) -> Result<(), Failure> {
        let value = self.world.new_value();
        self.of(first, |file| file.writes(block, value));
        self.world.call("write", mount.write(handle, block * STRIPE, value)).await.map(drop)
    }

    async fn sync(&self, mount: &Mount, ino: InodeId, first: &str) -> Result<(), Failure> {
        // What is written meanwhile is none of its business: there is one program to a file.
        self.world.call("fsync", mount.fsync(ino)).await?;
        self.of(first, Synced::synced);
        Ok(())
    }

    async fn rename(&self, mount: &Mount, first: &str, to: String) -> Result<(), Failure> {
        let from = self.files.borrow()[first].name().to_owned();
        self.of(first, |file| file.renames(to.clone()));
        self.world.call("rename", mount.rename(&from, &to)).await.map(drop)
    }

    /// A name of a synced file, and what it stands for.
    async fn find<'a>(&self, mount: &Mount, file: &'a Synced) -> Option<(&'a str, InodeId)> {
        let mut failures = Vec::new();
        for name in file.names() {
            match self.world.call("lookup", mount.lookup(name)).await {
                Ok(ino) => return Some((name, ino)),
                Err(failure) => failures.push((name, failure)),
            }
        }
        self.world.violated(format!("a synced file is under none of its names: {failures:?}"));
        None
    }

    /// Looks for each file under its names, and at its blocks.
    pub(crate) async fn check(&self) {
        let mount = self.world.survivor().mount();
        for file in self.files.take().into_values() {
            if !file.is_synced() {
                continue;
            }
            let Some((name, ino)) = self.find(&mount, &file).await else { continue };
            let access = Access { read: true, write: false };
            let open = || mount.open(ino, access);
            let Some(handle) = self.world.insist("open", ino, open).await else { continue };
            for block in 0..BLOCKS {
                let read = || mount.read(&handle, block * STRIPE);
                let value = match file.has_durable(block) {
                    true => self.world.insist("read", ino, read).await,
                    false => self.world.call("read", read()).await.ok(),
                };
                if let Some(Err(why)) = value.map(|value| file.check(block, value)) {
                    self.world.violated(format!("{name}, block {block}: {why}"));
                }
            }
        }
    }
}
