//! One inode, its home and three nodes, with a network that delays, reorders and repeats: every state
//! that they can reach.
//!
//! The home is [`Home`] itself. A node is what a mount keeps: opens, pages, and which answers came too
//! late to be kept. Checked in every state: nobody holds pages while another node's open for writing
//! has been answered (I4), a read that was answered is not older than any write acknowledged before it
//! began (I3), the home books no less than what nodes have open, and whatever waits goes on (I11: what
//! can happen runs out only when nobody waits). Recalls that are not answered, and openers that are
//! gone, are steps of the network.
//! Not here: locks and membership, sizes, restarts of the home (`tests/sim` has all of them together),
//! kernels with their own rules of opens.

use hayase_layout::NodeId;
use hayase_wire::message::{Access, Grants, OpenKind, Opening, StillOpen};

use super::{Effect, Event, Home};
use crate::explore::{Explored, Model, explore};

const READ: Access = Access { read: true, write: false };
const WRITE: Access = Access { read: false, write: true };
const NONE: Access = Access { read: false, write: false };

/// What a node's programs may do, and what the network may.
struct Job {
    /// For each node: the opens that its programs may ask for, one after the other.
    opens: Vec<Vec<Access>>,
    /// Writes, over all nodes.
    writes: u8,
    /// Messages that arrive twice.
    repeats: u8,
    /// Nodes that are cut off: they give their pages up and are not waited for.
    cuts: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    opened: usize,
    open: Access,
    /// On its way to the home, and how many recalls had come when it was asked for.
    coming: Option<(Opening, u8)>,
    closing: bool,
    /// `None` without a grant; the version of the bytes that it keeps, if it has read them.
    pages: Option<Option<u8>>,
    recalls: u8,
    /// A read is under way, or a write.
    busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Open { node: u16, write: bool, number: u64 },
    Opened { node: u16, write: bool, cache: bool, number: u64 },
    Close { node: u16, read: bool, write: bool, as_of: u64 },
    Recall { node: u16, cache: bool, attr: bool },
    Returned { node: u16, cache: bool, attr: bool, read: bool, write: bool, as_of: u64 },
    Read { node: u16, known: u8, recalls: u8 },
    Bytes { node: u16, known: u8, version: u8, recalls: u8 },
    Write { node: u16 },
    Written { node: u16, version: u8 },
    Probe,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    home: Home,
    nodes: Vec<Node>,
    /// In no order.
    network: Vec<Message>,
    /// Opens that the home was asked for and has not answered: ticket, node.
    waiting: Vec<(u64, u16, bool, u64)>,
    tickets: u64,
    /// Version of the bytes, and of the last write that was acknowledged.
    bytes: u8,
    acknowledged: u8,
    writes: u8,
    repeats: u8,
    cuts: u8,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u16),
    Close(u16),
    Read(u16),
    Write(u16),
    /// The message in this place arrives; `again`: and once more, later.
    Arrive {
        at: usize,
        again: bool,
    },
    /// The recall in this place is never answered: its node has given up what it keeps by itself.
    Silent(usize),
}

impl State {
    fn send(&mut self, message: Message) {
        self.network.push(message);
        self.network.sort_unstable();
    }

    fn node(&mut self, node: u16) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    fn event(&mut self, event: Event) {
        for effect in self.home.step(event) {
            match effect {
                Effect::Recall { node, bits: Grants { cache, attr } } => {
                    self.send(Message::Recall { node: node.0, cache, attr });
                }
                Effect::Probe => self.send(Message::Probe),
                Effect::Proceed { ticket, grants, .. } => {
                    let at = self.waiting.iter().position(|(waiting, ..)| *waiting == ticket);
                    let (_, node, write, number) =
                        self.waiting.remove(at.expect("who goes on has waited"));
                    let cache = grants.cache;
                    self.send(Message::Opened { node, write, cache, number });
                }
            }
        }
    }

    fn opening(node: u16, write: bool, number: u64) -> Opening {
        let kind = if node == 0 { OpenKind::Local } else { OpenKind::Remote };
        Opening { access: if write { WRITE } else { READ }, kind, number }
    }

