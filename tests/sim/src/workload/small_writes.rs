//! Files that one node at a time mostly writes, value by value, while others look at them now and then: what mounts
//! gather. Bytes, places of appends and lengths are those of one plain file (I3, I5, I6).

use std::rc::Rc;
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_wire::message::Access;

use super::World;
use crate::check::small_file::{SmallFile, SmallFileStep};
use crate::history::History;
use crate::mount::{Failure, Handle, Mount, Outcome, Seat, VALUE_BYTES};
use crate::random::Random;

const PLACES: u64 = 10;
const OPENS: u64 = 4;
const CALLS_PER_OPEN: u64 = 6;

/// Of 100 opens: of another node's file.
const ELSEWHERE: u64 = 35;

struct File {
    ino: InodeId,
    history: History<SmallFile>,
}

/// As many files as nodes.
pub(crate) struct SmallWrites {
    world: Rc<World>,
    files: Vec<File>,
}

impl SmallWrites {
    pub(crate) async fn new(world: &Rc<World>) -> Rc<Self> {
        let mut files = Vec::new();
        for seat in &world.seats {
            let name = format!("small-{}", seat.node);
            let ino = seat.mount().create(&name, None).await.expect("nothing fails yet");
            files.push(File { ino, history: History::default() });
        }
        Rc::new(Self { world: Rc::clone(world), files })
    }

    /// The one program of a node.
    pub(crate) async fn run(self: Rc<Self>, seat: Rc<Seat>, random: Random) {
        for _ in 0..OPENS {
            // Mostly one whose home is another node.
            let own = (usize::from(seat.node) + 1) % self.files.len();
            let is_own = !random.chance(ELSEWHERE);
            let file = if is_own { &self.files[own] } else { random.pick(&self.files) };
            self.world.pause(&random).await;
            if seat.is_gone() {
                return;
            }
            let mount = seat.mount();
            let calls = if is_own { CALLS_PER_OPEN } else { 2 };
            self.visit(&mount, file, (is_own || random.chance(30), calls), &random).await;
        }
    }

