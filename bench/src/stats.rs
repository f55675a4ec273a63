//! Figures from samples: medians, spreads, and ratios of what was measured side by side.
//!
//! Everything here is a median: one sample that another program of the machine disturbed moves
//! nothing. Rates are compared inside their round only, so that a machine whose speed changes over
//! minutes changes both sides.

/// The middle value; the mean of the two middle ones. `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which `share` of the values lie, between neighbours in proportion.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64))
}

/// Half of the values lie between these.
pub(crate) fn quartiles(values: &[f64]) -> Option<(f64, f64)> {
    Some((quantile(values, 0.25)?, quantile(values, 0.75)?))
}

/// `subject` against the geometric mean of the baseline's measurement before and after it, round by
/// round: what changes evenly with time cancels.
pub(crate) fn ratios_in_between(subject: &[f64], before: &[f64], after: &[f64]) -> Vec<f64> {
    let pairs = subject.iter().zip(before.iter().zip(after));
    pairs.map(|(subject, (before, after))| subject / (before * after).sqrt()).collect()
}

/// `above / below`, round by round.
pub(crate) fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(above, below)| above / below).collect()
}

/// The geometric mean of each ratio and the next one: what the one gains by its place, the other loses.
pub(crate) fn of_neighbours(ratios: &[f64]) -> Vec<f64> {
    ratios.windows(2).map(|pair| (pair[0] * pair[1]).sqrt()).collect()
}

/// A against A where there is no baseline: each value against the next one, no value twice.
pub(crate) fn consecutive(values: &[f64]) -> Vec<f64> {
    values.chunks_exact(2).map(|pair| pair[0] / pair[1]).collect()
}

/// Largest over smallest: 1 when all are equal.
pub(crate) fn span(values: &[f64]) -> Option<f64> {
    let largest = values.iter().copied().reduce(f64::max)?;
    let smallest = values.iter().copied().reduce(f64::min)?;
    Some(largest / smallest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_middle() {
        let check = |values: &[f64], expected| assert_eq!(median(values), expected, "{values:?}");
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0], Some(5.0));
        check(&[5.0, 1.0, 1e9], Some(5.0));
        assert_eq!(quartiles(&[1.0, 2.0, 3.0, 4.0, 5.0]), Some((2.0, 4.0)));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
    }

    #[test]
    fn a_steady_drift_cancels() {
        // The machine halves its speed from each measurement to the next; the subject is as fast.
        let found = ratios_in_between(&[4.0, 0.5], &[8.0, 1.0], &[2.0, 0.25]);
        assert_eq!(found, [1.0, 1.0]);
        assert_eq!(ratios(&[1.0, 3.0], &[2.0, 1.0]), [0.5, 3.0]);
        assert_eq!(of_neighbours(&[0.5, 2.0, 8.0]), [1.0, 4.0]);
    }

    #[test]
    fn one_series_is_compared_with_itself() {
        assert_eq!(consecutive(&[2.0, 1.0, 3.0, 3.0, 7.0]), [2.0, 1.0]);
        assert_eq!(span(&[2.0, 1.0, 1.5]), Some(2.0));
        assert_eq!(span(&[]), None);
    }
}
