//! Tables of single steps, and random walks beside a model that knows single bytes only.

use proptest::prelude::*;

use super::*;

const INO: InodeId = InodeId(7);
const EXCLUSIVE: LockKind = LockKind::Exclusive;
const SHARED: LockKind = LockKind::Shared;

fn owner(number: u64) -> LockOwner {
    LockOwner { node: NodeId((number % 3) as u16), process: 1, id: number }
}

fn range(start: u64, last: u64) -> LockRange {
    LockRange { start, last }
}

fn wish(number: u64, kind: LockKind, start: u64, last: u64) -> Wish {
    Wish { owner: owner(number), kind, range: range(start, last), pid: number as u32 }
}

fn ticket(number: u64) -> Ticket {
    Ticket { node: owner(number).node, process: 1, number }
}

fn locks() -> Locks {
    Locks::new(1000)
}

fn held(locks: &Locks, number: u64) -> Vec<(u64, u64, LockKind)> {
    let ranges = locks.files.get(&INO).and_then(|file| file.held.get(&owner(number)));
    let ranges = ranges.into_iter().flat_map(Ranges::iter);
    ranges.map(|held| (held.range.start, held.range.last, held.kind)).collect()
}

#[test]
fn readers_share_and_writers_do_not() {
    let mut locks = locks();
    let mut try_lock = |wish| locks.lock(INO, wish, None).0;
    assert_eq!(try_lock(wish(1, SHARED, 0, 9)), Outcome::Granted);
    assert_eq!(try_lock(wish(2, SHARED, 5, 14)), Outcome::Granted);
    assert_eq!(try_lock(wish(3, EXCLUSIVE, 14, 20)), Outcome::Held);
    assert_eq!(try_lock(wish(3, EXCLUSIVE, 15, 20)), Outcome::Granted);
    assert_eq!(try_lock(wish(1, SHARED, 15, 15)), Outcome::Held);
    assert_eq!(try_lock(wish(1, EXCLUSIVE, 0, 4)), Outcome::Granted, "an owner changes its own");
}

#[test]
fn ranges_split_and_merge() {
    let mut locks = locks();
    locks.lock(INO, wish(1, SHARED, 0, 99), None);
    locks.lock(INO, wish(1, EXCLUSIVE, 40, 59), None);
    assert_eq!(held(&locks, 1), [(0, 39, SHARED), (40, 59, EXCLUSIVE), (60, 99, SHARED)]);
    locks.unlock(INO, owner(1), range(50, 69));
    assert_eq!(held(&locks, 1), [(0, 39, SHARED), (40, 49, EXCLUSIVE), (70, 99, SHARED)]);
    locks.lock(INO, wish(1, SHARED, 40, 69), None);
    assert_eq!(held(&locks, 1), [(0, 99, SHARED)]);
    assert_eq!(locks.held(), 1);
    locks.unlock(INO, owner(1), LockRange::ALL);
    assert!(locks.is_idle() && locks.held() == 0);
}

#[test]
fn waiters_go_on_in_their_order() {
    let mut locks = locks();
    locks.lock(INO, wish(1, EXCLUSIVE, 0, 9), None);
    for number in [2, 3, 4] {
        let kind = if number == 3 { EXCLUSIVE } else { SHARED };
        let waits = locks.lock(INO, wish(number, kind, 0, 9), Some(ticket(number)));
        assert_eq!(waits, (Outcome::Waits, vec![]));
    }
    let again = locks.lock(INO, wish(2, SHARED, 0, 9), Some(ticket(2)));
    assert_eq!(again.0, Outcome::Waits, "asked twice, waits once");
    assert_eq!(locks.unlock(INO, owner(1), LockRange::ALL), [ticket(2)], "4 does not overtake 3");
    assert_eq!(locks.unlock(INO, owner(2), LockRange::ALL), [ticket(3)]);
    assert_eq!(locks.unlock(INO, owner(3), LockRange::ALL), [ticket(4)]);
}

#[test]
fn a_cancelled_waiter_lets_those_behind_it_go_on() {
    let mut locks = locks();
    locks.lock(INO, wish(1, SHARED, 0, 9), None);
    locks.lock(INO, wish(2, EXCLUSIVE, 0, 9), Some(ticket(2)));
    assert_eq!(locks.lock(INO, wish(3, SHARED, 0, 9), Some(ticket(3))).0, Outcome::Waits);
    assert_eq!(locks.cancel(INO, ticket(2)), (true, vec![ticket(3)]));
    assert_eq!(locks.cancel(INO, ticket(3)), (false, vec![]), "it was granted");
}