    fn arrive(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Open { node, write, number } => {
                self.tickets += 1;
                let ticket = self.tickets;
                self.waiting.push((ticket, node, write, number));
                let open = Self::opening(node, write, number);
                self.event(Event::Open { ticket, node: NodeId(node), open });
            }
            Message::Opened { node, write, cache, number } => {
                self.opened(node, write, cache, number);
            }
            Message::Close { node, read, write, as_of } => {
                self.node(node).closing = false;
                let access = Access { read, write };
                self.event(Event::Close { node: NodeId(node), access, as_of });
            }
            Message::Recall { node, cache, attr } => self.recalled(node, cache, attr),
            Message::Returned { node, cache, attr, read, write, as_of } => {
                let still_open = StillOpen { access: Access { read, write }, as_of };
                let bits = Grants { cache, attr };
                self.event(Event::Returned { node: NodeId(node), bits, still_open });
            }
            Message::Read { node, known, recalls } => {
                let version = self.bytes;
                self.send(Message::Bytes { node, known, version, recalls });
            }
            Message::Bytes { node, known, version, recalls } => {
                let node = self.node(node);
                node.busy = false;
                if let Some(pages) = &mut node.pages
                    && node.recalls == recalls
                {
                    *pages = Some(version);
                }
                if version < known {
                    return Err(format!("I3: read {version} after {known} was acknowledged"));
                }
            }
            Message::Write { node } => {
                self.bytes += 1;
                let version = self.bytes;
                self.send(Message::Written { node, version });
            }
            Message::Written { node, version } => {
                self.node(node).busy = false;
                self.acknowledged = self.acknowledged.max(version);
            }
            Message::Probe => self.event(Event::Probed { quiescent: true }),
        }
        Ok(())
    }

    fn opened(&mut self, node: u16, write: bool, cache: bool, number: u64) {
        let node = self.node(node);
        // The answer to a repetition, or to one that was answered before.
        let Some((_, recalls)) = node.coming.take_if(|(open, _)| open.number == number) else {
            return;
        };
        node.open.read |= !write;
        node.open.write |= write;
        let may_keep = cache && node.recalls == recalls && !node.open.write;
        if !may_keep {
            node.pages = None;
        } else if node.pages.is_none() {
            node.pages = Some(None);
        }
    }

    fn recalled(&mut self, of: u16, cache: bool, attr: bool) {
        let node = self.node(of);
        if cache {
            node.pages = None;
        }
        node.recalls += 1;
        let coming = node.coming.map_or(NONE, |(open, _)| open.access);
        let (read, write) = (node.open.read || coming.read, node.open.write || coming.write);
        let as_of = node.opened as u64;
        self.send(Message::Returned { node: of, cache, attr, read, write, as_of });
    }
}

