//! One inode, its home and three nodes, with a network that delays, reorders and repeats: every state
//! that they can reach.
//!
//! The home is [`Home`] itself. A node is what a mount keeps: opens, pages, and which answers came too
//! late to be kept. Checked in every state: nobody holds pages while another node's open for writing
//! has been answered (I4), a read that was answered is not older than any write acknowledged before it
//! began (I3), the home books no less than what nodes have open, and whatever waits goes on (I11: what
//! can happen runs out only when nobody waits). Recalls that are not answered, and openers that are
//! gone, are steps of the network.
//!
//! A node may gather: its writes are acknowledged while only its mount has them. Then a read or a look that was
//! answered may miss one only if its node did not answer (or was lost); each is written in the end, or its node told
//! EIO for it, and that only if it did not answer while another wrote, or was lost; no write is written over a later
//! one. The home may be restarted, so may the server of a node. What was handed on lands in two steps, as on a disk.
//! Rooms: [`steps`] that can be taken and what is checked after each, [`numbers`] that make no difference, [`runs`] of
//! some jobs.
//! Not here: locks and membership, sizes (`tests/sim` has all of them together), kernels with their own rules of opens,
//! two mounts of one node (their own server sees to them: `beside.rs`), and looks within the grace before anybody has
//! told that it has the file open (they may be shown less: here they wait).

use std::collections::BTreeSet;

use hayase_layout::NodeId;
use hayase_wire::message::{Access, Grants, OpenKind, Opening, StillOpen};

use super::{Effect, Event, Home};

mod numbers;
mod runs;
mod steps;

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
    /// How often mounts may ask whether they may gather, over all nodes.
    gathers: u8,
    /// Times that a node looks at what it has not open.
    looks: u8,
    /// Starts of the home, and of the servers of nodes.
    restarts: u8,
    /// Nodes that are declared lost, and come back.
    losses: u8,
    /// The home's own node opens by messages, too.
    all_remote: bool,
}

impl Default for Job {
    fn default() -> Self {
        let (writes, repeats, cuts) = (0, 0, 0);
        let (gathers, looks, restarts, losses) = (0, 0, 0, 0);
        let (opens, all_remote) = (vec![], false);
        Self { opens, writes, repeats, cuts, gathers, looks, restarts, losses, all_remote }
    }
}

/// Writes by the order in which they were made: a bit each.
type Writes = u8;

/// Those that came after the `last` one.
fn later_than(last: u8) -> Writes {
    u8::MAX.checked_shl(last.into()).unwrap_or(0)
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
    /// A read is under way, or a write, or a look.
    busy: bool,
    gathers: bool,
    gathered: Writes,
    /// It asks whether it may gather, by this number, or hands on: a recall waits.
    asks: Option<u8>,
    hands_on: bool,
    /// Once that is done, a recall is answered.
    recalled: Option<(u64, bool, bool)>,
    /// It was told that something is lost, and has not closed since.
    is_told: bool,
    /// It did not answer, or was lost.
    is_cut: bool,
    /// Others went on without what it has gathered, and may still be on their way.
    has_hung: bool,
    /// The home does not know what it holds.
    is_untold: bool,
}