#[test]
fn a_circle_is_refused_to_the_one_who_closes_it() {
    let mut locks = locks();
    let other = InodeId(8);
    locks.lock(INO, wish(1, EXCLUSIVE, 0, 0), None);
    locks.lock(other, wish(2, EXCLUSIVE, 0, 0), None);
    locks.lock(INO, wish(3, SHARED, 5, 5), None);
    assert_eq!(locks.lock(INO, wish(2, SHARED, 0, 0), Some(ticket(2))).0, Outcome::Waits);
    assert_eq!(locks.lock(other, wish(1, SHARED, 0, 0), Some(ticket(1))).0, Outcome::Deadlock);
    assert_eq!(locks.lock(INO, wish(1, EXCLUSIVE, 5, 5), Some(ticket(1))).0, Outcome::Waits);
    // The refused one waits for nothing: what it held goes on to the other.
    assert_eq!(locks.cancel(INO, ticket(1)), (true, vec![]));
    assert_eq!(locks.unlock(INO, owner(1), LockRange::ALL), [ticket(2)]);
}

#[test]
fn who_holds_something_does_not_queue_behind_who_waits_for_it() {
    let mut locks = locks();
    locks.lock(INO, wish(1, SHARED, 0, 9), None);
    locks.lock(INO, wish(2, EXCLUSIVE, 0, 19), Some(ticket(2)));
    let more = locks.lock(INO, wish(1, SHARED, 10, 19), Some(ticket(1)));
    assert_eq!(more.0, Outcome::Granted);
}

#[test]
fn all_of_a_node_goes_with_it() {
    let mut locks = locks();
    for number in 0..6 {
        locks.lock(INO, wish(number, EXCLUSIVE, number, number), None);
        locks.lock(INO, wish(number + 10, SHARED, number, number), Some(ticket(number + 10)));
    }
    let granted = locks.release(|owner| owner.node == NodeId(0));
    // Held by 0 and 3; their waiters 10 and 13 are of node 1, 12 and 15 of node 0.
    assert_eq!(granted, [ticket(10), ticket(13)]);
    assert!(held(&locks, 0).is_empty() && held(&locks, 10).len() == 1);
}

#[test]
fn a_thousand_wait_for_one_lock() {
    let mut locks = Locks::new(10_000);
    for number in 0..1000 {
        locks.lock(INO, wish(number, EXCLUSIVE, 0, 9), Some(ticket(number)));
    }
    for number in 0..999 {
        let granted = locks.unlock(INO, owner(number), LockRange::ALL);
        assert_eq!(granted, [ticket(number + 1)]);
    }
    assert_eq!(locks.held(), 1);
}

#[test]
fn there_is_a_bound() {
    let mut locks = Locks::new(10);
    let granted = (0..20).filter(|at| {
        locks.lock(INO, wish(1, EXCLUSIVE, at * 2, at * 2), None).0 == Outcome::Granted
    });
    assert!((5..10).contains(&granted.count()));
    assert!(locks.held() < 10);
}

