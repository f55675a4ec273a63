//! Sets in a store that can not make an object only where none is, as many S3 servers: two writers at once, in every
//! order of their calls that a schedule can give.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::SystemTime;

use hayase_stage::Place;
use hayase_stage::pack::{Compression, PackError, PackSet};
use hayase_tier::{
    Action, Attributes, Capabilities, Key, ListRequest, Memory, ObjectMeta, Page, Precondition,
    Reader, Tier, TierError, Upload,
};
use proptest::prelude::*;
use ring::rand::SystemRandom;

use super::{Entry, check, file, master, objects, put, write};

/// Whose call is next.
#[derive(Debug, Default)]
struct Turns {
    order: Mutex<(VecDeque<usize>, [bool; 2])>,
    changed: Condvar,
}

impl Turns {
    /// Does `call` as the next of `writer`'s, while the other does none.
    fn take<T>(&self, writer: usize, call: impl FnOnce() -> T) -> T {
        let mut order = self.order.lock().unwrap();
        loop {
            let (next, ended) = &mut *order;
            while next.front().is_some_and(|next| ended[*next]) {
                next.pop_front();
            }
            if next.front().is_none_or(|next| *next == writer) {
                next.pop_front();
                let answer = call();
                self.changed.notify_all();
                return answer;
            }
            order = self.changed.wait(order).unwrap();
        }
    }

    fn end(&self, writer: usize) {
        self.order.lock().unwrap().1[writer] = true;
        self.changed.notify_all();
    }
}

/// A store that decides nothing, as one writer sees it.
#[derive(Clone, Debug)]
struct Undecided {
    store: Arc<Memory>,
    writer: Option<(usize, Arc<Turns>)>,
}

impl Undecided {
    fn new() -> Self {
        Self { store: Arc::new(Memory::flat()), writer: None }
    }

    fn place(&self) -> Place {
        Place::root(Arc::new(self.clone()))
    }

    fn of_writer(&self, writer: usize, turns: &Arc<Turns>) -> Place {
        Self { writer: Some((writer, Arc::clone(turns))), ..self.clone() }.place()
    }

    fn turn<T>(&self, call: impl FnOnce() -> T) -> T {
        match &self.writer {
            Some((writer, turns)) => turns.take(*writer, call),
            None => call(),
        }
    }

    fn has_claims(&self) -> bool {
        objects(&*self.store).iter().any(|(key, _)| key.to_string().contains("claim-"))
    }
}

struct UndecidedUpload(Undecided, Box<dyn Upload>);

impl Upload for UndecidedUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        self.1.write_at(offset, data)
    }
    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        if precondition == Precondition::Absent {
            let path = "an object".to_owned();
            return Err(TierError::Unsupported { action: Action::Commit, path });
        }
        let Self(tier, inner) = *self;
        tier.turn(|| inner.commit(precondition))
    }
}

impl Tier for Undecided {
    fn capabilities(&self) -> Capabilities {
        Capabilities { absent_max: None, ..self.store.capabilities() }
    }
    fn describe(&self) -> String {
        "a store that decides nothing".into()
    }
    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        self.turn(|| self.store.list(request))
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.store.stat(key)
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        self.store.open(key)
    }
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        Ok(Box::new(UndecidedUpload(self.clone(), self.store.begin(key, attributes)?)))
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.store.set_attributes(key, attributes)
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        self.turn(|| self.store.delete(key))
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        self.store.sweep(prefix, before)
    }
}

fn one(name: &str) -> Vec<Vec<Entry>> {
    vec![vec![file(name, name.as_bytes())]]
}

fn names(place: &Place) -> Vec<String> {
    let set = PackSet::open(place, None).unwrap();
    assert!(check(&set).damage.is_empty());
    set.index.rows.iter().map(|row| row.item.name.to_string()).collect()
}

#[test]
fn a_store_that_decides_nothing_has_packs() {
    let store = Undecided::new();
    for name in ["a", "b"] {
        write(&store.place(), None, &one(name), Compression::None);
        assert_eq!(names(&store.place()), [name]);
        assert!(!store.has_claims());
    }
}

#[test]
fn the_claim_of_a_killed_writer_is_in_nobodys_way() {
    let store = Undecided::new();
    write(&store.place(), None, &one("a"), Compression::None);
    let left = Key::new(".hayase-packs/claim-0000000000000002-00000000deadbeef.txt").unwrap();
    put(&store, &left, b"killed");
    assert_eq!(names(&store.place()), ["a"], "readers do not mind");
    write(&store.place(), None, &one("b"), Compression::None);
    assert_eq!(names(&store.place()), ["b"]);
    assert!(!store.has_claims());
}

#[test]
fn the_first_key_needs_a_store_that_decides() {
    let random = SystemRandom::new();
    let told = PackSet::open_or_begin(&Undecided::new().place(), Some(&master()), &random);
    let told = told.unwrap_err();
    assert!(matches!(told, PackError::FirstKey { .. }) && told.help().is_some(), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn of_two_writers_at_most_one_succeeds_in_any_order(
        order in prop::collection::vec(0usize..2, 0..32)
    ) {
        let store = Undecided::new();
        write(&store.place(), None, &one("before"), Compression::None);
        let row = |set: &PackSet| set.index.rows[0].item.name.to_string();
        let turns = Arc::new(Turns::default());
        turns.order.lock().unwrap().0 = order.into();
        let commit = |writer: usize| {
            let place = store.of_writer(writer, &turns);
            let mut set = PackSet::open(&place, None).unwrap();
            let (found, mut index) = (row(&set), set.index.clone());
            index.rows[0].item.name = Key::new(format!("by-{writer}")).unwrap();
            let committed = set.commit(index, &SystemRandom::new(), SystemTime::now());
            turns.end(writer);
            (found, committed)
        };
        let [(found_0, told_0), (found_1, told_1)] = std::thread::scope(|scope| {
            let both = [0, 1].map(|writer| scope.spawn(move || commit(writer)));
            both.map(|writer| writer.join().unwrap())
        });
        for told in [&told_0, &told_1] {
            let is_conflict = matches!(told, Err(PackError::Conflict { .. }));
            prop_assert!(told.is_ok() || is_conflict, "{told:?}");
        }
        let there = row(&PackSet::open(&store.place(), None).unwrap());
        match (told_0, told_1) {
            // One began when the other had ended.
            (Ok(()), Ok(())) if found_0 == "by-1" => prop_assert_eq!(there, "by-0"),
            (Ok(()), Ok(())) => prop_assert_eq!((&*found_1, &*there), ("by-0", "by-1")),
            (Ok(()), _) => prop_assert_eq!(there, "by-0"),
            (_, Ok(())) => prop_assert_eq!(there, "by-1"),
            _ => prop_assert_eq!(there, "before"),
        }
        write(&store.place(), None, &one("after"), Compression::None);
        prop_assert_eq!(names(&store.place()), ["after"]);
        prop_assert!(!store.has_claims());
    }
}
