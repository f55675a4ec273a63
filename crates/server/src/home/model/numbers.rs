//! Numbers of which only matters whether two are equal: two states that differ in nothing else are one state.
//!
//! Tickets and the numbers of recalls count up for ever, and so do the recalls that a node has had. They are replaced by
//! the smallest ones that are equal where they were, in the same order (symmetry reduction: Ip, Dill 1996). Answers
//! that nobody waits for any more are as good as arrived.

use super::{Message, State};

/// The number of what a node waits for; others that it asked for before have [`EARLIER`].
const LATEST: u8 = 1;
const EARLIER: u8 = 0;

impl State {
    /// After each step.
    pub(super) fn renumber(&mut self) {
        self.drop_late_answers();
        self.renumber_tickets();
        for node in 0..self.nodes.len() as u16 {
            self.renumber_recalls_of(node);
            self.renumber_gathering_of(node);
        }
        self.network.sort_unstable();
    }

    /// Their arrival changes nothing.
    fn drop_late_answers(&mut self) {
        let (recalls, nodes) = (&self.recalls, &self.nodes);
        self.network.retain(|message| match message {
            Message::Returned { number, .. } => recalls.iter().any(|(waits, _)| waits == number),
            Message::MayGather { node, number, .. } => {
                nodes[usize::from(*node)].asks == Some(*number)
            }
            _ => true,
        });
    }

    fn renumber_tickets(&mut self) {
        let mut used: Vec<u64> = self.tickets_in_use().into_iter().map(|ticket| *ticket).collect();
        used.sort_unstable();
        used.dedup();
        for ticket in self.tickets_in_use() {
            let place = used.binary_search(ticket).expect("it is in use");
            *ticket = place as u64 + 1;
        }
        self.tickets = used.len() as u64;
    }

    fn tickets_in_use(&mut self) -> Vec<&mut u64> {
        let at_home = self.home.waiting.iter_mut().chain(&mut self.home.changing);
        let sent = self.network.iter_mut().filter_map(|message| match message {
            Message::Recall { number, .. } | Message::Returned { number, .. } => Some(number),
            _ => None,
        });
        let kept = self.nodes.iter_mut().filter_map(|node| node.recalled.as_mut());
        (self.waiting.iter_mut().map(|(ticket, ..)| ticket))
            .chain(at_home.map(|operation| &mut operation.ticket))
            .chain(self.recalls.iter_mut().map(|(number, _)| number))
            .chain(sent)
            .chain(kept.map(|(number, ..)| number))
            .collect()
    }

    /// What a node asked for before its last recall stays behind it: the count only grows.
    fn renumber_recalls_of(&mut self, of: u16) {
        let node = &mut self.nodes[usize::from(of)];
        let now = std::mem::replace(&mut node.recalls, LATEST);
        let coming = node.coming.iter_mut().map(|(_, recalls)| recalls);
        let sent = self.network.iter_mut().filter_map(|message| match message {
            Message::Read { node, recalls, .. } | Message::Bytes { node, recalls, .. } => {
                (*node == of).then_some(recalls)
            }
            _ => None,
        });
        for recalls in coming.chain(sent) {
            *recalls = if *recalls == now { LATEST } else { EARLIER };
        }
    }

    /// No number is given to two questions.
    fn renumber_gathering_of(&mut self, of: u16) {
        let asks = &mut self.nodes[usize::from(of)].asks;
        let now = *asks;
        *asks = now.map(|_| LATEST);
        for message in &mut self.network {
            if let Message::Gather { node, number } | Message::MayGather { node, number, .. } =
                message
                && *node == of
            {
                *number = if now == Some(*number) { LATEST } else { EARLIER };
            }
        }
    }
}
