//! Whether processes exchange what they read: a decision that all of them take alike.
//!
//! Every process makes the same collective calls on a file, in the same order. So what is decided from these
//! calls, and from numbers that all were told, is the same everywhere, and most calls need no word about it:
//!
//! - a call is made alone, or asks all, or exchanges;
//! - on one node nobody asks, and all are made alone;
//! - else the first call behind an open and behind a set_view asks; while the answer is no, the next question
//!   is 4, 16, 64 .. calls away;
//! - while it is yes every call exchanges, and says what it saved.
//!
//! Pure: nothing here communicates.

use super::owners::Owners;

/// What a program, or who runs it, wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// Never.
    Off,
    /// Where it pays.
    Auto,
    /// In every collective read.
    On,
}

/// What a collective read is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// As an independent one.
    Alone,
    /// Plan, and ask all whether to exchange.
    Ask,
    /// Exchange.
    Exchange,
}

/// What all processes together said of one call; weights count a read as many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// Bytes that they want from parts.
    pub(crate) wanted: u64,
    /// What it weighs when each reads for itself.
    pub(crate) alone: u64,
}

impl Weights {
    pub(crate) fn add(&mut self, other: Self) {
        self.wanted = self.wanted.saturating_add(other.wanted);
        self.alone = self.alone.saturating_add(other.alone);
    }
}

/// Calls between two questions, at most.
const PAUSE_CALLS_MAX: u64 = 1024;

/// See the module. One for each open file.
#[derive(Debug)]
pub(crate) struct Agreement {
    wish: Exchange,
    ranks: u64,
    is_exchanging: bool,
    /// Each call has the file for itself then.
    is_atomic: bool,
    /// Calls that are made alone before the next question, and how many it will be after that.
    left: u64,
    pause: u64,
    /// What reading alone would have weighed in the call before, where that exchanged.
    before: Option<u64>,
}

impl Agreement {
    pub(crate) fn new(wish: Exchange, owners: &Owners) -> Self {
        // On one node a byte that is read again comes from the page cache, which costs less than to send it; between
        // nodes it crosses the network again.
        let is_never = owners.ranks() < 2 || (wish == Exchange::Auto && owners.nodes() < 2);
        let wish = if is_never { Exchange::Off } else { wish };
        let ranks = owners.ranks() as u64;
        let (is_exchanging, is_atomic, before) = (false, false, None);
        Self { wish, ranks, is_exchanging, is_atomic, left: 0, pause: 4, before }
    }

    /// At every collective read, once.
    pub(crate) fn step(&mut self) -> Step {
        match self.wish {
            _ if self.is_atomic => Step::Alone,
            Exchange::Off => Step::Alone,
            Exchange::On => Step::Exchange,
            Exchange::Auto if self.is_exchanging => Step::Exchange,
            Exchange::Auto if self.left > 0 => {
                self.left -= 1;
                Step::Alone
            }
            Exchange::Auto => Step::Ask,
        }
    }

    /// At every set_view, also one that fails: it may do so on some processes only.
    pub(crate) fn set_view(&mut self) {
        (self.left, self.pause) = (0, 4);
    }

    /// At every set_atomicity, likewise.
    pub(crate) fn set_atomic(&mut self, is_atomic: bool) {
        self.is_atomic = is_atomic;
    }

    /// What all answered: whether this call exchanges.
    pub(crate) fn answer(&mut self, weights: Weights) -> bool {
        self.before = None;
        self.go_on(self.pays(weights))
    }

    /// Behind a call that exchanged; `served` is what the reads for all weighed in the call before.
    pub(crate) fn exchanged(&mut self, weights: Weights, served: u64) {
        let before = self.before.replace(weights.alone);
        let has_saved = before.is_none_or(|alone| alone / GAIN_MIN >= served);
        self.go_on(has_saved && self.pays(weights));
    }

    fn go_on(&mut self, pays: bool) -> bool {
        self.is_exchanging = pays;
        if pays {
            self.pause = 4;
        } else {
            self.left = self.pause - 1;
            self.pause = (self.pause * 4).min(PAUSE_CALLS_MAX);
        }
        pays
    }

