//! Who starts whom: hosts dealt out over at most `fanout` subtrees, so that n hosts are reached in
//! O(log n) hops. Pure.

/// Cuts `nodes` into at most `fanout` runs whose lengths differ by one at most; the first of each
/// run is the head of a subtree and reaches the others of its run in the same way.
pub(crate) fn split<T: Clone>(nodes: &[T], fanout: u16) -> Vec<Vec<T>> {
    let ways = usize::from(fanout.max(1)).min(nodes.len());
    let mut rest = nodes;
    let mut runs = Vec::with_capacity(ways);
    for way in 0..ways {
        let (run, behind) = rest.split_at(rest.len().div_ceil(ways - way));
        runs.push(run.to_vec());
        rest = behind;
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every node with the number of hops that it is away.
    fn walk(nodes: &[u16], fanout: u16, hops: u32, found: &mut Vec<(u16, u32)>) {
        for run in split(nodes, fanout) {
            let (head, others) = run.split_first().unwrap();
            found.push((*head, hops + 1));
            walk(others, fanout, hops + 1, found);
        }
    }

    #[test]
    fn nodes_are_dealt_out_evenly() {
        assert_eq!(split(&[1, 2, 3, 4, 5], 2), [vec![1, 2, 3], vec![4, 5]]);
        assert_eq!(split(&[1, 2], 8), [vec![1], vec![2]]);
        assert_eq!(split(&[1, 2], 0), [vec![1, 2]]);
        assert!(split::<u16>(&[], 8).is_empty());
    }

    proptest! {
        #[test]
        fn every_node_is_reached_once_in_few_hops(count in 0u16..3000, fanout in 2u16..40) {
            let nodes: Vec<u16> = (0..count).collect();
            let mut found = Vec::new();
            walk(&nodes, fanout, 0, &mut found);
            let hops = found.iter().map(|(_, hops)| *hops).max().unwrap_or(0);
            found.sort_unstable();
            prop_assert_eq!(found.iter().map(|(node, _)| *node).collect::<Vec<_>>(), nodes);
            // A full tree of that depth holds fanout + fanout^2 + ... nodes.
            let bound = f64::from(count.max(1)).log(f64::from(fanout)).floor() as u32 + 1;
            prop_assert!(hops <= bound, "{} hops for {} nodes by {}", hops, count, fanout);
        }
    }
}
