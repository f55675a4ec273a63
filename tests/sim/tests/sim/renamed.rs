//! rename(2) outlives power cuts without fsync(2) after it, and fsync(2) answers for a name only where it is.

use hayase_sim::{made_before_power_cut, renamed_before_loss, renamed_before_power_cut};

const SEEDS: u64 = 40;

/// Any nodes but that of the process that renames, and all of them.
const ENDS: [&[u16]; 4] = [&[1], &[2], &[1, 2], &[0, 1, 2]];

fn try_all(is_cached: bool) {
    let mut failed = Vec::new();
    for (seed, ends) in (1..=SEEDS).flat_map(|seed| ENDS.map(|ends| (seed, ends))) {
        if let Err(wrong) = renamed_before_power_cut(seed, ends, is_cached) {
            failed.push(format!("seed {seed}, {ends:?} lose power:\n{}", wrong.join("\n")));
        }
    }
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_rename_that_was_answered_outlives_power_cuts() {
    try_all(false);
}

#[test]
fn a_rename_in_front_of_a_tier_outlives_power_cuts() {
    try_all(true);
}

#[test]
fn a_new_file_that_is_synced_has_its_name() {
    let mut synced = [0; 2];
    for (seed, ends) in (1..=SEEDS).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        match made_before_power_cut(seed, ends) {
            Ok(is_synced) => synced[usize::from(is_synced)] += 1,
            Err(wrong) => panic!("seed {seed}, {ends} loses power: {wrong}"),
        }
    }
    // Both happen, or this shows nothing.
    assert!(synced.iter().all(|count| *count > 0), "{synced:?}");
}

/// Who was told of it is lost: that holds up nobody.
#[test]
fn a_name_that_was_renamed_before_a_node_was_lost_can_be_removed() {
    let mut removed = 0;
    for (seed, lost) in (1..=SEEDS).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        match renamed_before_loss(seed, lost) {
            Ok(was_removed) => removed += u64::from(was_removed),
            Err(wrong) => panic!("seed {seed}, {lost} is lost: {wrong}"),
        }
    }
    assert!(removed > SEEDS / 2, "{removed}");
}
