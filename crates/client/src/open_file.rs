//! One inode as this node has it open: which class, what the home counts, what lingers.
//!
//! The home counts per node whether it reads and whether it writes; only the first open and the
//! last close of each kind are told to it. After the last close the home is told late
//! ([`crate::limits::READ_LINGER`], [`crate::limits::WRITE_LINGER`]), so that opening again costs
//! nothing and closes travel together.
//!
//! Here: the decisions, pure. Not here: messages and locks ([`crate::volume::area`]), which kind of
//! open the kernel gets (`hayase_fuse::open_class`).
//! Invariants: `class` does not change while a handle or a held open exists; at most one `Open` and
//! one `Close` of an inode are on their way, never both; what has a handle is held, and the home counts what is held.

use std::time::{Duration, Instant};

use hayase_wire::message::{Access, OpenKind};

/// How all opens of an inode on one node are served, from the first open to the last release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// By the part itself, on this node (class L).
    Local,
    /// By messages (class R).
    Remote,
}

/// What this process can do with the part of a file on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Use its descriptor: passthrough of the kernel, or plain calls of a program.
    Descriptor,
    /// Only messages, but the kernel of the only opener may cache what it writes
    /// (kernels without passthrough, or without mmap on direct files).
    CachedWriter,
    /// Only messages.
    Messages,
}

/// How long closed opens are kept at the home.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    /// Read opens.
    pub read: Duration,
    /// Write opens.
    pub write: Duration,
    /// Both, of an inode that has no name left.
    pub nameless: Duration,
}

impl Linger {
    /// Not at all.
    pub const NONE: Self =
        Self { read: Duration::ZERO, write: Duration::ZERO, nameless: Duration::ZERO };
}

/// What to do about an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The home counts it already.
    Ready,
    /// Another message about this inode is on its way.
    Wait,
    /// Tell the home.
    Ask {
        /// What the home does not count yet; nothing when it is only to truncate.
        access: Access,
        /// How it is going to be served.
        kind: OpenKind,
    },
}

/// One inode, as this node has it open.
#[derive(Debug, Default)]
pub struct OpenFile {
    class: Option<Class>,
    readers: u32,
    writers: u32,
    held: Access,
    asking: Option<Access>,
    /// What the open that is on its way is for, together with what is held: until it is answered none of that ends.
    wanted: Access,
    closing: bool,
    read_idle: Option<Instant>,
    write_idle: Option<Instant>,
    /// Somebody else wants it, or it was lost: nothing lingers any more.
    brief: bool,
    /// It has no name left: nothing lingers longer than it takes to tell of many at once.
    nameless: bool,
}

impl OpenFile {
    /// How opens are served; `None` before the first answer.
    pub fn class(&self) -> Option<Class> {
        self.class
    }

    /// Open descriptors (reading, writing); one that does both counts in both.
    pub fn handles(&self) -> (u32, u32) {
        (self.readers, self.writers)
    }

    /// What the home counts.
    pub fn held(&self) -> Access {
        self.held
    }

    /// Whether a descriptor is open.
    pub fn is_open(&self) -> bool {
        self.readers + self.writers > 0
    }

    /// Whether nothing is open, held or on its way.
    pub fn is_unused(&self) -> bool {
        !self.is_open() && is_none(self.held) && self.asking.is_none() && !self.closing
    }

    /// What to do so that `access` may be answered. Changes nothing.
    pub fn plan(&self, access: Access, truncate: bool, serving: Serving) -> Plan {
        let missing = without(access, self.held);
        if is_none(missing) && !truncate && self.class.is_some() {
            return Plan::Ready;
        }
        if self.asking.is_some() || self.closing {
            return Plan::Wait;
        }
        Plan::Ask { access: missing, kind: self.kind(access, serving) }
    }

    fn kind(&self, access: Access, serving: Serving) -> OpenKind {
        match (self.class, serving) {
            (Some(Class::Local), _) | (None, Serving::Descriptor) => OpenKind::Local,
            // As long as this node writes, whatever this open is for.
            (_, Serving::CachedWriter) if access.write || self.held.write => {
                OpenKind::RemoteCachedWriter
            }
            _ => OpenKind::Remote,
        }
    }

