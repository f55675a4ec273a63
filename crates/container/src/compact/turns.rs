//! Compactions, readers and checks that take turns: at each step of one another may take its next, or be killed.
//!
//! A listing is two steps, so that it may have neither the old names nor the new one. What is read must always be
//! what was written.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use hayase_layout::GlobalOffset;

use super::tests::{EAGER, Used, open, read, used, write};
use super::{Finished, Joining};
use crate::catalogue::{Catalogue, indexes};
use crate::directory::stop::{self, Turns};
use crate::{Access, Container, Creation, Durability, check};

/// One who takes turns.
struct Player {
    arrived: Receiver<()>,
    /// `None` when it was killed.
    go: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Player {
    /// Until before its first step.
    fn new(seed: u64, play: impl FnOnce() + Send + 'static) -> Self {
        let ((arrive, arrived), (go, may_go)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            stop::take_turns(Turns { arrived: arrive, go: may_go, seed });
            play();
        });
        let mut player = Self { arrived, go: Some(go), thread: Some(thread) };
        player.wait();
        player
    }

    /// Until it is before its next step, or has ended.
    fn wait(&mut self) {
        if self.arrived.recv().is_err() {
            self.go = None;
            self.thread.take().expect("it ends once").join().expect("its own assertions hold");
        }
    }

    /// Whether there was a step to take.
    fn step(&mut self) -> bool {
        let Some(go) = &self.go else { return false };
        go.send(()).expect("it waits");
        self.wait();
        true
    }

    fn is_at_work(&self) -> bool {
        self.go.is_some()
    }

    /// Takes no further step.
    fn kill(&mut self) {
        if self.go.take().is_some() {
            while self.arrived.recv().is_ok() {}
            self.thread.take().expect("it ends once").join().expect("its own assertions hold");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    Compact(Finished, Joining),
    /// Of all single indexes and some merged ones, as by the last process to close a container.
    CompactSome,
    /// The bytes that are there already.
    Write,
    Read,
    Check,
}

use Play::{Check, Compact, CompactSome, Read, Write};

const COMPACTIONS: [Play; 4] = [
    Compact(Finished::Closed, EAGER),
    Compact(Finished::Closed, Joining::NONE),
    Compact(Finished::All, EAGER),
    Compact(Finished::All, Joining::NONE),
];

impl Play {
    fn begin(self, used: &Used, seed: u64) -> Player {
        let path = used.top.path().join("F");
        let container = Container::open(&path, Creation::Never).unwrap();
        let expected = used.expected.clone();
        Player::new(seed, move || match self {
            // Others may take away what it has begun; whatever it says, nothing is lost.
            Compact(finished, joining) => {
                let _ = container.compact_joining(finished, joining);
            }
            CompactSome => compact_some(&container, seed),
            Write => {
                let file = write(&container, 3, &expected[3..9]);
                file.close(Durability::Written).unwrap();
            }
            Read => {
                let file = open(&container, Access::Read);
                let mut bytes = vec![0; expected.len() + 1];
                let done = file.read_at(GlobalOffset(0), &mut bytes).unwrap();
                assert_eq!(&bytes[..done], expected, "read meanwhile");
            }
            Check => {
                let report = check(&path).unwrap();
                assert!(report.is_sound(), "checked meanwhile: {:?}", report.problems);
            }
        })
    }
}

fn compact_some(container: &Container, seed: u64) {
    let Ok(names) = container.directory().names() else { return };
    let mut dice = Dice(seed);
    let some = indexes(&names).filter(|name| name.starts_with('n') || dice.roll(2) == 0);
    let mut catalogue = Catalogue::default();
    if let Ok(true) = catalogue.load_some(container, some.cloned())
        && let Ok(snapshot) = catalogue.snapshot(container)
    {
        let _ = container.compact_known(&catalogue, &snapshot, Finished::Closed, EAGER);
    }
}

fn require_bytes(used: &Used, when: &str) {
    assert_eq!(read(&used.container), used.expected, "{when}");
}

fn require_all(used: &Used, when: &str) {
    require_bytes(used, when);
    let report = check(&used.top.path().join("F")).unwrap();
    assert!(report.is_sound(), "{when}: {:?}", report.problems);
}

/// Every pair of which one joins, the first stopped at each of its steps, the other at each [`APART`]th of its own, by turns,
/// then both to the end. That one goes no further is a kill. Other commits try the steps between.
#[test]
fn two_compactions_at_once_lose_nothing_wherever_each_of_them_is() {
    let joins = |play| matches!(play, Compact(_, EAGER));
    for first in COMPACTIONS {
        for second in COMPACTIONS.into_iter().filter(|second| joins(first) || joins(*second)) {
            two_at_once(first, second);
        }
    }
}

const APART: u64 = 4;

/// A number of the commit that is tested.
fn commit() -> u64 {
    let commit = std::env::var("HAYASE_COMMIT").unwrap_or_default();
    commit.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

fn two_at_once(first: Play, second: Play) {
    let (mut before, mut is_new) = (0, true);
    while is_new {
        let (mut between, mut is_later) = ((commit() + before) % APART, true);
        while is_later {
            let used = used();
            let mut one = first.begin(&used, 0);
            is_new = (0..before).all(|_| one.step());
            let mut two = second.begin(&used, 1);
            is_later = (0..between).all(|_| two.step());
            let when = format!("{first:?} {before}, {second:?} {between}");
            require_bytes(&used, &when);
            while one.step() {}
            require_bytes(&used, &format!("{when}, the first ended"));
            while two.step() {}
            require_all(&used, &format!("{when}, both ended"));
            between += APART;
        }
        before += 1;
    }
}

/// Orders that are tried.
const SEEDS: u64 = 600;

/// Compactions at once, which may be killed.
const KILLED: usize = 4;

/// Numbers that look random (SplitMix64: Steele et al. 2014).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }
}

/// Four compactions, writers, a reader and a check in any order, one of them killed now and then.
#[test]
fn compactions_readers_and_checks_in_any_order_find_all() {
    for seed in 0..SEEDS {
        let mut dice = Dice(seed);
        let used = used();
        let compactions =
            [&COMPACTIONS[..], &[CompactSome, CompactSome, Compact(Finished::Closed, EAGER)]]
                .concat();
        let mut plays: Vec<Play> =
            (0..KILLED).map(|_| compactions[dice.roll(compactions.len())]).collect();
        // With --all nobody may be writing.
        if plays.iter().all(|play| !matches!(play, Compact(Finished::All, _))) {
            plays.extend([Write, Write]);
        }
        plays.extend([Read, Check]);
        let mut players: Vec<Player> =
            (0..).zip(&plays).map(|(nth, play)| play.begin(&used, seed * 8 + nth)).collect();
        let mut turn = 0;
        while players.iter().any(Player::is_at_work) {
            // Often the same one: most faults need few changes of turn.
            turn = if dice.roll(4) == 0 { dice.roll(players.len()) } else { turn };
            match dice.roll(200) {
                0 if turn < KILLED => players[turn].kill(),
                _ if players[turn].step() => {}
                _ => turn = dice.roll(players.len()),
            }
        }
        require_all(&used, &format!("seed {seed}: {plays:?}"));
        used.container.compact_joining(Finished::All, EAGER).unwrap();
        require_all(&used, &format!("seed {seed}: {plays:?}, compacted"));
    }
}
