//! What one opener has open of one inode, and which of its opens said so last.
//!
//! Kept twice: on the node for each of its processes, at the home for each node. Opens and the
//! answers to recalls travel beside each other, on different connections; their numbers
//! ([`Opening::number`]) tell which of the two speaks of the later state.

use hayase_wire::message::{Access, Opening, StillOpen};

/// Each kind with the number of the last open that asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Booked {
    read: Option<u64>,
    write: Option<u64>,
}

impl Booked {
    pub(crate) fn access(&self) -> Access {
        Access { read: self.read.is_some(), write: self.write.is_some() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.access() == Access::default()
    }

    pub(crate) fn book(&mut self, open: &Opening) {
        if open.access.read {
            self.read = self.read.max(Some(open.number));
        }
        if open.access.write {
            self.write = self.write.max(Some(open.number));
        }
    }

    /// Ends what was asked for up to number `as_of`; returns what there was to end.
    pub(crate) fn end(&mut self, access: Access, as_of: u64) -> Access {
        let end = |booked: &mut Option<u64>, ends: bool| {
            ends && booked.take_if(|number| *number <= as_of).is_some()
        };
        Access { read: end(&mut self.read, access.read), write: end(&mut self.write, access.write) }
    }

    /// What the answer to a recall says is no longer open.
    pub(crate) fn ended_by(&self, answer: StillOpen) -> Access {
        let ended = |booked: Option<u64>, still: bool| {
            !still && booked.is_some_and(|number| number <= answer.as_of)
        };
        Access {
            read: ended(self.read, answer.access.read),
            write: ended(self.write, answer.access.write),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use hayase_layout::InodeId;
    use hayase_wire::message::{Close, OpenKind};
    use proptest::prelude::*;

    use super::*;

    const READ: Access = Access { read: true, write: false };
    const BOTH: Access = Access { read: true, write: true };
    const NONE: Access = Access { read: false, write: false };

    fn booked(opens: &[(Access, u64)]) -> Booked {
        let mut booked = Booked::default();
        for (access, number) in opens {
            booked.book(&Opening { access: *access, kind: OpenKind::Remote, number: *number });
        }
        booked
    }

    #[test]
    fn an_answer_ends_what_it_speaks_of_and_nothing_later() {
        let check = |opens: &[(Access, u64)], access, as_of, expected| {
            let ended = booked(opens).ended_by(StillOpen { access, as_of });
            assert_eq!(ended, expected, "{opens:?} {access:?} as of {as_of}");
        };
        check(&[(BOTH, 3)], NONE, 3, BOTH);
        check(&[(BOTH, 3)], READ, 3, Access { read: false, write: true });
        check(&[(BOTH, 3)], NONE, 2, NONE);
        check(&[(BOTH, 3), (READ, 5)], NONE, 4, Access { read: false, write: true });
        check(&[(READ, 5), (BOTH, 3)], NONE, 4, Access { read: false, write: true });
        check(&[], NONE, 9, NONE);
    }

    #[test]
    fn what_ended_is_told_once() {
        let mut booked = booked(&[(READ, 1)]);
        assert_eq!(booked.end(BOTH, 1), READ);
        assert_eq!(booked.end(BOTH, 1), NONE);
        assert!(booked.is_empty());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// The opener begins to ask.
        Ask(Access),
        /// The opener closes.
        Close(Access),
        /// The book-keeper recalls; the opener gives up what it only keeps for later.
        Recall(Access),
        /// The oldest question, or its answer, arrives.
        Deliver,
        /// The oldest answer to a recall arrives.
        DeliverReturned,
        /// A close that arrived before arrives once more.
        Again,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let access =
            || (any::<bool>(), any::<bool>()).prop_map(|(r, w)| Access { read: r, write: w });
        prop_oneof![
            3 => access().prop_map(Step::Ask),
            2 => access().prop_map(Step::Close),
            2 => access().prop_map(Step::Recall),
            4 => Just(Step::Deliver),
            2 => Just(Step::DeliverReturned),
            1 => Just(Step::Again),
        ]
    }

    #[test]
    fn a_late_close_ends_nothing_that_was_opened_after_it() {
        let mut booked = booked(&[(READ, 1), (BOTH, 3)]);
        assert_eq!(booked.end(BOTH, 2), NONE);
        assert_eq!(booked.end(READ, 3), READ);
        assert_eq!(booked.access(), Access { read: false, write: true });
    }

    #[derive(Clone, Copy, Debug)]
    enum Message {
        Open(Opening),
        Close(Close),
    }

    /// An opener and its book-keeper, with two connections between them.
    #[derive(Debug, Default)]
    struct Pair {
        open: Access,
        asked: u64,
        question: Option<Message>,
        answer: Option<Message>,
        returned: VecDeque<StillOpen>,
        closed: Option<Close>,
        book: Booked,
    }

    impl Pair {
        fn step(&mut self, step: Step) {
            let is_asking = self.question.is_some() || self.answer.is_some();
            match step {
                Step::Ask(access) if !is_asking => {
                    self.asked += 1;
                    let open = Opening { access, kind: OpenKind::Remote, number: self.asked };
                    self.question = Some(Message::Open(open));
                }
                Step::Close(access) if !is_asking => {
                    self.give_up(access);
                    let close = Close { ino: InodeId::ROOT, access, as_of: self.asked };
                    self.question = Some(Message::Close(close));
                }
                Step::Ask(_) | Step::Close(_) => {}
                Step::Recall(lingering) => {
                    self.give_up(lingering);
                    let mut access = self.open;
                    if let Some(Message::Open(open)) = self.question.or(self.answer) {
                        access.read |= open.access.read;
                        access.write |= open.access.write;
                    }
                    self.returned.push_back(StillOpen { access, as_of: self.asked });
                }
                Step::Deliver => self.deliver(),
                Step::DeliverReturned => {
                    if let Some(answer) = self.returned.pop_front() {
                        self.book.end(self.book.ended_by(answer), answer.as_of);
                    }
                }
                Step::Again => self.closed.into_iter().for_each(|close| self.book_close(close)),
            }
        }

        fn book_close(&mut self, close: Close) {
            self.book.end(close.access, close.as_of);
            self.closed = Some(close);
        }

        fn give_up(&mut self, access: Access) {
            self.open.read &= !access.read;
            self.open.write &= !access.write;
        }

        fn deliver(&mut self) {
            if let Some(question) = self.question.take() {
                match question {
                    Message::Open(open) => self.book.book(&open),
                    Message::Close(close) => self.book_close(close),
                }
                self.answer = Some(question);
            } else if let Some(Message::Open(open)) = self.answer.take() {
                self.open.read |= open.access.read;
                self.open.write |= open.access.write;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn when_all_has_arrived_the_book_is_right(steps in prop::collection::vec(any_step(), 1..60)) {
            let mut pair = Pair::default();
            for step in steps {
                pair.step(step);
                let (booked, open) = (pair.book.access(), pair.open);
                prop_assert!(booked.read || !open.read, "less than is open: {pair:?}");
                prop_assert!(booked.write || !open.write, "less than is open: {pair:?}");
            }
            while pair.question.is_some() || pair.answer.is_some() || !pair.returned.is_empty() {
                pair.step(Step::Deliver);
                pair.step(Step::DeliverReturned);
            }
            prop_assert_eq!(pair.book.access(), pair.open);
        }
    }
}
