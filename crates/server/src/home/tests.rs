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

/// B writes by messages, alone.
fn written_by_b() -> Home {
    let mut home = Home::new(A);
    assert_eq!(home.step(open(1, B, WRITE)), [proceed(1, false, true, true)]);
    home
}

fn gathered_by_b() -> Home {
    let mut home = written_by_b();
    assert!(home.gather(B) && home.takes_gathered(B));
    home
}

fn look(ticket: Ticket, node: NodeId) -> Event {
    Event::Look { ticket, node }
}

fn close(node: NodeId) -> Event {
    Event::Close { node, access: WRITE, as_of: u64::MAX }
}

fn handed_on() -> Event {
    Event::Returned { node: B, bits: Grants::ALL, still_open: still(WRITE) }
}

fn reclaimed(node: NodeId, access: Access) -> Event {
    let kind = if node == A { OpenKind::Local } else { OpenKind::Remote };
    Event::Reclaimed {
        node,
        open: Opening { access, kind, number: 1 },
        in_grace: true,
        late: false,
    }
}

const RECALL_B: Effect = Effect::Recall { node: B, bits: Grants::ALL };

#[test]
fn whoever_comes_to_the_file_waits_until_its_gatherer_has_handed_on() {
    let change = |bits| Event::Change { ticket: 2, node: C, bits };
    let check = |event: Event, granted: Effect, gathers_on: bool| {
        let mut home = gathered_by_b();
        assert_eq!(home.step(event), [RECALL_B], "{event:?}");
        assert!(home.takes_gathered(B) && !home.may_gather(B), "{event:?}");
        assert_eq!(home.step(handed_on()), [granted], "{event:?}");
        assert!(!home.takes_gathered(B), "{event:?}");
        assert_eq!(home.gather(B), gathers_on, "{event:?}");
    };
    check(look(2, C), proceed(2, false, false, true), true);
    check(look(2, A), proceed(2, false, false, true), true);
    check(open(2, C, READ), proceed(2, false, false, true), false);
    check(open(2, C, WRITE), proceed(2, false, false, true), false);
    check(open(2, A, WRITE), proceed(2, false, false, true), false);
    check(change(Grants::ALL), proceed(2, false, false, true), false);
    check(change(Grants { cache: false, attr: true }), proceed(2, false, false, true), false);
}

#[test]
fn a_gatherer_waits_for_itself_with_nothing() {
    let check = |event: Event| {
        let mut home = gathered_by_b();
        let effects = home.step(event);
        assert!(
            matches!(effects[..], [Effect::Proceed { ticket: 2, .. }]),
            "{event:?}: {effects:?}"
        );
        assert!(home.takes_gathered(B), "{event:?}");
    };
    check(look(2, B));
    check(open(2, B, READ));
    check(open(2, B, WRITE));
    check(Event::Change { ticket: 2, node: B, bits: Grants::ALL });
}

#[test]
fn who_gives_back_only_attributes_goes_on_gathering() {
    let mut home = gathered_by_b();
    let bits = Grants { cache: false, attr: true };
    home.step(Event::Returned { node: B, bits, still_open: still(WRITE) });
    assert!(home.takes_gathered(B));
    home.step(close(B));
    assert!(!home.takes_gathered(B) && home.gatherer.is_none());
}

