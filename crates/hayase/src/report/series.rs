//! What is drawn: counters of nodes over time, alone or added up.
//!
//! Servers look at their counters at moments of their own; what lies between two looks is taken as a
//! straight line. A server that was started anew counts from nothing.

use crate::wiring::status::Sample;

/// Points of a sum over nodes.
const POINTS: u64 = 300;

/// Milliseconds since 1970, and a value; in order of time.
pub(super) type Points = Vec<(u64, f64)>;

/// One counter of one node.
pub(super) fn of_node(history: &[Sample], value: impl Fn(&Sample) -> u64) -> Points {
    history.iter().map(|sample| (sample.at_ms, value(sample) as f64)).collect()
}

/// The sum over nodes; each counts from its first look to its last, and stays there.
pub(super) fn sum(nodes: &[Points]) -> Points {
    let all = || nodes.iter().flatten().map(|(at, _)| *at);
    let (Some(first), Some(last)) = (all().min(), all().max()) else { return Points::new() };
    let mut moments: Vec<u64> = if nodes.len() == 1 {
        all().collect()
    } else {
        let step = ((last - first) / POINTS).max(1);
        (0..=POINTS).map(|index| first + index * step).take_while(|at| *at < last).collect()
    };
    moments.push(last);
    moments.dedup();
    let at = |moment| (moment, nodes.iter().map(|points| value_at(points, moment)).sum());
    moments.into_iter().map(at).collect()
}

/// 0 before the first look, the last value after the last one.
fn value_at(points: &Points, moment: u64) -> f64 {
    let next = points.partition_point(|(at, _)| *at <= moment);
    let Some(&(before, low)) = next.checked_sub(1).and_then(|index| points.get(index)) else {
        return 0.0;
    };
    match points.get(next) {
        None => low,
        Some(&(after, high)) => {
            low + (high - low) * (moment - before) as f64 / (after - before) as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_lie_between_the_looks_of_each_node() {
        let (one, other) = (vec![(0, 0.0), (100, 100.0)], vec![(50, 10.0), (150, 30.0)]);
        let sum = sum(&[one, other]);
        let at = |moment| sum.iter().find(|(at, _)| *at == moment).map(|(_, value)| *value);
        assert_eq!((sum.first(), sum.last()), (Some(&(0, 0.0)), Some(&(150, 130.0))));
        assert_eq!(
            (at(49), at(50), at(100), at(125)),
            (Some(49.0), Some(60.0), Some(120.0), Some(125.0))
        );
    }

    #[test]
    fn one_node_is_drawn_as_it_looked() {
        let points = vec![(5, 1.0), (1_000_000, 2.0), (1_000_001, 0.0)];
        assert_eq!(sum(std::slice::from_ref(&points)), points);
        assert!(sum(&[]).is_empty() && sum(&[Points::new()]).is_empty());
        assert_eq!(sum(&[vec![(7, 3.0)], vec![(7, 4.0)]]), [(7, 7.0)]);
    }
}
