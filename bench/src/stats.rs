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

/// The interval in which the median of what `values` were drawn from lies with 95 % certainty, or more: the
/// order statistics of the sign test, which assume nothing of the distribution. `None` of fewer than six.
pub(crate) fn median_interval_95(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let outside = values_outside(sorted.len())?;
    Some((sorted[outside], sorted[sorted.len() - 1 - outside]))
}

/// How many of so many values may be left out at each end.
fn values_outside(count: usize) -> Option<usize> {
    let one_side = 0.025 * 2_f64.powi(i32::try_from(count).ok()?);
    let (mut below, mut ways, mut outside) = (0.0, 1.0, None);
    for taken in 0..count {
        below += ways;
        if below > one_side {
            break;
        }
        outside = Some(taken);
        ways *= (count - taken) as f64 / (taken + 1) as f64;
    }
    outside
}

/// The mean, and half the width of the interval around it in which 95 % of single values lie (Student's t). `None` of
/// fewer than two.
pub(crate) fn interval_95(values: &[f64]) -> Option<(f64, f64)> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, student_95(freedom) * (squares / freedom as f64).sqrt()))
}

/// The two-sided 95 % quantile of Student's t, for so many degrees of freedom; never too small.
fn student_95(freedom: usize) -> f64 {
    const FIRST: [f64; 10] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match freedom {
        1..=10 => FIRST[freedom - 1],
        11..=14 => 2.228,
        15..=19 => 2.131,
        20..=29 => 2.086,
        _ => 2.042,
    }
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

    #[test]
    fn the_median_lies_in_its_interval() {
        // The table of the sign test: so many values, so many outside at each end.
        for (count, expected) in [
            (0, None),
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (12, Some(2)),
            (20, Some(5)),
        ] {
            assert_eq!(values_outside(count), expected, "{count}");
        }
        let values: Vec<f64> = (1..=12).rev().map(f64::from).collect();
        assert_eq!(median_interval_95(&values), Some((3.0, 10.0)));
    }

    #[test]
    fn single_values_lie_in_their_interval() {
        let (mean, half) = interval_95(&[1.0, 2.0, 3.0]).unwrap();
        assert!((mean - 2.0).abs() < 1e-9 && (half - 4.303).abs() < 1e-9, "{mean} {half}");
        let (mean, half) = interval_95(&[5.0; 11]).unwrap();
        assert_eq!((mean, half), (5.0, 0.0));
        assert_eq!(interval_95(&[1.0]), None);
        assert!((1..40).all(|n| student_95(n) >= student_95(n + 1)));
    }
}