#[test]
fn nobody_gathers_a_file_that_others_have_to_do_with() {
    let check = |home: &Home, node, expected: bool, why: &str| {
        let mut asked = home.clone();
        assert_eq!(asked.gather(node), expected, "{why}: {home:?}");
        assert_eq!(asked.takes_gathered(node), expected, "{why}");
        assert_eq!(asked.gathers_for_another(C), expected.then_some(node), "{why}");
    };
    let mut home = Home::new(A);
    check(&home, B, false, "it is not open");
    home.step(open(1, B, READ));
    check(&home, B, false, "it is open for reading");
    home.step(open(2, B, WRITE));
    check(&home, B, true, "it is alone");
    check(&home, C, false, "it is not open there");
    home.step(open(3, C, READ));
    check(&home, B, false, "another has it open");
    home.step(Event::Close { node: C, access: READ, as_of: u64::MAX });
    check(&home, B, true, "it is alone again");

    let mut home = Home::new(A);
    home.step(open(1, A, WRITE));
    check(&home, A, false, "its kernel writes the part");
    home.step(close(A));
    home.step(open(2, B, WRITE));
    assert!(home.has_local_users());
    check(&home, B, false, "a mapping may write the part");
    assert!(home.begin_probe());
    check(&home, B, false, "that is being found out");
    home.step(Event::Probed { quiescent: true });
    let returned = Event::Returned { node: A, bits: Grants::ALL, still_open: still(NONE) };
    home.step(returned);
    check(&home, B, true, "nothing else writes it");
    home.probing = true;
    check(&home, B, false, "a probe is under way");

    let mut home = written_by_b();
    let bits = Grants { cache: false, attr: true };
    home.step(Event::Change { ticket: 2, node: C, bits });
    check(&home, B, false, "a change waits, and B is recalled");
    let returned = Event::Returned { node: B, bits, still_open: still(WRITE) };
    assert_eq!(home.step(returned), [proceed(2, false, false, true)]);
    check(&home, B, false, "a change is under way");
    home.step(Event::Changed { ticket: 2 });
    check(&home, B, true, "the change is over");

    let mut home = written_by_b();
    home.recalls.insert(B, Grants::ALL);
    check(&home, B, false, "it may have answered a recall before it asked");
    let mut home = written_by_b();
    home.waiting.push(Operation { ticket: 9, node: C, want: Want::Look });
    check(&home, B, false, "somebody waits");
    let mut home = written_by_b();
    home.grants.insert(C, Grants { cache: false, attr: true });
    check(&home, B, false, "another was granted something");
}

#[test]
fn what_comes_too_late_is_not_taken_before_its_node_has_closed() {
    let mut home = gathered_by_b();
    assert_eq!(home.step(open(2, C, WRITE)), [RECALL_B]);
    home.take_no_more_gathered(B);
    assert!(!home.takes_gathered(B), "nothing more is taken");
    assert_eq!(home.gathers_for_another(C), Some(B), "others wait until what was taken is there");
    assert_eq!(home.step(look(3, A)), []);
    let both = [proceed(2, false, false, true), proceed(3, false, false, true)];
    assert_eq!(home.step(Event::Silent { node: B }), both);
    home.step(close(C));
    // What it asked before, on a connection that broke: it may still have what it gathered then.
    assert!(!home.gather(B) && !home.takes_gathered(B));
    home.step(reclaimed(B, WRITE));
    assert!(!home.takes_gathered(B), "nor when it tells again what it has open");
    home.step(Event::Close { node: B, access: READ, as_of: u64::MAX });
    assert!(!home.gather(B), "it did not close");
    home.step(close(B));
    home.step(open(4, B, WRITE));
    assert!(home.gather(B) && home.takes_gathered(B), "{home:?}");
}

#[test]
fn a_node_that_is_given_up_without_a_word_before_is_late_too() {
    let mut home = gathered_by_b();
    home.step(open(2, C, WRITE));
    assert_eq!(home.step(Event::Silent { node: B }), [proceed(2, false, false, true)]);
    home.step(close(C));
    assert!(!home.gather(B));
    // A reader has nothing that could come late.
    let mut home = Home::new(A);
    home.step(open(1, B, READ));
    home.step(Event::Silent { node: B });
    home.step(open(2, B, WRITE));
    assert!(home.gather(B));
}

