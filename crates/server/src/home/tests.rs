//! Tables of single steps, and long random walks that check the invariants after each step.

use proptest::prelude::*;

use super::*;

const A: NodeId = NodeId(0); // the home node
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);
const READ: Access = Access { read: true, write: false };
const WRITE: Access = Access { read: false, write: true };
const NONE: Access = Access { read: false, write: false };

fn open(ticket: Ticket, node: NodeId, access: Access) -> Event {
    let kind = if node == A { OpenKind::Local } else { OpenKind::Remote };
    Event::Open { ticket, node, open: Opening { access, kind, number: ticket } }
}

/// The answer to a recall that speaks of all opens so far.
fn still(access: Access) -> StillOpen {
    StillOpen { access, as_of: Ticket::MAX }
}

fn proceed(ticket: Ticket, cache: bool, attr: bool, writing: bool) -> Effect {
    Effect::Proceed { ticket, grants: Grants { cache, attr }, writing }
}

#[test]
fn readers_everywhere_may_cache() {
    let mut home = Home::new(A);
    assert_eq!(home.step(open(1, B, READ)), [proceed(1, true, true, false)]);
    assert_eq!(home.step(open(2, C, READ)), [proceed(2, true, true, false)]);
}

#[test]
fn a_writer_waits_until_readers_gave_back() {
    let mut home = Home::new(A);
    home.step(open(1, B, READ));
    assert_eq!(home.step(open(2, A, WRITE)), [Effect::Recall { node: B, bits: Grants::ALL }]);
    // Nothing is granted while the recall is under way, and reading goes on.
    assert_eq!(home.step(open(3, C, READ)), [proceed(3, false, false, true)]);
    let returned = Event::Returned { node: B, bits: Grants::ALL, still_open: still(READ) };
    assert_eq!(home.step(returned), [proceed(2, false, true, true)]);
    assert!(home.is_open_on(B));
}

/// Found by the model: a second open of the same node, by another process of it, made the home forget
/// what it was waiting for.
#[test]
fn an_open_beside_a_recall_is_no_answer_to_it() {
    let mut home = Home::new(A);
    home.step(open(1, B, READ));
    assert_eq!(home.step(open(2, A, WRITE)), [Effect::Recall { node: B, bits: Grants::ALL }]);
    assert_eq!(home.step(open(3, B, READ)), [proceed(3, false, false, true)]);
    let returned = Event::Returned { node: B, bits: Grants::ALL, still_open: still(READ) };
    assert_eq!(home.step(returned), [proceed(2, false, true, true)]);
}

#[test]
fn a_dead_reader_does_not_hold_up_a_writer() {
    let mut home = Home::new(A);
    home.step(open(1, B, READ));
    home.step(open(2, A, WRITE));
    assert_eq!(home.step(Event::Gone { node: B }), [proceed(2, false, true, true)]);
}

#[test]
fn what_is_kept_only_for_a_probe_can_be_probed_and_forgotten() {
    let close = Event::Close { node: A, access: WRITE, as_of: u64::MAX };
    let mut home = Home::new(A);
    home.step(open(1, A, WRITE));
    assert!(!home.begin_idle_probe(), "it is open");
    home.step(close);
    assert!(!home.begin_idle_probe(), "its node holds ATTR");
    home.forget_attributes();
    assert!(home.begin_idle_probe());
    assert!(!home.begin_idle_probe(), "one is under way");
    home.step(Event::Probed { quiescent: true });
    assert!(home.is_idle());

    // A writer that came and went meanwhile is not covered by the answer.
    home.step(open(2, A, WRITE));
    home.step(close);
    home.forget_attributes();
    assert!(home.begin_idle_probe());
    home.step(open(3, A, WRITE));
    home.step(close);
    home.step(Event::Probed { quiescent: true });
    home.forget_attributes();
    assert!(!home.is_idle() && home.begin_idle_probe());
    home.step(Event::Probed { quiescent: true });
    assert!(home.is_idle());
}

#[test]
fn a_removed_inode_leaves_nothing() {
    let mut home = Home::new(A);
    home.step(open(1, A, WRITE));
    home.step(Event::Close { node: A, access: WRITE, as_of: u64::MAX });
    home.end();
    assert!(home.is_idle());
}