    async fn visit(
        &self,
        mount: &Mount,
        file: &File,
        (writes, calls): (bool, u64),
        random: &Random,
    ) {
        if random.chance(20) {
            return self.size(mount, file).await;
        }
        let begin = file.history.tick();
        let access = Access { read: true, write: writes };
        let opened = self.world.call("open", mount.open(file.ino, access)).await;
        let Ok(handle) = opened else { return };
        file.history.seen_by(mount.node(), begin);
        let mut next = random.below(PLACES);
        for _ in 0..calls {
            tokio::time::sleep(random.time(self.world.kind().pause() / 2)).await;
            match random.below(20) {
                0 | 1 => self.size(mount, file).await,
                2 | 3 => self.read(mount, &handle, file, random.below(PLACES)).await,
                _ if !writes => self.read(mount, &handle, file, random.below(PLACES)).await,
                4 => self.empty(mount, file).await,
                5 => drop(self.world.call("fsync", mount.fsync(file.ino)).await),
                6..=8 => self.append(mount, &handle, file).await,
                _ => {
                    self.write(mount, &handle, file, next).await;
                    next = (next + 1) % PLACES;
                }
            }
        }
        if random.chance(30) {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let _told_by_recall = self.world.call("close", mount.close(handle)).await;
    }

    async fn write(&self, mount: &Mount, handle: &Handle, file: &File, place: u64) {
        let (begin, value) = (file.history.tick(), self.world.new_value());
        let step = SmallFileStep::Write { place: place as usize, value };
        let lives = self.world.lives();
        let written = mount.write(handle, place * VALUE_BYTES as u64, value);
        let answer = self.world.call("write", written).await;
        // As of registers.
        let times = lives..=self.world.lives();
        match answer {
            Ok(fate) if fate.outcome() == Outcome::Kept || fate.may_be_lost() => {
                file.history.acknowledged(begin, step, mount.node(), &fate);
            }
            Ok(_) => times.for_each(|_| file.history.answered(begin, step.clone())),
            Err(failure) if failure.is_unknown() => {
                times.for_each(|_| file.history.unknown(begin, step.clone()));
            }
            Err(failure) => self.refused("write", failure),
        }
    }

    async fn append(&self, mount: &Mount, handle: &Handle, file: &File) {
        let (begin, value) = (file.history.tick(), self.world.new_value());
        match self.world.call("append", mount.append(handle, value)).await {
            Ok((offset, fate)) => {
                let place = offset as usize / VALUE_BYTES;
                let step = SmallFileStep::Append { place, value };
                file.history.acknowledged(begin, step, mount.node(), &fate);
            }
            Err(failure) if failure.is_unknown() => {
                file.history.unknown(begin, SmallFileStep::AppendUntold(value));
            }
            Err(failure) => self.refused("append", failure),
        }
    }

    async fn read(&self, mount: &Mount, handle: &Handle, file: &File, place: u64) {
        let begin = file.history.tick();
        match self.world.call("read", mount.read(handle, place * VALUE_BYTES as u64)).await {
            Ok(value) => {
                let step = SmallFileStep::Read { place: place as usize, value };
                file.history.answered(begin, step);
            }
            Err(failure) if failure.is_unknown() => {}
            Err(failure) => self.refused("read", failure),
        }
    }

    /// Not recorded while the home starts: until it knows who gathers, the size may be that of before the window
    /// (docs/design/001-coherence.md, "Small writes").
    async fn size(&self, mount: &Mount, file: &File) {
        let (begin, home) = (file.history.tick(), self.world.life_of_home(file.ino));
        let answer = self.world.call("size", mount.size(file.ino)).await;
        let is_settled = home.is_some() && home == self.world.life_of_home(file.ino);
        match answer {
            Ok(_) if !is_settled => {}
            Ok(bytes) => {
                let step = SmallFileStep::Size(bytes / VALUE_BYTES as u64);
                file.history.answered(begin, step);
                file.history.seen_by(mount.node(), begin);
            }
            Err(failure) if failure.is_unknown() => {}
            Err(failure) => self.refused("size", failure),
        }
    }

    async fn empty(&self, mount: &Mount, file: &File) {
        let begin = file.history.tick();
        let lives = self.world.lives();
        let answer = self.world.call("empty", mount.empty(file.ino)).await;
        // Sent again, as a write is.
        let times = lives..=self.world.lives();
        match answer {
            Ok(()) => times.for_each(|_| file.history.answered(begin, SmallFileStep::Empty)),
            Err(failure) if failure.is_unknown() => {
                times.for_each(|_| file.history.unknown(begin, SmallFileStep::Empty));
            }
            Err(failure) => self.refused("empty", failure),
        }
    }

    fn refused(&self, what: &str, failure: Failure) {
        self.world.violated(format!("{what} of a small file was refused: {failure:?}"));
    }

    /// Looks at each file once more, once nobody writes.
    pub(crate) async fn check(&self) {
        let mount = self.world.survivor().mount();
        for (file, node) in self.files.iter().zip(0..) {
            self.look_last(&mount, file).await;
            let what = format!("the file of small writes {node} is no plain file:");
            self.world.check(&what, &file.history, &SmallFile);
        }
    }

    async fn look_last(&self, mount: &Mount, file: &File) {
        let (world, ino) = (&self.world, file.ino);
        let open = || mount.open(ino, Access { read: true, write: false });
        let begin = file.history.tick();
        let Some(handle) = world.insist("open", ino, open).await else { return };
        file.history.seen_by(mount.node(), begin);
        for place in 0..PLACES {
            let begin = file.history.tick();
            let read = || mount.read(&handle, place * VALUE_BYTES as u64);
            let Some(value) = world.insist("read", ino, read).await else { return };
            let step = SmallFileStep::Read { place: place as usize, value };
            file.history.answered(begin, step);
        }
        self.size(mount, file).await;
        let _told_by_recall = world.call("close", mount.close(handle)).await;
    }
}