#[test]
fn a_lost_node_gathers_no_more_and_what_it_had_is_not_taken() {
    let mut home = gathered_by_b();
    assert_eq!(home.step(open(2, C, WRITE)), [RECALL_B]);
    assert_eq!(home.step(Event::Gone { node: B }), [proceed(2, false, true, true)]);
    home.step(close(C));
    // It comes back and tells what it has open: the shell says that nobody waited for it.
    home.step(open(3, B, WRITE));
    home.take_no_more_gathered(B);
    assert!(!home.gather(B) && !home.takes_gathered(B));
}

#[test]
fn a_home_that_is_started_anew_supposes_that_a_sole_writer_gathers() {
    let check = |told: &[(NodeId, Access)], gatherer: Option<NodeId>, hangs: bool| {
        let mut home = Home::after_restart(A);
        for (node, access) in told {
            home.step(reclaimed(*node, *access));
            home.step(Event::ToldAnew { node: *node });
        }
        assert_eq!(home.gathers_for_another(NodeId(9)), gatherer, "{told:?}");
        assert_eq!(home.hangs, hangs, "{told:?}");
        assert!(
            [A, B, C].iter().all(|node| home.takes_gathered(*node) == (gatherer == Some(*node)))
        );
    };
    check(&[(B, WRITE)], Some(B), false);
    check(&[(B, READ), (B, WRITE)], Some(B), false);
    check(&[(B, READ)], None, false);
    check(&[(A, WRITE)], None, false);
    check(&[(B, WRITE), (C, READ)], Some(B), true);
    check(&[(B, WRITE), (C, WRITE)], None, false);
    check(&[(B, WRITE), (A, READ)], Some(B), true);
    check(&[(C, READ), (B, WRITE)], Some(B), true);
    check(&[], None, false);
}

#[test]
fn a_home_that_is_started_anew_takes_nothing_of_whom_its_former_life_gave_up() {
    let mut home = Home::after_restart(A);
    let open = Opening { access: WRITE, kind: OpenKind::Remote, number: 1 };
    home.step(Event::Reclaimed { node: B, open, in_grace: true, late: true });
    assert!(!home.takes_gathered(B) && home.gatherer().is_none());
    home.unprobed = false;
    assert!(!home.gather(B), "it has not closed");
    home.step(close(B));
    home.step(open_of(B));
    assert!(home.gather(B));
}

fn open_of(node: NodeId) -> Event {
    open(9, node, WRITE)
}

#[test]
fn who_changes_no_bytes_goes_on_without_a_gatherer_that_hangs() {
    let mut home = gathered_by_b();
    assert_eq!(home.step(open(2, C, READ)), [RECALL_B]);
    home.gives_up(B);
    assert!(home.takes_gathered(B), "nobody writes");
    assert_eq!(home.step(Event::Silent { node: B }), [proceed(2, false, false, true)]);
    assert!(home.takes_gathered(B), "it may still come");
    // The next ones do not wait, and ask it again.
    assert_eq!(home.step(look(3, A)), [proceed(3, false, false, true), RECALL_B]);
    assert_eq!(home.step(look(4, C)), [proceed(4, false, false, true)]);
    // Until it comes.
    home.gatherer_came();
    assert_eq!(home.step(look(5, C)), []);
    assert_eq!(home.step(handed_on()), [proceed(5, false, false, true)]);
    assert!(!home.takes_gathered(B) && !home.hangs);
}

#[test]
fn what_a_gatherer_that_hung_was_granted_since_is_taken_back_all_the_same() {
    let mut home = gathered_by_b();
    home.step(look(2, C));
    home.step(Event::Silent { node: B });
    let asked = home.step(Event::Attributes { ticket: 3, node: B });
    assert_eq!(asked, [proceed(3, false, true, true)], "it is there again");
    let attributes = Grants { cache: false, attr: true };
    let change = Event::Change { ticket: 4, node: C, bits: attributes };
    assert_eq!(home.step(change), [Effect::Recall { node: B, bits: attributes }]);
}

