//! A few names, made, looked up, removed and renamed from all nodes (I9).

use std::rc::Rc;

use super::World;
use crate::check::names::{Bound, Names as Directory, NamesStep};
use crate::history::History;
use crate::mount::{Failure, Mount, Seat};
use crate::random::Random;

const NAMES: u64 = 3;
const CALLS: u64 = 8;

const EEXIST: i32 = 17;
const ENOENT: i32 = 2;

/// Names of the root that only this workload uses.
pub(crate) struct Names {
    world: Rc<World>,
    history: History<Directory>,
}

fn text(name: u8) -> String {
    format!("name-{name}")
}

impl Names {
    pub(crate) fn new(world: &Rc<World>) -> Rc<Self> {
        Rc::new(Self { world: Rc::clone(world), history: History::default() })
    }

    /// One program on one node.
    pub(crate) async fn run(self: Rc<Self>, seat: Rc<Seat>, random: Random) {
        for _ in 0..CALLS {
            self.world.pause(&random).await;
            if seat.is_gone() {
                return;
            }
            let mount = seat.mount();
            let name = || random.below(NAMES) as u8;
            match random.below(5) {
                0 | 1 => self.create(&mount, name()).await,
                2 => self.lookup(&mount, name()).await,
                3 => self.unlink(&mount, name()).await,
                _ => {
                    let from = name();
                    let to = (from + 1 + random.below(NAMES - 1) as u8) % NAMES as u8;
                    self.rename(&mount, from, to).await;
                }
            }
        }
    }

    async fn create(&self, mount: &Mount, name: u8) {
        let begin = self.history.tick();
        match self.world.call("create", mount.create(&text(name), None)).await {
            Ok(ino) => {
                let made = Some(Bound::To(ino.0));
                self.history.answered(begin, NamesStep::Create { name, made });
            }
            Err(Failure::Refused(EEXIST)) => {
                self.history.answered(begin, NamesStep::Create { name, made: None });
            }
            Err(failure) if failure.is_unknown() => {
                let made = Some(Bound::Untold(begin));
                self.history.unknown(begin, NamesStep::Create { name, made });
            }
            Err(failure) => self.world.violated(format!("create {name}: {failure:?}")),
        }
    }

    async fn lookup(&self, mount: &Mount, name: u8) {
        let begin = self.history.tick();
        let found = match self.world.call("lookup", mount.lookup(&text(name))).await {
            Ok(ino) => Some(ino.0),
            Err(Failure::Refused(ENOENT)) => None,
            Err(failure) if failure.is_unknown() => return,
            Err(failure) => {
                return self.world.violated(format!("lookup {name}: {failure:?}"));
            }
        };
        self.history.answered(begin, NamesStep::Lookup { name, found });
    }

    async fn unlink(&self, mount: &Mount, name: u8) {
        let begin = self.history.tick();
        let was = match self.world.call("unlink", mount.unlink(&text(name))).await {
            Ok(ino) => Some(ino.0),
            Err(Failure::Refused(ENOENT)) => None,
            Err(failure) if failure.is_unknown() => {
                return self.history.unknown(begin, NamesStep::UnlinkUntold { name });
            }
            Err(failure) => {
                return self.world.violated(format!("unlink {name}: {failure:?}"));
            }
        };
        self.history.answered(begin, NamesStep::Unlink { name, was });
    }

    async fn rename(&self, mount: &Mount, from: u8, to: u8) {
        let begin = self.history.tick();
        let renamed = self.world.call("rename", mount.rename(&text(from), &text(to))).await;
        let moved = match renamed {
            Ok((moved, replaced)) => Some((moved.0, replaced.map(|ino| ino.0))),
            Err(Failure::Refused(ENOENT)) => None,
            Err(failure) if failure.is_unknown() => {
                return self.history.unknown(begin, NamesStep::RenameUntold { from, to });
            }
            Err(failure) => {
                return self.world.violated(format!("rename {from} {to}: {failure:?}"));
            }
        };
        self.history.answered(begin, NamesStep::Rename { from, to, moved });
    }

    /// Looks each name up once more, once nobody changes them.
    pub(crate) async fn check(&self) {
        let mount = self.world.survivor().mount();
        for name in 0..NAMES as u8 {
            for _ in 0..20 {
                let begin = self.history.tick();
                let found = match self.world.call("lookup", mount.lookup(&text(name))).await {
                    Ok(ino) => Some(ino.0),
                    Err(Failure::Refused(ENOENT)) => None,
                    Err(_) => continue,
                };
                self.history.answered(begin, NamesStep::Lookup { name, found });
                break;
            }
        }
        self.world.check("the names can not have been so:", &self.history, &Directory);
    }
}
