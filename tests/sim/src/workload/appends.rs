//! Appends from all nodes to one file: each lands once, at a place of its own (I6, I12).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_wire::message::Access;

use super::World;
use crate::mount::{Fate, Outcome, Seat, VALUE_BYTES};
use crate::random::Random;

const APPENDS: u64 = 8;

/// Two files, one whole and one striped.
pub(crate) struct Appends {
    world: Rc<World>,
    /// Each with whether it is striped.
    files: Vec<(InodeId, bool, RefCell<Said>)>,
}

#[derive(Default)]
struct Said {
    /// Where answered appends landed, each with what became of it.
    answered: Vec<(u64, u64, Fate)>,
    /// The same, but for what was lost: offset -> value.
    landed: BTreeMap<u64, u64>,
    unknown: BTreeSet<u64>,
}

impl Appends {
    pub(crate) async fn new(world: &Rc<World>) -> Rc<Self> {
        let striped = StripePolicy { stripe: ByteCount(4096), width: 0 };
        let mut files = Vec::new();
        for (name, policy) in [("log", None), ("striped-log", Some(striped))] {
            let mount = world.seats[1].mount();
            let ino = mount.create(name, policy).await.expect("nothing fails yet");
            files.push((ino, policy.is_some(), RefCell::default()));
        }
        Rc::new(Self { world: Rc::clone(world), files })
    }

    /// One program on one node.
    pub(crate) async fn run(self: Rc<Self>, seat: Rc<Seat>, random: Random) {
        for _ in 0..APPENDS {
            self.world.pause(&random).await;
            if seat.is_gone() {
                return;
            }
            let mount = seat.mount();
            let (ino, _, said) = random.pick(&self.files);
            let access = Access { read: false, write: true };
            let Ok(handle) = self.world.call("open", mount.open(*ino, access)).await else {
                continue;
            };
            let value = self.world.new_value();
            match self.world.call("append", mount.append(&handle, value)).await {
                Ok((offset, fate)) => said.borrow_mut().answered.push((offset, value, fate)),
                Err(_) => drop(said.borrow_mut().unknown.insert(value)),
            }
            let _told_by_recall = self.world.call("close", mount.close(handle)).await;
        }
    }

    /// Reads what the files hold, once nobody writes.
    pub(crate) async fn check(&self) {
        let mount = self.world.survivor().mount();
        for (ino, is_striped, said) in &self.files {
            if *is_striped && self.world.has_losses() {
                continue; // Which of its places lie on a lost node is not known here.
            }
            let access = Access { read: true, write: false };
            let open = || mount.open(*ino, access);
            let Some(handle) = self.world.insist("open", *ino, open).await else { continue };
            let said = self.settled(said.take());
            let last = said.landed.keys().last().map_or(0, |offset| offset / VALUE_BYTES as u64);
            let places = last + said.unknown.len() as u64 + 2;
            let mut seen = BTreeMap::new();
            for place in 0..places {
                let offset = place * VALUE_BYTES as u64;
                let read = || mount.read(&handle, offset);
                let Some(value) = self.world.insist("read", *ino, read).await else { return };
                self.look(&said, offset, value, &mut seen);
            }
            for (offset, value) in &said.landed {
                if seen.get(value) != Some(offset) {
                    self.world.violated(format!("the append {value} is not at {offset}"));
                }
            }
        }
    }

    /// What was acknowledged and lost may have landed or not.
    fn settled(&self, mut said: Said) -> Said {
        let mut refused = 0;
        for (offset, value, fate) in std::mem::take(&mut said.answered) {
            if fate.may_be_lost() {
                refused += u64::from(fate.outcome() == Outcome::Refused);
                said.unknown.insert(value);
            } else if let Some(other) = said.landed.insert(offset, value) {
                self.world.violated(format!("{other} and {value} both at {offset}"));
            }
        }
        self.world.were_refused("appends:", refused);
        said
    }

    fn look(&self, said: &Said, offset: u64, value: u64, seen: &mut BTreeMap<u64, u64>) {
        if value == 0 {
            return;
        }
        let is_known = said.unknown.contains(&value) || said.landed.get(&offset) == Some(&value);
        if !is_known {
            self.world.violated(format!("nobody appended {value} at {offset}"));
        }
        if let Some(before) = seen.insert(value, offset) {
            self.world.violated(format!("the append {value} is at {before} and at {offset}"));
        }
    }
}
