//! Jobs whose every state is looked at.

use super::*;
use crate::explore::{Explored, explore};

fn all(job: &Job) -> Explored {
    explore(job, 3_000_000).unwrap_or_else(|violation| panic!("{violation}"))
}

#[test]
fn a_reader_and_a_writer_elsewhere_beside_the_home() {
    let opens = vec![vec![WRITE], vec![READ, READ], vec![WRITE]];
    let explored = all(&Job { opens, writes: 2, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn two_readers_and_a_writer_with_messages_that_come_twice() {
    let opens = vec![vec![], vec![READ, WRITE], vec![READ, READ]];
    let explored = all(&Job { opens, writes: 1, repeats: 1, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn readers_that_are_cut_off_do_not_hold_up_a_writer() {
    let opens = vec![vec![WRITE], vec![READ], vec![READ]];
    let explored = all(&Job { opens, writes: 1, repeats: 1, cuts: 1, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn a_gatherer_hands_on_before_another_opens() {
    let opens = vec![vec![], vec![WRITE], vec![READ]];
    let explored = all(&Job { opens, writes: 2, gathers: 2, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn a_gatherer_hands_on_before_another_writes_and_messages_come_twice() {
    let opens = vec![vec![WRITE], vec![WRITE], vec![]];
    let explored = all(&Job { opens, writes: 2, repeats: 1, gathers: 2, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn a_look_shows_what_was_gathered_before_it() {
    let opens = vec![vec![], vec![WRITE, WRITE], vec![]];
    let (gathers, looks) = (2, 2);
    let explored = all(&Job { opens, writes: 2, repeats: 1, gathers, looks, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn the_homes_own_node_gathers_as_any_other() {
    let opens = vec![vec![WRITE], vec![WRITE]];
    let (gathers, looks, cuts) = (2, 1, 1);
    let job = Job { opens, writes: 2, gathers, looks, cuts, all_remote: true, ..Job::default() };
    let explored = all(&job);
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn who_does_not_answer_writes_nothing_over_what_others_have_written() {
    let opens = vec![vec![WRITE], vec![WRITE], vec![]];
    let (repeats, cuts, gathers) = (1, 1, 2);
    let explored = all(&Job { opens, writes: 2, repeats, cuts, gathers, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn what_others_looked_at_without_is_written_later() {
    let opens = vec![vec![], vec![WRITE, WRITE], vec![]];
    let explored = all(&Job { opens, writes: 2, cuts: 1, gathers: 2, looks: 1, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn a_home_that_is_started_anew_waits_for_who_gathers() {
    let opens = vec![vec![WRITE], vec![WRITE], vec![]];
    let (gathers, looks) = (1, 1);
    let explored = all(&Job { opens, writes: 2, gathers, looks, restarts: 1, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

/// The grace ends before all have told.
#[test]
fn who_tells_too_late_what_it_has_open_writes_nothing_that_it_has_gathered() {
    let opens = vec![vec![WRITE], vec![WRITE]];
    let (cuts, gathers, restarts) = (1, 2, 1);
    let explored = all(&Job { opens, writes: 2, cuts, gathers, restarts, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn what_others_looked_at_before_its_node_told_is_written_or_lost() {
    let opens = vec![vec![], vec![WRITE, WRITE]];
    let (cuts, gathers, looks, restarts) = (1, 2, 1, 1);
    let explored = all(&Job { opens, writes: 2, cuts, gathers, looks, restarts, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn a_lost_node_that_comes_back_writes_nothing_that_it_has_gathered() {
    let opens = vec![vec![WRITE], vec![WRITE], vec![]];
    let (gathers, looks) = (2, 1);
    let explored = all(&Job { opens, writes: 2, gathers, looks, losses: 1, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn a_home_that_is_started_anew_remembers_whom_it_gave_up() {
    let opens = vec![vec![WRITE], vec![WRITE]];
    let (cuts, gathers, restarts) = (1, 1, 1);
    let explored = all(&Job { opens, writes: 2, cuts, gathers, restarts, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}

#[test]
fn a_home_that_is_started_anew_takes_what_readers_did_not_wait_for() {
    let opens = vec![vec![], vec![WRITE], vec![READ]];
    let (cuts, gathers, looks, restarts) = (1, 1, 1, 1);
    let explored = all(&Job { opens, writes: 1, cuts, gathers, looks, restarts, ..Job::default() });
    assert!(explored.states > 1_000 && explored.ends > 0, "{explored:?}");
}
