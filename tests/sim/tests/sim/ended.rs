//! Stories whose end is a power cut of every node: what was synced reaches the tier, each file once.

use hayase_sim::{Scene, Story, ended_by_power_cut};

fn try_all(story: Story) {
    let mut failed = Vec::new();
    // A new file replaces none.
    let is_another = |scene: &Scene| story != Story::Synced || scene.makers.0 == 0;
    for scene in Scene::all().filter(is_another) {
        if let Err(wrong) = ended_by_power_cut(story, &scene) {
            failed.push(format!("{scene:?}:\n{}", wrong.join("\n")));
        }
    }
    assert!(failed.is_empty(), "{story:?}: {} failed\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_file_that_was_renamed_before_every_node_lost_power_comes_once() {
    try_all(Story::Renamed);
}

#[test]
fn a_file_that_the_tier_has_when_every_node_loses_power_stays_as_it_is() {
    try_all(Story::RenamedAndSent);
}

#[test]
fn files_that_wait_for_each_other_when_every_node_loses_power_all_come() {
    try_all(Story::InOrder);
}

#[test]
fn a_new_file_that_was_synced_before_every_node_lost_power_comes() {
    try_all(Story::Synced);
}