    /// Each byte read once, with a call or so for each process.
    fn pays(&self, weights: Weights) -> bool {
        let calls = hayase_container::ReadCost { reads: self.ranks, ..Default::default() };
        weights.wanted > 0
            && weights.alone / GAIN_MIN >= weights.wanted.saturating_add(calls.weight())
    }
}

/// How many times as much reading alone must weigh.
const GAIN_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use hayase_layout::NodeId;

    use super::*;

    const MANY: Weights = Weights { wanted: 10 << 20, alone: 90 << 20 };
    const NONE: Weights = Weights { wanted: 10 << 20, alone: 11 << 20 };

    fn agreement(wish: Exchange, nodes: &[u16]) -> Agreement {
        let nodes: Vec<_> = nodes.iter().map(|node| NodeId(*node)).collect();
        Agreement::new(wish, &Owners::new(&nodes))
    }

    fn steps(agreement: &mut Agreement, count: usize, weights: Weights) -> String {
        let mut text = String::new();
        for _ in 0..count {
            match agreement.step() {
                Step::Alone => text.push('.'),
                Step::Ask => text.push(if agreement.answer(weights) { 'Y' } else { 'n' }),
                Step::Exchange => {
                    agreement.exchanged(weights, weights.wanted);
                    text.push('x');
                }
            }
        }
        text
    }

    #[test]
    fn questions_become_rare_where_nothing_is_gained() {
        let mut agreement = agreement(Exchange::Auto, &[0, 1, 2]);
        assert_eq!(steps(&mut agreement, 22, NONE), "n...n...............n.");
        agreement.set_view();
        assert_eq!(steps(&mut agreement, 6, NONE), "n...n.");
    }

    #[test]
    fn an_exchange_goes_on_while_it_pays() {
        let mut agreement = agreement(Exchange::Auto, &[0, 1, 2]);
        assert_eq!(steps(&mut agreement, 4, MANY), "Yxxx");
        agreement.set_view();
        assert_eq!(steps(&mut agreement, 2, MANY), "xx");
        assert_eq!(steps(&mut agreement, 3, NONE), "x..");
        assert_eq!(steps(&mut agreement, 3, MANY), ".Yx");
    }

    #[test]
    fn an_exchange_that_reads_as_much_ends() {
        let mut agreement = agreement(Exchange::Auto, &[0, 1]);
        assert_eq!(agreement.step(), Step::Ask);
        assert!(agreement.answer(MANY));
        agreement.exchanged(MANY, 0); // nothing is known of a call before
        assert_eq!(agreement.step(), Step::Exchange);
        agreement.exchanged(MANY, MANY.alone);
        assert_eq!(agreement.step(), Step::Alone);
    }

    #[test]
    fn one_process_and_hints_need_no_question() {
        assert_eq!(steps(&mut agreement(Exchange::Auto, &[0]), 3, MANY), "...");
        assert_eq!(steps(&mut agreement(Exchange::Auto, &[5, 5, 5]), 3, MANY), "...");
        assert_eq!(steps(&mut agreement(Exchange::On, &[0]), 3, MANY), "...");
        assert_eq!(steps(&mut agreement(Exchange::Off, &[0, 1]), 3, MANY), "...");
        let mut on = agreement(Exchange::On, &[0, 1]);
        assert_eq!(steps(&mut on, 3, NONE), "xxx");
        on.set_atomic(true);
        assert_eq!(steps(&mut on, 2, MANY), "..");
        on.set_atomic(false);
        assert_eq!(steps(&mut on, 1, MANY), "x");
    }

    #[test]
    fn small_calls_are_made_alone() {
        // One block for each: the reads are what it costs, and they stay as many.
        let blocks = Weights { wanted: 3 * 47008, alone: 3 * (47008 + (64 << 10)) };
        assert_eq!(steps(&mut agreement(Exchange::Auto, &[0, 1, 2]), 3, blocks), "n..");
    }
}