impl Node {
    fn is_locked(&self) -> bool {
        self.asks.is_some() || self.hands_on
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Open {
        node: u16,
        write: bool,
        number: u64,
    },
    Opened {
        node: u16,
        write: bool,
        cache: bool,
        number: u64,
    },
    Close {
        node: u16,
        read: bool,
        write: bool,
        as_of: u64,
    },
    Recall {
        node: u16,
        number: u64,
        cache: bool,
        attr: bool,
    },
    Returned {
        node: u16,
        number: u64,
        cache: bool,
        attr: bool,
        read: bool,
        write: bool,
        as_of: u64,
    },
    Read {
        node: u16,
        known: Writes,
        recalls: u8,
    },
    Bytes {
        node: u16,
        version: u8,
        recalls: u8,
    },
    Write {
        node: u16,
    },
    Written {
        node: u16,
        version: u8,
    },
    Probe,
    Gather {
        node: u16,
        number: u8,
    },
    MayGather {
        node: u16,
        number: u8,
        may: bool,
    },
    HandOn {
        node: u16,
        writes: Writes,
    },
    /// On its way from the home's memory to its disk.
    Land {
        node: u16,
        writes: Writes,
    },
    Landed {
        node: u16,
    },
    TooLate {
        node: u16,
        writes: Writes,
    },
    Look {
        node: u16,
        known: Writes,
    },
    /// Nobody is waited for any more.
    Looks {
        node: u16,
        known: Writes,
    },
    /// The home has stopped to wait for its answer, and for what it handed on before.
    GiveUp {
        node: u16,
    },
}

impl Message {
    /// At the home: what it shows, or what it lets others do, comes after all that has been handed on to it.
    fn waits_for_disk(&self) -> Option<u16> {
        match *self {
            Self::Opened { node, .. }
            | Self::Read { node, .. }
            | Self::Write { node }
            | Self::Looks { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The node whose session it needs.
    fn needs_session(&self) -> Option<u16> {
        match *self {
            Self::Open { node, .. }
            | Self::Close { node, .. }
            | Self::Write { node }
            | Self::Gather { node, .. }
            | Self::HandOn { node, .. }
            | Self::Look { node, .. } => Some(node),
            _ => None,
        }
    }
}

/// What waits at the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Waits {
    Open {
        write: bool,
        number: u64,
    },
    Look {
        known: Writes,
    },
    /// An open that its node has told of, later than others.
    Told,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    home: Home,
    nodes: Vec<Node>,
    /// In no order.
    network: Vec<Message>,
    /// What the home was asked for and has not answered: ticket, node.
    waiting: Vec<(u64, u16, Waits)>,
    tickets: u64,
    /// Recalls that the home waits for.
    recalls: Vec<(u64, u16)>,
    /// The last write that was made, and the last one that is in the part.
    last: u8,
    bytes: u8,
    acknowledged: Writes,
    /// Their nodes were told so.
    lost: Writes,
    /// What the home keeps over its restarts: what comes of these is too late.
    late: BTreeSet<u16>,
    in_grace: bool,
    writes: u8,
    repeats: u8,
    cuts: u8,
    gathers: u8,
    looks: u8,
    restarts: u8,
    losses: u8,
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
    /// Recalls of this node are never answered: it has given up what it keeps by itself.
    Silent(u16),
    Gather(u16),
    /// A write that the mount gathers, and acknowledges.
    Keep(u16),
    HandOn(u16),
    Look(u16),
    RestartHome,
    EndGrace,
    /// The server of a node is restarted; its mount continues.
    Restart(u16),
    /// A node tells the home what it holds.
    Tell(u16),
    /// A node is declared lost.
    Lose(u16),
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
        let gatherer = self.home.gatherer();
        let effects = self.home.step(event);
        match event {
            Event::Silent { node } if gatherer == Some(node) && self.home.is_late(node) => {
                self.late.insert(node.0);
            }
            Event::Gone { node } if gatherer == Some(node) => {
                self.late.insert(node.0);
            }
            Event::Close { node, access, .. } if access.write => {
                self.late.remove(&node.0);
                self.node(node.0).has_hung = false;
            }
            _ => {}
        }
        if let Some(hangs) = self.home.gatherer().filter(|_| self.home.hangs) {
            self.node(hangs.0).has_hung = true;
        }
        for effect in effects {
            match effect {
                Effect::Recall { node, bits: Grants { cache, attr } } => {
                    self.tickets += 1;
                    let (number, node) = (self.tickets, node.0);
                    self.recalls.push((number, node));
                    self.send(Message::Recall { node, number, cache, attr });
                }
                Effect::Probe => self.send(Message::Probe),
                Effect::Proceed { ticket, grants, .. } => {
                    let at = self.waiting.iter().position(|(waiting, ..)| *waiting == ticket);
                    let (_, node, waited) =
                        self.waiting.remove(at.expect("who goes on has waited"));
                    match waited {
                        Waits::Open { write, number } => {
                            let cache = grants.cache;
                            self.send(Message::Opened { node, write, cache, number });
                        }
                        Waits::Look { known } => self.send(Message::Looks { node, known }),
                        Waits::Told => {
                            self.home.take_no_more_gathered(NodeId(node));
                            if self.home.is_late(NodeId(node)) {
                                self.late.insert(node);
                            }
                            self.told(node);
                        }
                    }
                }
            }
        }
    }

    fn wait(&mut self, node: u16, what: Waits) -> u64 {
        self.tickets += 1;
        self.waiting.push((self.tickets, node, what));
        self.tickets
    }

    fn told(&mut self, node: u16) {
        self.node(node).is_untold = false;
        self.event(Event::ToldAnew { node: NodeId(node) });
        if self.nodes.iter().all(|node| !node.is_untold) {
            self.in_grace = false;
        }
    }

    /// A node holds nothing any more that the home has granted.
    fn forget(&mut self, of: u16) {
        let node = self.node(of);
        node.pages = None;
        node.recalls += 1;
    }

    /// What `node` is shown now, of what was acknowledged before it asked.
    fn show(&mut self, node: u16, known: Writes) -> Result<u8, String> {
        let missed = known & later_than(self.bytes) & !self.lost;
        let by_who_is_cut = |gathered: Writes, of: u16| {
            let node = &self.nodes[usize::from(of)];
            let is_waited_for = self.home.takes_gathered(NodeId(of)) && !node.has_hung;
            node.is_cut && !is_waited_for || gathered & missed == 0
        };
        let is_excused = (0..).zip(&self.nodes).all(|(at, node)| by_who_is_cut(node.gathered, at));
        let on_its_way = |message: &Message| match *message {
            Message::HandOn { node, writes } => by_who_is_cut(writes, node),
            _ => true,
        };
        if !is_excused || !self.network.iter().all(on_its_way) || missed & !self.kept() != 0 {
            return Err(format!("I3: {node} is shown {} without {missed:b}", self.bytes));
        }
        Ok(self.bytes)
    }

    /// What is not in the part yet, and not landing there.
    fn kept(&self) -> Writes {
        let on_its_way = |message: &Message| match *message {
            Message::HandOn { writes, .. } | Message::TooLate { writes, .. } => writes,
            _ => 0,
        };
        let mounts = self.nodes.iter().fold(0, |all, node| all | node.gathered);
        self.network.iter().fold(mounts, |all, message| all | on_its_way(message))
    }

    fn put(&mut self, writes: Writes) -> Result<(), String> {
        let latest = (Writes::BITS - writes.leading_zeros()) as u8;
        if latest < self.bytes {
            return Err(format!("{latest} is written over the later {}", self.bytes));
        }
        self.bytes = latest;
        Ok(())
    }

    /// What those have who were overtaken by the end of the grace: nobody waits for it.
    fn not_told(&self) -> Writes {
        let is_overtaken = |of: u16| {
            let node = &self.nodes[usize::from(of)];
            node.is_cut && node.is_untold
        };
        let gathered = (0..).zip(&self.nodes).map(|(at, node)| (at, node.gathered));
        let on_its_way = self.network.iter().filter_map(|message| match *message {
            Message::HandOn { node, writes } => Some((node, writes)),
            _ => None,
        });
        let of_overtaken = gathered.chain(on_its_way).filter(|(of, _)| is_overtaken(*of));
        of_overtaken.fold(0, |all, (_, writes)| all | writes)
    }

    fn may_arrive(&self, message: &Message) -> bool {
        let is_landing = || self.network.iter().any(|other| matches!(other, Message::Land { .. }));
        let waits_for_disk = |node| !self.home.takes_gathered(NodeId(node)) && is_landing();
        let node = |node: u16| &self.nodes[usize::from(node)];
        if message.needs_session().is_some_and(|of| node(of).is_untold) {
            return false;
        }
        match message {
            Message::Recall { node: of, .. } => !node(*of).is_locked(),
            Message::Open { .. } | Message::Gather { .. } => !self.in_grace,
            // Who might gather it may not have told.
            Message::Look { .. } => !self.in_grace || self.home.is_open(),
            Message::GiveUp { .. } => !is_landing(),
            other => !other.waits_for_disk().is_some_and(waits_for_disk),
        }
    }

    fn opening(job: &Job, node: u16, write: bool, number: u64) -> Opening {
        let is_local = node == 0 && !job.all_remote;
        let kind = if is_local { OpenKind::Local } else { OpenKind::Remote };
        Opening { access: if write { WRITE } else { READ }, kind, number }
    }

    fn arrive(&mut self, job: &Job, message: Message) -> Result<(), String> {
        match message {
            Message::Open { node, write, number } => {
                let ticket = self.wait(node, Waits::Open { write, number });
                let open = Self::opening(job, node, write, number);
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
            Message::Recall { node, number, cache, attr } => {
                self.recalled(node, number, cache, attr);
            }
            Message::Returned { node, number, cache, attr, read, write, as_of } => {
                let is_waited_for = |waited: &(u64, u16)| waited.0 == number;
                let Some(at) = self.recalls.iter().position(is_waited_for) else { return Ok(()) };
                self.recalls.remove(at);
                let still_open = StillOpen { access: Access { read, write }, as_of };
                let bits = Grants { cache, attr };
                self.event(Event::Returned { node: NodeId(node), bits, still_open });
            }
            Message::Read { node, known, recalls } => {
                let version = self.show(node, known)?;
                self.send(Message::Bytes { node, version, recalls });
            }
            Message::Bytes { node, version, recalls } => {
                let node = self.node(node);
                node.busy = false;
                if let Some(pages) = &mut node.pages
                    && node.recalls == recalls
                {
                    *pages = Some(version);
                }
            }
            Message::Write { node } => {
                self.last += 1;
                let version = self.last;
                self.put(1 << (version - 1))?;
                self.send(Message::Written { node, version });
            }
            Message::Written { node, version } => {
                self.node(node).busy = false;
                self.acknowledged |= 1 << (version - 1);
            }
            Message::Gather { node, number } => {
                let may = self.home.gather(NodeId(node));
                if may {
                    self.late.remove(&node);
                }
                self.send(Message::MayGather { node, number, may });
            }
            Message::MayGather { node, number, may } => {
                let node = self.node(node);
                if node.asks.take_if(|asks| *asks == number).is_some() {
                    node.gathers |= may;
                }
            }
            Message::HandOn { node, writes } => {
                let takes = self.home.takes_gathered(NodeId(node));
                if takes {
                    self.home.gatherer_came();
                }
                self.send(match takes {
                    true => Message::Land { node, writes },
                    false => Message::TooLate { node, writes },
                });
            }
            Message::Land { node, writes } => {
                self.put(writes)?;
                self.send(Message::Landed { node });
            }
            Message::Landed { node } => self.handed_on(node),
            Message::TooLate { node: of, writes } => {
                let node = self.node(of);
                if !node.is_cut {
                    return Err(format!("{of} was there, and {writes:b} of it is lost"));
                }
                node.is_told = true;
                node.gathers = false;
                self.lost |= writes;
                self.handed_on(of);
            }
            Message::Look { node, known } => {
                let ticket = self.wait(node, Waits::Look { known });
                self.event(Event::Look { ticket, node: NodeId(node) });
            }
            Message::Looks { node, known } => {
                self.node(node).busy = false;
                self.show(node, known)?;
            }
            Message::GiveUp { node } => self.event(Event::Silent { node: NodeId(node) }),
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

    fn handed_on(&mut self, of: u16) {
        let node = self.node(of);
        node.hands_on = false;
        if let Some((number, cache, attr)) = node.recalled.take() {
            self.gives_back(of, number, cache, attr);
        }
    }

    fn begin_to_hand_on(&mut self, of: u16) {
        let node = self.node(of);
        node.hands_on = true;
        let writes = std::mem::take(&mut node.gathered);
        self.send(Message::HandOn { node: of, writes });
    }

    fn recalled(&mut self, of: u16, number: u64, cache: bool, attr: bool) {
        let node = self.node(of);
        if cache {
            node.pages = None;
        }
        node.recalls += 1;
        if node.gathered == 0 {
            self.gives_back(of, number, cache, attr);
        } else {
            node.recalled = Some((number, cache, attr));
            self.begin_to_hand_on(of);
        }
    }

    fn gives_back(&mut self, of: u16, number: u64, cache: bool, attr: bool) {
        let node = self.node(of);
        node.gathers = false;
        let coming = node.coming.map_or(NONE, |(open, _)| open.access);
        let (read, write) = (node.open.read || coming.read, node.open.write || coming.write);
        let as_of = node.opened as u64;
        self.send(Message::Returned { node: of, number, cache, attr, read, write, as_of });
    }

    fn restart_home(&mut self, job: &Job) {
        self.home = Home::after_restart(NodeId(0));
        self.in_grace = true;
        self.recalls.clear();
        // Who was asked is not waited for; who asked asks again.
        let is_asked = |message: &Message| {
            matches!(
                message,
                Message::Recall { .. }
                    | Message::Returned { .. }
                    | Message::Probe
                    | Message::GiveUp { .. }
            )
        };
        self.network.retain(|message| !is_asked(message));
        for message in &mut self.network {
            *message = match *message {
                Message::Looks { node, known } => Message::Look { node, known },
                Message::Land { node, writes } => Message::HandOn { node, writes },
                Message::Opened { node, write, number, .. } => {
                    Message::Open { node, write, number }
                }
                other => other,
            };
        }
        for (_, node, waited) in std::mem::take(&mut self.waiting) {
            match waited {
                Waits::Open { write, number } => self.send(Message::Open { node, write, number }),
                Waits::Look { known } => self.send(Message::Look { node, known }),
                Waits::Told => {}
            }
        }
        for node in 0..job.opens.len() as u16 {
            let node = self.node(node);
            node.is_untold = true;
            node.gathers &= node.recalled.take().is_none();
        }
        self.network.sort_unstable();
    }

    fn tell(&mut self, job: &Job, of: u16) {
        self.forget(of);
        let (node, held) = (NodeId(of), self.nodes[usize::from(of)].open);
        let number = self.nodes[usize::from(of)].opened as u64;
        let kind = Self::opening(job, of, held.write, number).kind;
        let open = Opening { access: held, kind, number };
        let booked = self.home.opens().find(|(opener, _)| *opener == node);
        let booked = booked.map_or(NONE, |(_, booked)| booked.access());
        let is_booked = (booked.read || !held.read) && (booked.write || !held.write);
        if held == NONE {
            let access = Access { read: true, write: true };
            self.event(Event::Close { node, access, as_of: number });
            self.late.remove(&of);
        } else if self.in_grace || is_booked {
            let late = self.late.contains(&of);
            self.event(Event::Reclaimed { node, open, in_grace: self.in_grace, late });
        } else {
            // Until then it is not served.
            let ticket = self.wait(of, Waits::Told);
            self.event(Event::Open { ticket, node, open });
            return;
        }
        self.told(of);
    }

    fn give_up(&mut self, of: u16) {
        self.recalls.retain(|(_, node)| *node != of);
        self.network.retain(|message| match message {
            Message::Recall { node, .. } | Message::Returned { node, .. } => *node != of,
            _ => true,
        });
        self.forget(of);
        let silent = self.node(of);
        silent.is_cut = true;
        // It answers, and nobody hears it.
        if silent.recalled.take().is_some() {
            silent.gathers = false;
        }
    }
}