#[test]
fn who_changes_bytes_waits_for_a_gatherer_that_hangs_and_then_it_is_late() {
    let mut home = gathered_by_b();
    home.step(look(2, C));
    home.step(Event::Silent { node: B });
    assert_eq!(home.step(open(3, C, WRITE)), [RECALL_B]);
    let attributes = Grants { cache: false, attr: true };
    let change = Event::Change { ticket: 4, node: A, bits: attributes };
    assert_eq!(home.step(change), [proceed(4, false, false, true)]);
    home.gives_up(B);
    assert!(!home.takes_gathered(B), "another is going to write");
    assert_eq!(home.step(Event::Silent { node: B }), [proceed(3, false, false, true)]);
    home.step(close(C));
    assert!(!home.gather(B) && !home.takes_gathered(B));
}

#[test]
fn a_node_whose_server_is_started_anew_goes_on_gathering() {
    let mut home = gathered_by_b();
    home.step(Event::Reclaimed { node: B, open: opening(WRITE), in_grace: false, late: false });
    assert_eq!(home.step(Event::ToldAnew { node: B }), []);
    assert!(home.takes_gathered(B));
    assert_eq!(home.step(look(2, C)), [RECALL_B]);
    // The recall that is under way is answered by the new server: nothing is granted before.
    home.step(Event::ToldAnew { node: B });
    assert!(home.takes_gathered(B) && !home.may_gather(B));
    assert_eq!(home.step(handed_on()), [proceed(2, false, false, true)]);
    // Told late, it is not supposed to gather.
    home.step(Event::Reclaimed { node: B, open: opening(WRITE), in_grace: false, late: false });
    assert!(!home.takes_gathered(B));
}

fn opening(access: Access) -> Opening {
    Opening { access, kind: OpenKind::Remote, number: 1 }
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
    Gather(u16),
    Look(u16),
    /// The oldest recall is not answered.
    Silent,
    ToldAnew(u16),
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
        4 => (0..3u16).prop_map(Step::Gather),
        2 => (0..3u16).prop_map(Step::Look),
        1 => Just(Step::Silent),
        1 => (0..3u16).prop_map(Step::ToldAnew),
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
    /// Nodes that were not waited for while they gathered, and have not closed since.
    fenced: BTreeSet<NodeId>,
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
            Step::Gather(_) => return None, // No event: see the walk.
            Step::Look(node) => {
                self.waiting.push(ticket);
                Event::Look { ticket, node: NodeId(node) }
            }
            Step::Silent => {
                let (node, _) = *self.recalls.first()?;
                self.recalls.retain(|(silent, _)| *silent != node);
                if home.takes_gathered(node) {
                    self.fenced.insert(node);
                }
                Event::Silent { node }
            }
            Step::ToldAnew(node) => Event::ToldAnew { node: NodeId(node) },
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
    if let Some(gatherer) = home.gatherer {
        assert!(home.writes(gatherer), "H5: {gatherer} gathers what it does not write: {home:?}");
        assert!(home.grants.keys().all(|holder| *holder == gatherer), "H5: {home:?}");
        let others = home.opens().filter(|(opener, _)| *opener != gatherer);
        let of_others = home.changing.iter().filter(|change| change.node != gatherer);
        if home.hangs {
            assert_eq!(others.filter(|(_, held)| held.access().write).count(), 0, "H5: {home:?}");
            assert!(!of_others.into_iter().any(Operation::changes_bytes), "H5: {home:?}");
        } else {
            assert_eq!(others.count() + of_others.count(), 0, "H5: {home:?}");
        }
    }
    for node in &shell.fenced {
        assert!(!home.takes_gathered(*node), "H5: {node} is late: {home:?}");
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
            if let Step::Gather(node) = step {
                home.gather(NodeId(node));
                check_invariants(&home, &shell);
            }
            if let Some(event) = shell.event(&home, step) {
                let effects = home.step(event);
                shell.carry_out(&effects);
                shell.fenced.retain(|node| home.writes(*node) && home.late.contains(node));
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