#[test]
fn a_local_writers_close_is_probed_before_others_cache() {
    let mut home = Home::new(A);
    home.step(open(1, A, WRITE));
    home.step(Event::Close { node: A, access: WRITE, as_of: u64::MAX });
    assert_eq!(home.step(open(2, B, READ)), [Effect::Probe]);
    assert_eq!(home.step(Event::Probed { quiescent: true }), [proceed(2, true, true, false)]);
    // A forgotten mapping: the reader goes on without caching.
    home.step(open(3, A, WRITE));
    home.step(Event::Returned { node: B, bits: Grants::ALL, still_open: still(NONE) });
    home.step(Event::Close { node: A, access: WRITE, as_of: u64::MAX });
    assert_eq!(home.step(open(4, B, READ)), [Effect::Probe]);
    assert_eq!(home.step(Event::Probed { quiescent: false }), [proceed(4, false, false, true)]);
}

#[test]
fn the_only_opener_may_cache_while_it_writes_if_its_kernel_needs_that() {
    let mut home = Home::new(A);
    let cached = |ticket, node| Event::Open {
        ticket,
        node,
        open: Opening { access: WRITE, kind: OpenKind::RemoteCachedWriter, number: ticket },
    };
    assert_eq!(home.step(cached(1, B)), [proceed(1, true, true, true)]);
    // A second node's open recalls and demotes it.
    assert_eq!(home.step(open(2, C, READ)), [Effect::Recall { node: B, bits: Grants::ALL }]);
    let returned = Event::Returned { node: B, bits: Grants::ALL, still_open: still(WRITE) };
    assert_eq!(home.step(returned), [proceed(2, false, false, true)]);
}

#[test]
fn a_change_by_path_recalls_and_then_lets_others_back_in() {
    let mut home = Home::new(A);
    home.step(Event::Attributes { ticket: 1, node: B });
    let bits = Grants { cache: false, attr: true };
    assert_eq!(
        home.step(Event::Change { ticket: 2, node: C, bits }),
        [Effect::Recall { node: B, bits }]
    );
    let returned = Event::Returned { node: B, bits, still_open: still(NONE) };
    assert_eq!(home.step(returned), [proceed(2, false, false, false)]);
    assert_eq!(
        home.step(Event::Attributes { ticket: 3, node: B }),
        [proceed(3, false, false, false)],
        "not while the change is under way"
    );
    home.step(Event::Changed { ticket: 2 });
    assert_eq!(
        home.step(Event::Attributes { ticket: 4, node: B }),
        [proceed(4, false, true, false)]
    );
}

#[test]
fn an_open_that_crosses_a_recall_stays_open() {
    let mut home = Home::new(A);
    home.step(open(1, B, WRITE));
    // B's kernel closed it, B keeps it for the next open; A opens, and B opens again meanwhile.
    assert_eq!(home.step(open(2, A, WRITE)), [Effect::Recall { node: B, bits: Grants::ALL }]);
    home.step(open(3, B, WRITE));
    let still_open = StillOpen { access: NONE, as_of: 1 };
    home.step(Event::Returned { node: B, bits: Grants::ALL, still_open });
    assert!(home.is_open_on(B));
    home.step(Event::Close { node: B, access: WRITE, as_of: u64::MAX });
    assert!(!home.is_open_on(B));
}

#[test]
fn closing_everything_makes_it_idle() {
    let mut home = Home::new(A);
    home.step(open(1, B, READ));
    home.step(Event::Close { node: B, access: READ, as_of: u64::MAX });
    home.step(Event::Returned { node: B, bits: Grants::ALL, still_open: still(NONE) });
    assert!(home.is_idle(), "{home:?}");
}

/// One step of a random walk, before tickets are dealt.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u16, bool, bool, bool),
    Close(u16, bool, bool),
    Change(u16, bool),
    FinishChange,
    Attributes(u16),
    AnswerRecall(usize, bool),
    AnswerProbe(bool),
    Gone(u16),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u16, any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(n, r, w, c)| Step::Open(n, r || !w, w, c)),
        3 => (0..3u16, any::<bool>(), any::<bool>()).prop_map(|(n, r, w)| Step::Close(n, r, w)),
        1 => (0..3u16, any::<bool>()).prop_map(|(n, c)| Step::Change(n, c)),
        1 => Just(Step::FinishChange),
        2 => (0..3u16).prop_map(Step::Attributes),
        4 => (0..8usize, any::<bool>()).prop_map(|(i, o)| Step::AnswerRecall(i, o)),
        2 => any::<bool>().prop_map(Step::AnswerProbe),
        1 => (0..3u16).prop_map(Step::Gone),
    ]
}