    /// The question is sent, for what is missing of the `wanted` access.
    pub fn ask(&mut self, missing: Access, wanted: Access) {
        debug_assert!(self.asking.is_none() && !self.closing, "one message at a time");
        self.asking = Some(missing);
        self.wanted = wanted;
    }

    /// The home agreed, and this is how it is served if nothing was open before.
    pub fn agreed(&mut self, class: Class) {
        let asked = self.asking.take().unwrap_or_default();
        self.wanted = Access::default();
        self.held = with(self.held, asked);
        self.class.get_or_insert(class);
    }

    /// The home said no, or nothing.
    pub fn refused(&mut self) {
        self.asking = None;
        self.wanted = Access::default();
        if self.is_unused() {
            self.class = None;
        }
    }

    /// The home counts a new file, made and opened in one step; what nobody here opens lingers.
    pub fn made(&mut self, held: Access, class: Class, now: Instant) {
        self.held = with(self.held, held);
        self.class.get_or_insert(class);
        self.read_idle = (held.read && self.readers == 0).then_some(now);
        self.write_idle = (held.write && self.writers == 0).then_some(now);
    }

    /// A descriptor is handed out.
    pub fn add(&mut self, access: Access) {
        if access.read {
            self.readers += 1;
            self.read_idle = None;
        }
        if access.write {
            self.writers += 1;
            self.write_idle = None;
        }
    }

    /// A descriptor is released; what it was the last of begins to linger.
    pub fn release(&mut self, access: Access, now: Instant) {
        if access.read {
            self.readers = self.readers.saturating_sub(1);
            if self.readers == 0 {
                self.read_idle = Some(now);
            }
        }
        if access.write {
            self.writers = self.writers.saturating_sub(1);
            if self.writers == 0 {
                self.write_idle = Some(now);
            }
        }
    }

    /// What is not open any more is told of at once: the home and the server here are to forget it.
    pub fn end_lingering(&mut self) {
        self.brief = true;
    }

    /// When [`OpenFile::close_due`] has something to do, as far as is known now.
    pub fn due(&self, linger: Linger) -> Option<Instant> {
        let linger = self.at_most(linger);
        let read = self.read_idle.filter(|_| self.held.read).map(|idle| idle + linger.read);
        let write = self.write_idle.filter(|_| self.held.write).map(|idle| idle + linger.write);
        match (read, write) {
            (Some(read), Some(write)) => Some(read.min(write)),
            (one, other) => one.or(other),
        }
    }

    /// What has lingered long enough: tell the home (then [`OpenFile::closed`]) that it is over.
    pub fn close_due(&mut self, now: Instant, linger: Linger) -> Option<Access> {
        if self.asking.is_some() || self.closing {
            return None;
        }
        let linger = self.at_most(linger);
        let over = |idle: Option<Instant>, wait| idle.is_some_and(|idle| idle + wait <= now);
        let ended = Access {
            read: self.held.read && self.readers == 0 && over(self.read_idle, linger.read),
            write: self.held.write && self.writers == 0 && over(self.write_idle, linger.write),
        };
        if is_none(ended) {
            return None;
        }
        self.held = without(self.held, ended);
        self.closing = true;
        self.forget_class();
        Some(ended)
    }

    fn at_most(&self, linger: Linger) -> Linger {
        let Linger { read, write, nameless } = linger;
        match (self.brief, self.nameless) {
            (true, _) => Linger::NONE,
            (false, true) => {
                Linger { read: read.min(nameless), write: write.min(nameless), nameless }
            }
            (false, false) => linger,
        }
    }

    /// The home knows of the close (or is gone).
    pub fn closed(&mut self) {
        self.closing = false;
    }

    /// The inode has no names left: what lingers is to be closed soon.
    pub fn unnamed(&mut self, now: Instant) {
        self.nameless = true;
        self.read_idle = self.read_idle.map(|_| now);
        self.write_idle = self.write_idle.map(|_| now);
    }

