//! A tree dealt out to nodes that all see the target, and the complete copy by one of them that follows.

use super::crew::Crew;
use super::{Order, SpreadError};
use crate::commands::transfer::{End, NodePart};

impl Crew<'_> {
    /// The first node does it.
    pub(super) fn one(&self, order: Order) -> anyhow::Result<End> {
        let ends = self.run(&[(0, order)])?;
        ends.into_iter().next().expect("one worker was asked")
    }

    /// Each of the first `nodes` copies its part of what `order` says for it. What one can not do is left to the
    /// complete copy that follows. Also whether every part of one and the same source arrived.
    pub(super) fn parts(
        &self,
        nodes: u16,
        order: &dyn Fn(u16) -> Order,
    ) -> anyhow::Result<(Vec<NodePart>, bool)> {
        let orders = (0..nodes).map(|node| (node, order(node).share(node, nodes, false)));
        let ends = self.run(&orders.collect::<Vec<_>>())?;
        let (mut parts, mut seen, mut is_complete) = (Vec::new(), None, true);
        for (node, end) in (0..).zip(ends) {
            is_complete &= end
                .as_ref()
                .is_ok_and(|end| end.is_complete && *seen.get_or_insert(end.seen) == end.seen);
            match end {
                Ok(end) => parts.push(NodePart {
                    node,
                    items: end.copied,
                    bytes: end.bytes_moved,
                    bytes_resumed: end.bytes_resumed,
                    bytes_from_nodes: 0,
                }),
                Err(error) if is_usage(&error) => return Err(error),
                Err(error) => self.output.note(&format!("{error:#}; node 0 does its part")),
            }
        }
        Ok((parts, is_complete))
    }

    /// Everything, by `nodes` of them.
    pub(super) fn in_parts(&self, nodes: u16, order: &dyn Fn(u16) -> Order) -> anyhow::Result<End> {
        let whole = order(0);
        if whole.copy.dry_run {
            return self.one(whole);
        }
        let (parts, is_complete) = self.parts(nodes, order)?;
        // What every node wrote over is not written over once more.
        let is_all = parts.len() == usize::from(nodes);
        let whole = if is_all { whole.after_parts() } else { whole };
        Ok(joined(self.one(whole.trusting(is_complete))?, parts))
    }
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<SpreadError>().is_some_and(SpreadError::is_usage)
}

/// The complete copy, and the parts that were copied before it.
pub(super) fn joined(whole: End, parts: Vec<NodePart>) -> End {
    let items: u64 = parts.iter().map(|part| part.items).sum();
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    let resumed: u64 = parts.iter().map(|part| part.bytes_resumed).sum();
    End {
        // A large file beside packs is there, and counts again when the index takes it up.
        copied: (whole.copied + items).min(whole.found),
        kept: whole.kept.saturating_sub(items),
        bytes_moved: whole.bytes_moved + bytes,
        bytes_resumed: whole.bytes_resumed + resumed,
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
        };
        let whole = End {
            found: 8,
            kept: 7,
            copied: 1,
            bytes_moved: 3,
            is_complete: true,
            ..End::default()
        };
        let end = joined(whole, vec![part(0, 4), part(1, 2)]);
        assert_eq!((end.copied, end.kept, end.bytes_moved), (7, 1, 63));
    }
}