const BYTES: usize = 8;
const OWNERS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock { owner: usize, kind: LockKind, range: (usize, usize), wait: bool },
    Unlock { owner: usize, range: (usize, usize) },
    Cancel { owner: usize },
    Release { owner: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    let range = || (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let kind = prop_oneof![Just(SHARED), Just(EXCLUSIVE)];
    prop_oneof![
        6 => (0..OWNERS, kind, range(), any::<bool>())
            .prop_map(|(owner, kind, range, wait)| Step::Lock { owner, kind, range, wait }),
        4 => (0..OWNERS, range()).prop_map(|(owner, range)| Step::Unlock { owner, range }),
        1 => (0..OWNERS).prop_map(|owner| Step::Cancel { owner }),
        1 => (0..OWNERS).prop_map(|owner| Step::Release { owner }),
    ]
}

/// Each byte by itself: how each owner holds it. And what each owner waits for.
#[derive(Debug, Default)]
struct Naive {
    bytes: [[Option<LockKind>; OWNERS]; BYTES],
    waits: [Option<(LockKind, (usize, usize))>; OWNERS],
}

impl Naive {
    fn is_free(&self, owner: usize, kind: LockKind, (start, last): (usize, usize)) -> bool {
        self.bytes[start..=last].iter().all(|byte| {
            byte.iter().enumerate().all(|(other, held)| {
                other == owner || held.is_none_or(|held| held == SHARED && kind == SHARED)
            })
        })
    }

    fn set(&mut self, owner: usize, (start, last): (usize, usize), kind: Option<LockKind>) {
        self.bytes[start..=last].iter_mut().for_each(|byte| byte[owner] = kind);
    }

    /// Who was granted must have been free to go on.
    fn granted(&mut self, tickets: &[Ticket]) {
        for ticket in tickets {
            let owner = ticket.number as usize;
            let (kind, range) = self.waits[owner].take().expect("granted what waits");
            assert!(self.is_free(owner, kind, range), "granted {owner} over another");
            self.set(owner, range, Some(kind));
        }
    }
}

fn check(locks: &Locks, naive: &Naive) {
    for (at, byte) in naive.bytes.iter().enumerate() {
        for (number, expected) in byte.iter().enumerate() {
            let at = at as u64;
            let found = held(locks, number as u64)
                .into_iter()
                .find(|(start, last, _)| (*start..=*last).contains(&at));
            assert_eq!(found.map(|(.., kind)| kind), *expected, "byte {at} of owner {number}");
        }
    }
    for number in 0..OWNERS as u64 {
        for pair in held(locks, number).windows(2) {
            let ((_, last, kind), (start, _, next)) = (pair[0], pair[1]);
            assert!(last + 1 < start || (last < start && kind != next), "not merged: {pair:?}");
        }
    }
    let waiting = locks.files.get(&INO).map_or(&[][..], |file| &file.waiting);
    assert_eq!(waiting.len(), naive.waits.iter().flatten().count());
    for (at, waiter) in waiting.iter().enumerate() {
        assert!(locks.files[&INO].must_wait(&waiter.wish, at), "{waiter:?} waits for nobody");
        assert!(!locks.is_in_a_circle(waiter.wish.owner), "a circle");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_agrees_with_single_bytes(steps in prop::collection::vec(any_step(), 1..80)) {
        let (mut locks, mut naive) = (locks(), Naive::default());
        for step in steps {
            match step {
                // Who waits does nothing else.
                Step::Lock { owner, .. } | Step::Unlock { owner, .. }
                    if naive.waits[owner].is_some() => {}
                Step::Lock { owner, kind, range, wait } => {
                    let number = owner as u64;
                    let wish = wish(number, kind, range.0 as u64, range.1 as u64);
                    let (outcome, granted) = locks.lock(INO, wish, wait.then(|| ticket(number)));
                    match outcome {
                        Outcome::Granted => {
                            prop_assert!(naive.is_free(owner, kind, range));
                            naive.set(owner, range, Some(kind));
                        }
                        Outcome::Held => prop_assert!(!naive.is_free(owner, kind, range)),
                        Outcome::Waits => naive.waits[owner] = Some((kind, range)),
                        Outcome::Deadlock => prop_assert!(wait),
                        Outcome::TooMany => prop_assert!(false, "the bound is far"),
                    }
                    naive.granted(&granted);
                }
                Step::Unlock { owner, range } => {
                    naive.set(owner, range, None);
                    let range = LockRange { start: range.0 as u64, last: range.1 as u64 };
                    naive.granted(&locks.unlock(INO, self::owner(owner as u64), range));
                }
                Step::Cancel { owner } => {
                    let (waited, granted) = locks.cancel(INO, ticket(owner as u64));
                    prop_assert_eq!(waited, naive.waits[owner].take().is_some());
                    naive.granted(&granted);
                }
                Step::Release { owner } => {
                    naive.waits[owner] = None;
                    naive.set(owner, (0, BYTES - 1), None);
                    let gone = self::owner(owner as u64);
                    naive.granted(&locks.release(|owner| *owner == gone));
                }
            }
            check(&locks, &naive);
        }
        // When all give up, all that wait are granted in the end.
        for _ in 0..OWNERS {
            for owner in (0..OWNERS).filter(|owner| naive.waits[*owner].is_none()).collect::<Vec<_>>() {
                naive.set(owner, (0, BYTES - 1), None);
                naive.granted(&locks.unlock(INO, self::owner(owner as u64), LockRange::ALL));
            }
        }
        for owner in 0..OWNERS as u64 {
            naive.granted(&locks.unlock(INO, self::owner(owner), LockRange::ALL));
        }
        prop_assert!(naive.waits.iter().all(Option::is_none), "still waiting: {naive:?}");
    }
}