/// The shell in miniature: keeps what effects it owes.
#[derive(Default)]
struct Shell {
    next: Ticket,
    recalls: Vec<(NodeId, Grants)>,
    probe: bool,
    waiting: Vec<Ticket>,
    changes: Vec<Ticket>,
    pending_changes: Vec<Ticket>,
}

impl Shell {
    fn event(&mut self, home: &Home, step: Step) -> Option<Event> {
        let ticket = self.next;
        self.next += 1;
        Some(match step {
            Step::Open(node, read, write, cached) => {
                let node = NodeId(node);
                self.waiting.push(ticket);
                let kind = match (node == A, cached) {
                    (true, _) => OpenKind::Local,
                    (false, true) => OpenKind::RemoteCachedWriter,
                    (false, false) => OpenKind::Remote,
                };
                let access = Access { read, write };
                Event::Open { ticket, node, open: Opening { access, kind, number: ticket } }
            }
            Step::Close(node, read, write) => {
                Event::Close { node: NodeId(node), access: Access { read, write }, as_of: u64::MAX }
            }
            Step::Change(node, cache) => {
                self.waiting.push(ticket);
                self.pending_changes.push(ticket);
                Event::Change { ticket, node: NodeId(node), bits: Grants { cache, attr: true } }
            }
            Step::FinishChange => Event::Changed { ticket: self.changes.pop()? },
            Step::Attributes(node) => {
                self.waiting.push(ticket);
                Event::Attributes { ticket, node: NodeId(node) }
            }
            Step::AnswerRecall(at, open) => {
                if self.recalls.is_empty() {
                    return None;
                }
                let (node, bits) = self.recalls.remove(at % self.recalls.len());
                let held = home.opens().find(|(opener, _)| *opener == node);
                let still_open = match held {
                    Some((_, held)) if open => held.access(),
                    _ => NONE,
                };
                Event::Returned { node, bits, still_open: still(still_open) }
            }
            Step::AnswerProbe(quiescent) => {
                if !std::mem::take(&mut self.probe) {
                    return None;
                }
                Event::Probed { quiescent }
            }
            Step::Gone(node) => {
                self.recalls.retain(|(holder, _)| *holder != NodeId(node));
                Event::Gone { node: NodeId(node) }
            }
        })
    }

    fn carry_out(&mut self, effects: &[Effect]) {
        for effect in effects {
            match *effect {
                Effect::Recall { node, bits } => self.recalls.push((node, bits)),
                Effect::Probe => self.probe = true,
                Effect::Proceed { ticket, .. } => {
                    let at = self.waiting.iter().position(|waiting| *waiting == ticket);
                    self.waiting.remove(at.expect("an operation goes on once"));
                    if self.pending_changes.contains(&ticket) {
                        self.changes.push(ticket);
                    }
                }
            }
        }
    }
}

fn check_invariants(home: &Home, shell: &Shell) {
    for (writer, held) in home.opens().filter(|(_, held)| held.access().write) {
        for (node, grants) in &home.grants {
            assert!(*node == writer, "H1: {node} holds {grants:?} while {writer} writes {held:?}");
        }
    }
    for (node, grants) in &home.grants {
        if grants.cache && home.writes(*node) {
            assert!(home.opens.keys().all(|opener| opener == node), "H2");
        }
        if home.unprobed {
            assert!(*node == home.node, "H3: {node} holds {grants:?}: {home:?}");
        }
    }
    if !shell.waiting.is_empty() {
        assert!(!shell.recalls.is_empty() || shell.probe, "H4: {home:?} waits for nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_walk_keeps_the_invariants_and_ends(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut home = Home::new(A);
        let mut shell = Shell::default();
        for step in steps {
            if let Some(event) = shell.event(&home, step) {
                let effects = home.step(event);
                shell.carry_out(&effects);
                check_invariants(&home, &shell);
            }
        }
        // Under fair delivery everything that waits goes on.
        for _ in 0..64 {
            for step in [Step::AnswerRecall(0, false), Step::AnswerProbe(true), Step::FinishChange] {
                if let Some(event) = shell.event(&home, step) {
                    let effects = home.step(event);
                    shell.carry_out(&effects);
                }
            }
        }
        prop_assert!(shell.waiting.is_empty(), "{:?} never went on: {home:?}", shell.waiting);
    }
}
