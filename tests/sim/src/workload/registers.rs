//! Blocks of files, read and overwritten from all nodes through opens of all kinds: `shared` is
//! sequential, so each block is a register (I3, I4 of the protocol page).

use std::rc::Rc;

use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_wire::message::Access;

use super::{World, pause};
use crate::check::register::{Register, RegisterStep};
use crate::history::History;
use crate::mount::{Handle, Mount};
use crate::random::Random;

/// One page: blocks lie on different servers when the file is striped.
const STRIPE: u64 = 4096;
const BLOCKS: u64 = 2;
const OPENS: u64 = 8;
const CALLS_PER_OPEN: u64 = 3;

struct File {
    ino: InodeId,
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
            let ino = world.mounts[0].create(name, policy).await.expect("nothing fails yet");
            let blocks = (0..BLOCKS).map(|_| History::default()).collect();
            files.push(File { ino, blocks });
        }
        Rc::new(Self { world: Rc::clone(world), files })
    }

    /// One program on one node.
    pub(crate) async fn run(self: Rc<Self>, mount: Rc<Mount>, random: Random) {
        for _ in 0..OPENS {
            let file = random.pick(&self.files);
            let access = *random.pick(&[
                Access { read: true, write: false },
                Access { read: false, write: true },
                Access { read: true, write: true },
            ]);
            pause(&random).await;
            let opened = self.world.call("open", mount.open(file.ino, access)).await;
            let Ok(handle) = opened else { continue };
            for _ in 0..CALLS_PER_OPEN {
                pause(&random).await;
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
            match self.world.call("write", mount.write(handle, offset, value)).await {
                Ok(()) => history.answered(begin, RegisterStep::Write(value)),
                Err(failure) if failure.is_unknown() => {
                    history.unknown(begin, RegisterStep::Write(value));
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

    pub(crate) fn check(&self) {
        for (file, name) in self.files.iter().zip(["whole", "striped"]) {
            for (block, history) in file.blocks.iter().enumerate() {
                let what = format!("block {block} of the {name} file is no register:");
                self.world.check(&what, history.check(&Register));
            }
        }
    }
}