    /// The home takes back: what lingers ends; tells what stays open or is being opened.
    pub fn recall(&mut self) -> Access {
        let handles = Access { read: self.readers > 0, write: self.writers > 0 };
        let open = with(handles, self.wanted);
        self.held =
            Access { read: self.held.read && open.read, write: self.held.write && open.write };
        self.brief = true;
        if self.asking.is_none() {
            self.forget_class();
        }
        open
    }

    fn forget_class(&mut self) {
        if !self.is_open() && is_none(self.held) {
            self.class = None;
            self.brief = false;
            self.nameless = false;
        }
    }
}

/// Both.
pub fn with(one: Access, other: Access) -> Access {
    Access { read: one.read || other.read, write: one.write || other.write }
}

/// What is in `one` and not in `other`.
pub fn without(one: Access, other: Access) -> Access {
    Access { read: one.read && !other.read, write: one.write && !other.write }
}

/// Neither reading nor writing.
pub fn is_none(access: Access) -> bool {
    !access.read && !access.write
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::{NAMELESS_LINGER, READ_LINGER, WRITE_LINGER};

    const NONE: Access = Access { read: false, write: false };
    const READ: Access = Access { read: true, write: false };
    const WRITE: Access = Access { read: false, write: true };
    const BOTH: Access = Access { read: true, write: true };
    const LINGER: Linger =
        Linger { read: READ_LINGER, write: WRITE_LINGER, nameless: NAMELESS_LINGER };

    fn opened(access: Access, class: Class) -> OpenFile {
        let mut file = OpenFile::default();
        file.ask(access, access);
        file.agreed(class);
        file.add(access);
        file
    }

    #[test]
    fn only_what_the_home_does_not_count_is_asked() {
        let check = |held: Access, class, access, truncate, serving, expected: Plan| {
            let file = opened(held, class);
            assert_eq!(file.plan(access, truncate, serving), expected, "{held:?} {access:?}");
        };
        let ask = |access, kind| Plan::Ask { access, kind };
        use {Class::*, OpenKind as K, Serving::*};
        check(READ, Local, READ, false, Descriptor, Plan::Ready);
        check(BOTH, Local, WRITE, false, Descriptor, Plan::Ready);
        check(READ, Local, BOTH, false, Descriptor, ask(WRITE, K::Local));
        check(READ, Local, WRITE, false, Messages, ask(WRITE, K::Local)); // the class stays
        check(READ, Remote, WRITE, false, Descriptor, ask(WRITE, K::Remote)); // never mixed
        check(READ, Remote, BOTH, false, CachedWriter, ask(WRITE, K::RemoteCachedWriter));
        check(WRITE, Remote, READ, false, CachedWriter, ask(READ, K::RemoteCachedWriter));
        check(BOTH, Local, WRITE, true, Descriptor, ask(NONE, K::Local)); // O_TRUNC always asks
    }

    #[test]
    fn the_first_open_chooses_by_what_can_be_done() {
        let check = |serving, access, kind| {
            let plan = OpenFile::default().plan(access, false, serving);
            assert_eq!(plan, Plan::Ask { access, kind });
        };
        check(Serving::Descriptor, READ, OpenKind::Local);
        check(Serving::Messages, WRITE, OpenKind::Remote);
        check(Serving::CachedWriter, READ, OpenKind::Remote);
        check(Serving::CachedWriter, WRITE, OpenKind::RemoteCachedWriter);
    }

    #[test]
    fn messages_about_one_inode_go_one_by_one() {
        let mut file = OpenFile::default();
        file.ask(READ, READ);
        assert_eq!(file.plan(READ, false, Serving::Descriptor), Plan::Wait);
        file.agreed(Class::Local);
        file.add(READ);
        file.ask(WRITE, WRITE);
        assert_eq!(file.plan(READ, false, Serving::Descriptor), Plan::Ready);
        assert_eq!(file.plan(WRITE, false, Serving::Descriptor), Plan::Wait);
        file.refused();
        assert_eq!(file.class(), Some(Class::Local));
    }

    #[test]
    fn reads_linger_and_writes_are_closed_soon() {
        let (mut file, now) = (opened(BOTH, Class::Local), Instant::now());
        file.release(BOTH, now);
        assert_eq!(file.due(LINGER), Some(now + WRITE_LINGER));
        assert_eq!(file.close_due(now, LINGER), None);
        assert_eq!(file.close_due(now + WRITE_LINGER, LINGER), Some(WRITE));
        assert_eq!(file.plan(WRITE, false, Serving::Descriptor), Plan::Wait, "close on its way");
        assert_eq!(file.plan(READ, false, Serving::Descriptor), Plan::Ready, "read lingers");
        file.closed();
        assert_eq!(file.due(LINGER), Some(now + READ_LINGER));
        assert_eq!(file.close_due(now + READ_LINGER, LINGER), Some(READ));
        assert!(!file.is_unused());
        file.closed();
        assert!(file.is_unused() && file.class().is_none());
    }

    #[test]
    fn opening_again_ends_the_lingering() {
        let (mut file, now) = (opened(READ, Class::Remote), Instant::now());
        file.release(READ, now);
        file.add(READ);
        assert_eq!(file.due(LINGER), None);
        assert_eq!(file.close_due(now + READ_LINGER, LINGER), None);
        file.release(READ, now + READ_LINGER);
        assert_eq!(file.due(LINGER), Some(now + READ_LINGER + READ_LINGER));
    }

    #[test]
    fn a_recall_ends_what_lingers_and_tells_what_is_open_or_coming() {
        let (mut file, now) = (opened(BOTH, Class::Local), Instant::now());
        file.add(READ);
        file.release(BOTH, now);
        assert_eq!(file.recall(), READ, "the write open lingered");
        file.release(READ, now);
        assert_eq!(file.recall(), NONE);
        assert!(file.is_unused() && file.class().is_none());

        file.ask(WRITE, WRITE);
        assert_eq!(file.recall(), WRITE, "its answer may be on its way");
    }

    /// Of what it opens a part lingers, and is not asked for. Without a part that is missing it is to be truncated.
    #[test]
    fn a_recall_leaves_what_an_open_on_its_way_takes_over() {
        let now = Instant::now();
        for (wanted, missing) in [(BOTH, READ), (WRITE, NONE)] {
            let mut file = opened(WRITE, Class::Remote);
            file.release(WRITE, now);
            file.ask(missing, wanted);
            assert_eq!(file.recall(), wanted);
            file.agreed(Class::Remote);
            file.add(wanted);
            assert_eq!(file.held(), wanted);
        }
        let mut file = opened(WRITE, Class::Remote);
        file.release(WRITE, now);
        file.ask(READ, BOTH);
        assert_eq!(file.recall(), BOTH);
        file.refused();
        assert_eq!(file.close_due(now, LINGER), Some(WRITE), "it lingers no more");
    }

    /// What can happen to one inode.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Open {
            access: Access,
            truncate: bool,
        },
        /// The home takes notice of the open that is on its way.
        Arrive,
        /// Its answer, or that it was refused.
        Answer {
            agreed: bool,
        },
        Release {
            access: Access,
        },
        Recall,
        CloseDue,
        Closed,
    }

    fn step() -> impl Strategy<Value = Step> {
        let access = || prop::sample::select(vec![READ, WRITE, BOTH]);
        prop_oneof![
            3 => (access(), any::<bool>()).prop_map(|(access, truncate)| Step::Open { access, truncate }),
            2 => Just(Step::Arrive),
            3 => any::<bool>().prop_map(|agreed| Step::Answer { agreed }),
            3 => access().prop_map(|access| Step::Release { access }),
            2 => Just(Step::Recall),
            1 => Just(Step::CloseDue),
            1 => Just(Step::Closed),
        ]
    }

    fn is_within(one: Access, other: Access) -> bool {
        is_none(without(one, other))
    }

    proptest! {
        /// A model of the home counts the opens that are reported, and drops those that the answer to a recall does not name.
        #[test]
        fn what_has_a_handle_is_held_and_what_is_held_is_counted(steps in prop::collection::vec(step(), 1..60)) {
            let now = Instant::now();
            let (mut file, mut home, mut handles) = (OpenFile::default(), NONE, Vec::new());
            // What is missing, what it is for, and whether the home has taken notice.
            let mut on_its_way: Option<(Access, Access, bool)> = None;
            // Told of when it is closed.
            let mut closing = None;
            for step in steps {
                match step {
                    Step::Open { access, truncate } => {
                        match file.plan(access, truncate, Serving::Messages) {
                            Plan::Ready => {
                                file.add(access);
                                handles.push(access);
                            }
                            Plan::Wait => {}
                            Plan::Ask { access: missing, .. } => {
                                file.ask(missing, access);
                                on_its_way = Some((missing, access, false));
                            }
                        }
                    }
                    Step::Arrive => {
                        if let Some((missing, _, has_arrived)) = &mut on_its_way && !*has_arrived {
                            home = with(home, *missing);
                            *has_arrived = true;
                        }
                    }
                    Step::Answer { agreed } => match on_its_way {
                        Some((_, access, true)) => {
                            file.agreed(Class::Remote);
                            file.add(access);
                            handles.push(access);
                            on_its_way = None;
                        }
                        Some((_, _, false)) if !agreed => {
                            file.refused();
                            on_its_way = None;
                        }
                        _ => {}
                    },
                    Step::Release { access } => {
                        if let Some(at) = handles.iter().position(|handle| *handle == access) {
                            file.release(handles.remove(at), now);
                        }
                    }
                    Step::Recall => {
                        let open = file.recall();
                        home = Access { read: home.read && open.read, write: home.write && open.write };
                    }
                    Step::CloseDue => {
                        if let Some(ended) = file.close_due(now + READ_LINGER, LINGER) {
                            closing = Some(ended);
                        }
                    }
                    Step::Closed => {
                        if let Some(ended) = closing.take() {
                            home = without(home, ended);
                            file.closed();
                        }
                    }
                }
                let open = handles.iter().fold(NONE, |all, handle| with(all, *handle));
                prop_assert!(is_within(open, file.held()), "{open:?} is open, {:?} held", file.held());
                prop_assert!(is_within(file.held(), home), "{:?} held, {home:?} counted", file.held());
            }
        }
    }

    #[test]
    fn no_close_overtakes_an_open() {
        let (mut file, now) = (opened(READ, Class::Local), Instant::now());
        file.release(READ, now);
        file.ask(WRITE, WRITE);
        assert_eq!(file.close_due(now + READ_LINGER, LINGER), None);
        file.agreed(Class::Local);
        file.add(WRITE);
        assert_eq!(file.close_due(now + READ_LINGER, LINGER), Some(READ));
        assert_eq!(file.class(), Some(Class::Local));
    }

    #[test]
    fn a_nameless_inode_lingers_only_until_others_are_closed_too() {
        let (mut file, now) = (opened(BOTH, Class::Local), Instant::now());
        let earlier = now.checked_sub(NAMELESS_LINGER).unwrap();
        file.release(READ, earlier);
        file.unnamed(now);
        assert_eq!(file.close_due(now, LINGER), None);
        assert_eq!(file.due(LINGER), Some(now + NAMELESS_LINGER));
        assert_eq!(file.close_due(now + NAMELESS_LINGER, LINGER), Some(READ));
        file.closed();
        file.release(WRITE, now);
        assert_eq!(file.due(LINGER), Some(now + NAMELESS_LINGER), "what is closed later too");
    }

    #[test]
    fn after_a_recall_nothing_lingers() {
        let (mut file, now) = (opened(BOTH, Class::Local), Instant::now());
        assert_eq!(file.recall(), BOTH);
        file.release(BOTH, now);
        assert_eq!(file.close_due(now, LINGER), Some(BOTH));
    }

    #[test]
    fn what_a_new_file_is_held_for_lingers_until_it_is_used() {
        let (mut file, now) = (OpenFile::default(), Instant::now());
        file.made(BOTH, Class::Local, now);
        file.add(WRITE);
        assert_eq!(file.due(LINGER), Some(now + READ_LINGER));
        assert_eq!(file.plan(READ, false, Serving::Descriptor), Plan::Ready);
        file.release(WRITE, now);
        assert_eq!(file.close_due(now + WRITE_LINGER, LINGER), Some(WRITE));
        file.closed();
        assert_eq!(file.close_due(now + READ_LINGER, LINGER), Some(READ));
        file.closed();
        assert!(file.is_unused());
    }
}