impl Model for Job {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        State {
            home: Home::new(NodeId(0)),
            nodes: vec![Node::default(); self.opens.len()],
            network: Vec::new(),
            waiting: Vec::new(),
            tickets: 0,
            bytes: 0,
            acknowledged: 0,
            writes: self.writes,
            repeats: self.repeats,
            cuts: self.cuts,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, (node, opens)) in (0..).zip(state.nodes.iter().zip(&self.opens)) {
            let is_quiet = node.coming.is_none() && !node.closing && !node.busy;
            if is_quiet && node.opened < opens.len() {
                steps.push(Step::Open(at));
            }
            if is_quiet && node.open != NONE {
                steps.push(Step::Close(at));
            }
            // What it keeps it reads without a step: `check` looks at it.
            if is_quiet && node.open.read && !matches!(node.pages, Some(Some(_))) {
                steps.push(Step::Read(at));
            }
            if is_quiet && node.open.write && state.writes > 0 {
                steps.push(Step::Write(at));
            }
        }
        for (at, message) in state.network.iter().enumerate() {
            steps.push(Step::Arrive { at, again: false });
            // Answers belong to their requests, which are run once.
            let may_repeat = matches!(
                message,
                Message::Close { .. } | Message::Recall { .. } | Message::Returned { .. }
            );
            if may_repeat && state.repeats > 0 {
                steps.push(Step::Arrive { at, again: true });
            }
            if matches!(message, Message::Recall { .. }) && state.cuts > 0 {
                steps.push(Step::Silent(at));
            }
        }
        steps
    }

    fn after(&self, before: &State, step: &Step) -> Result<State, String> {
        let mut state = before.clone();
        match *step {
            Step::Open(at) => {
                let access = self.opens[usize::from(at)][state.node(at).opened];
                let node = state.node(at);
                node.opened += 1;
                let number = node.opened as u64;
                if access.write {
                    node.pages = None;
                    node.recalls += 1;
                }
                node.coming = Some((State::opening(at, access.write, number), node.recalls));
                state.send(Message::Open { node: at, write: access.write, number });
            }
            Step::Close(at) => {
                let node = state.node(at);
                let Access { read, write } = std::mem::take(&mut node.open);
                (node.pages, node.closing) = (None, true);
                let as_of = node.opened as u64;
                state.send(Message::Close { node: at, read, write, as_of });
            }
            Step::Read(node) => {
                let known = state.acknowledged;
                state.node(node).busy = true;
                let recalls = state.node(node).recalls;
                state.send(Message::Read { node, known, recalls });
            }
            Step::Write(node) => {
                state.writes -= 1;
                if node == 0 {
                    // The kernel writes the part itself.
                    state.bytes += 1;
                    state.acknowledged = state.bytes;
                } else {
                    state.node(node).busy = true;
                    state.send(Message::Write { node });
                }
            }
            Step::Arrive { at, again } => {
                let message = state.network.remove(at);
                if again {
                    state.repeats -= 1;
                    state.send(message);
                }
                state.arrive(message)?;
            }
            Step::Silent(at) => {
                let Message::Recall { node, .. } = state.network.remove(at) else {
                    unreachable!("only recalls are not answered");
                };
                state.cuts -= 1;
                let silent = state.node(node);
                silent.pages = None;
                silent.recalls += 1;
                state.event(Event::Silent { node: NodeId(node) });
            }
        }
        Ok(state)
    }

    fn check(&self, state: &State, is_over: bool) -> Result<(), String> {
        let nodes = || (0u16..).zip(&state.nodes);
        for (writer, _) in nodes().filter(|(_, node)| node.open.write) {
            for (other, node) in nodes().filter(|(other, _)| *other != writer) {
                if node.pages.is_some() {
                    return Err(format!("I4: {other} keeps pages while {writer} writes"));
                }
            }
        }
        for (at, node) in nodes() {
            if let Some(Some(version)) = node.pages
                && node.open.read
                && version < state.acknowledged
            {
                let known = state.acknowledged;
                return Err(format!("I3: {at} keeps {version} after {known} was acknowledged"));
            }
            let booked = state.home.opens().find(|(opener, _)| opener.0 == at);
            let booked = booked.map_or(NONE, |(_, held)| held.access());
            if (node.open.read && !booked.read) || (node.open.write && !booked.write) {
                return Err(format!("{at} has open {:?}, booked is {booked:?}", node.open));
            }
        }
        if is_over && !state.waiting.is_empty() {
            return Err("I11: somebody waits, and nothing can happen any more".to_owned());
        }
        Ok(())
    }
}

fn all(job: &Job) -> Explored {
    explore(job, 3_000_000).unwrap_or_else(|violation| panic!("{violation}"))
}

#[test]
fn a_reader_and_a_writer_elsewhere_beside_the_home() {
    let opens = vec![vec![WRITE], vec![READ, READ], vec![WRITE]];
    let explored = all(&Job { opens, writes: 2, repeats: 0, cuts: 0 });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn two_readers_and_a_writer_with_messages_that_come_twice() {
    let opens = vec![vec![], vec![READ, WRITE], vec![READ, READ]];
    let explored = all(&Job { opens, writes: 1, repeats: 1, cuts: 0 });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn readers_that_are_cut_off_do_not_hold_up_a_writer() {
    let opens = vec![vec![WRITE], vec![READ], vec![READ]];
    let explored = all(&Job { opens, writes: 1, repeats: 1, cuts: 1 });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}
