//! What fsync(2) says when a server has lost what it acknowledged.

use hayase_sim::synced_after_end_of_another;

const EIO: i32 = 5;

#[test]
fn a_power_cut_of_another_node_before_fsync_is_told_once() {
    for seed in 1..6 {
        for is_striped in [false, true] {
            let said = synced_after_end_of_another(seed, is_striped, true);
            assert_eq!(said, [Err(EIO), Ok(())], "seed {seed}, striped: {is_striped}");
        }
    }
}

#[test]
fn a_server_that_is_killed_before_fsync_loses_nothing() {
    for seed in 1..6 {
        for is_striped in [false, true] {
            let said = synced_after_end_of_another(seed, is_striped, false);
            assert_eq!(said, [Ok(()), Ok(())], "seed {seed}, striped: {is_striped}");
        }
    }
}
