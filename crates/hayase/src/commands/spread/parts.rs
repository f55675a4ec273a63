//! A tree dealt out to nodes that all see the target, and the complete copy by one of them that follows.

use std::sync::atomic::Ordering;

use super::crew::Crew;
use super::{Order, SpreadError};
use crate::commands::transfer::{End, NodePart};

/// What the parts of nodes came to.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) nodes: Vec<NodePart>,
    /// Every part of one and the same source arrived.
    pub(super) is_complete: bool,
    /// What they told of files beside packs.
    loose: Vec<String>,
}

impl Parts {
    /// Of the answers of all workers, by node. What one could not do is left to the complete copy that follows, and
    /// told; only what the first node finds impossible is so for all.
    fn of(ends: Vec<anyhow::Result<End>>, tell: impl Fn(&str)) -> anyhow::Result<Self> {
        let (mut parts, mut seen) = (Self { is_complete: true, ..Self::default() }, None);
        for (node, end) in (0..).zip(ends) {
            match end {
                Ok(end) => parts.add(node, end, &mut seen, &tell),
                Err(error) if node == 0 && is_usage(&error) => return Err(error),
                Err(error) => {
                    parts.is_complete = false;
                    tell(&format!("{error:#}; node 0 does its part"));
                }
            }
        }
        Ok(parts)
    }

    fn add(&mut self, node: u16, end: End, seen: &mut Option<u32>, tell: &impl Fn(&str)) {
        if !end.is_complete {
            let first = end.failures.first();
            let first = first.map_or(String::new(), |(name, why)| format!(" ({name}: {why})"));
            tell(&format!(
                "node {node} could not copy all of its part{first}; node 0 does the rest"
            ));
        }
        self.is_complete &= end.is_complete && *seen.get_or_insert(end.seen) == end.seen;
        self.loose.extend(Some(end.loose).filter(|loose| !loose.is_empty()));
        self.nodes.push(NodePart {
            node,
            items: end.copied,
            bytes: end.bytes_moved,
            bytes_resumed: end.bytes_resumed,
            bytes_from_nodes: 0,
            packs: end.packs,
        });
    }
}

impl Crew<'_> {
    /// The first node does it.
    pub(super) fn one(&self, order: Order) -> anyhow::Result<End> {
        let ends = self.run(&[(0, order)])?;
        ends.into_iter().next().expect("one worker was asked")
    }

    /// Each of the first `nodes` copies its part of what `order` says for it.
    pub(super) fn parts(&self, nodes: u16, order: &dyn Fn(u16) -> Order) -> anyhow::Result<Parts> {
        let orders = (0..nodes).map(|node| (node, order(node).share(node, nodes, false)));
        let ends = self.run(&orders.collect::<Vec<_>>())?;
        if self.is_ended.load(Ordering::Relaxed) {
            return Err(SpreadError::Interrupted.into());
        }
        Parts::of(ends, |text| self.output.note(text))
    }

    /// Everything, by `nodes` of them.
    pub(super) fn in_parts(&self, nodes: u16, order: &dyn Fn(u16) -> Order) -> anyhow::Result<End> {
        let whole = order(0);
        if whole.copy.dry_run {
            return self.one(whole);
        }
        let Parts { nodes, is_complete, loose } = self.parts(nodes, order)?;
        let whole = if is_complete { whole.after_parts(loose) } else { whole };
        Ok(joined(self.one(whole)?, nodes))
    }
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<SpreadError>().is_some_and(SpreadError::is_usage)
}

/// The complete copy, and the parts that were copied before it.
pub(super) fn joined(whole: End, parts: Vec<NodePart>) -> End {
    let sum = |count: fn(&NodePart) -> u64| parts.iter().map(count).sum::<u64>();
    let items = sum(|part| part.items);
    End {
        copied: whole.copied + items,
        kept: whole.kept.saturating_sub(items),
        packs: whole.packs + sum(|part| part.packs),
        bytes_moved: whole.bytes_moved + sum(|part| part.bytes),
        bytes_resumed: whole.bytes_resumed + sum(|part| part.bytes_resumed),
        nodes: parts,
        ..whole
    }
}

/// Counts what each node did in another step as well.
pub(super) fn add_parts(all: &mut Vec<NodePart>, more: Vec<NodePart>) {
    for part in more {
        match all.iter_mut().find(|own| own.node == part.node) {
            Some(own) => {
                own.items += part.items;
                own.bytes += part.bytes;
                own.bytes_resumed += part.bytes_resumed;
                own.packs += part.packs;
            }
            None => all.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_copy_counts_what_parts_did_before_it() {
        let part = |node, items| NodePart {
            node,
            items,
            bytes: items * 10,
            bytes_resumed: items,
            bytes_from_nodes: 0,
            packs: 1,
        };
        let whole = End { kept: 7, copied: 1, bytes_moved: 3, is_complete: true, ..End::default() };
        let end = joined(whole, vec![part(0, 4), part(1, 2)]);
        assert_eq!((end.copied, end.kept, end.bytes_moved, end.packs), (7, 1, 63, 2));
    }

    #[test]
    fn parts_are_believed_when_all_of_one_source_arrived() {
        let part = |seen, is_complete| Ok(End { seen, is_complete, ..End::default() });
        let broken = |node, is_usage| {
            let what = "out of reach".to_owned();
            Err(SpreadError::Broken { node, what, help: None, is_usage }.into())
        };
        let check = |ends, is_complete: bool, notes: usize| {
            let told = std::cell::Cell::new(0);
            let parts = Parts::of(ends, |_| told.set(told.get() + 1)).unwrap();
            assert_eq!((parts.is_complete, told.get()), (is_complete, notes));
        };
        check(vec![part(1, true), part(1, true)], true, 0);
        check(vec![part(1, true), part(2, true)], false, 0);
        check(vec![part(1, true), part(1, false)], false, 1);
        check(vec![part(1, true), broken(1, false)], false, 1);
        check(vec![part(1, true), broken(1, true)], false, 1);
        check(vec![broken(0, false), part(1, true)], false, 1);
        assert!(Parts::of(vec![broken(0, true), part(1, true)], |_| ()).is_err());
    }
}
