//! Blocks of files, read and overwritten from all nodes through opens of all kinds: `shared` is
//! sequential, so each block is a register (I3, I4 of the protocol page).

use std::rc::Rc;

use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_wire::message::Access;

use super::World;
use crate::check::register::{Register, RegisterStep};
use crate::history::History;
use crate::mount::{Handle, Mount, Outcome, Seat};
use crate::random::Random;

/// One page: blocks lie on different servers when the file is striped.
const STRIPE: u64 = 4096;
const BLOCKS: u64 = 2;
const OPENS: u64 = 8;
const CALLS_PER_OPEN: u64 = 3;

struct File {
    ino: InodeId,
    is_striped: bool,
    blocks: Vec<History<Register>>,
}

/// Two files, one whole and one striped, of two blocks each.
pub(crate) struct Registers {
    world: Rc<World>,
    files: Vec<File>,
}

impl Registers {
    pub(crate) async fn new(world: &Rc<World>) -> Rc<Self> {
        let striped = StripePolicy { stripe: ByteCount(STRIPE), width: 0 };
        let mut files = Vec::new();
        for (name, policy) in [("whole", None), ("striped", Some(striped))] {
            let mount = world.seats[0].mount();
            let ino = mount.create(name, policy).await.expect("nothing fails yet");
            let blocks = (0..BLOCKS).map(|_| History::default()).collect();
            files.push(File { ino, is_striped: policy.is_some(), blocks });
        }
        Rc::new(Self { world: Rc::clone(world), files })
    }

    /// One program on one node.
    pub(crate) async fn run(self: Rc<Self>, seat: Rc<Seat>, random: Random) {
        for _ in 0..OPENS {
            let file = random.pick(&self.files);
            let access = *random.pick(&[
                Access { read: true, write: false },
                Access { read: false, write: true },
                Access { read: true, write: true },
            ]);
            self.world.pause(&random).await;
            if seat.is_gone() {
                return;
            }
            let mount = seat.mount();
            let begins: Vec<_> = file.blocks.iter().map(History::tick).collect();
            let opened = self.world.call("open", mount.open(file.ino, access)).await;
            let Ok(handle) = opened else { continue };
            for (history, begin) in file.blocks.iter().zip(begins) {
                history.seen_by(seat.node, begin);
            }
            for _ in 0..CALLS_PER_OPEN {
                self.world.pause(&random).await;
                let writes = access.write && (!access.read || random.chance(50));
                self.step(&mount, &handle, file, random.below(BLOCKS), writes).await;
            }
            let _told_by_recall = self.world.call("close", mount.close(handle)).await;
        }
    }

    async fn step(&self, mount: &Mount, handle: &Handle, file: &File, block: u64, writes: bool) {
        let (history, offset) = (&file.blocks[block as usize], block * STRIPE);
        let begin = history.tick();
        if writes {
            let value = self.world.new_value();
            let lives = self.world.lives();
            let answer = self.world.call("write", mount.write(handle, offset, value)).await;
            // Sent again to each server that was started anew, it may have happened before, answered or not.
            let times = lives..=self.world.lives();
            match answer {
                // The home takes what was gathered once, or before anybody else is let at the file.
                Ok(fate) if fate.outcome() == Outcome::Kept || fate.may_be_lost() => {
                    history.acknowledged(begin, RegisterStep::Write(value), mount.node(), &fate);
                }
                Ok(_) => {
                    times.for_each(|_| history.answered(begin, RegisterStep::Write(value)));
                }
                Err(failure) if failure.is_unknown() => {
                    times.for_each(|_| history.unknown(begin, RegisterStep::Write(value)));
                }
                Err(failure) => self.world.violated(format!("a write was refused: {failure:?}")),
            }
        } else {
            match self.world.call("read", mount.read(handle, offset)).await {
                Ok(value) => history.answered(begin, RegisterStep::Read(value)),
                Err(failure) if failure.is_unknown() => {}
                Err(failure) => self.world.violated(format!("a read was refused: {failure:?}")),
            }
        }
    }

    /// Reads each block once more, once nobody writes.
    pub(crate) async fn check(&self) {
        let mount = self.world.survivor().mount();
        for (file, name) in self.files.iter().zip(["whole", "striped"]) {
            self.read_last(&mount, file).await;
            for (block, history) in file.blocks.iter().enumerate() {
                let what = format!("block {block} of the {name} file is no register:");
                self.world.check(&what, history, &Register);
            }
        }
    }

    async fn read_last(&self, mount: &Mount, file: &File) {
        let access = Access { read: true, write: false };
        if self.world.is_lost(file.ino) {
            return self.world.expect_lost("open", mount.open(file.ino, access)).await;
        }
        let open = || mount.open(file.ino, access);
        let Some(handle) = self.world.insist("open", file.ino, open).await else { return };
        for (history, block) in file.blocks.iter().zip(0..) {
            let read = || mount.read(&handle, block * STRIPE);
            let begin = history.tick();
            // Which of its blocks lie on a lost node is not known here.
            let value = match file.is_striped && self.world.has_losses() {
                true => self.world.call("read", read()).await.ok(),
                false => self.world.insist("read", file.ino, read).await,
            };
            if let Some(value) = value {
                history.answered(begin, RegisterStep::Read(value));
            }
        }
        let _told_by_recall = self.world.call("close", mount.close(handle)).await;
    }
}
