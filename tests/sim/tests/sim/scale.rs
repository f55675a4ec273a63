//! What a node does because there are other nodes does not grow with their number, when they share
//! nothing. By counts of frames and wake-ups, never by time.
//!
//! `HAYASE_SIM_SCALE=1000` goes up to that many nodes.

use hayase_sim::{Effort, Scale, scale};

fn nodes() -> Vec<u16> {
    let most = std::env::var("HAYASE_SIM_SCALE").ok().and_then(|most| most.parse().ok());
    let most: u16 = most.unwrap_or(250);
    [64, 250, 1000, 2000].into_iter().filter(|nodes| *nodes <= most).collect()
}

/// Resident memory of this process in KiB; tests that run at the same time are included.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4)
}

fn told(what: &str, nodes: u16, per: f64, effort: &Effort) {
    println!(
        "| {what} | {nodes} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} |",
        effort.frames / per,
        effort.frames_max as f64 / per,
        effort.wakes / per,
        effort.frames_coordinator as f64 / per,
        effort.wakes_coordinator as f64 / per,
    );
}

#[test]
fn a_nodes_effort_does_not_grow_with_the_job() {
    let mut scales = Vec::new();
    for nodes in nodes() {
        let before = resident();
        scales.push(scale(nodes));
        println!("{nodes} nodes: {} KiB more resident", resident().saturating_sub(before));
    }
    println!(
        "| what | nodes | frames sent | most | wake-ups | frames of server 0 | its wake-ups |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for scale in &scales {
        told("idle, per second", scale.nodes, Scale::IDLE_SECONDS as f64, &scale.idle);
    }
    for scale in &scales {
        told("per own file", scale.nodes, Scale::FILES as f64, &scale.busy);
    }
    let first = &scales[0];
    for scale in &scales {
        // A beat each 5 s or less often, and nothing else.
        assert!(scale.idle.frames_max <= Scale::IDLE_SECONDS / 5, "{scale:?}");
        // Server 0 answers so many beats each second at most, in a job of any size.
        let beats_max = 34 * Scale::IDLE_SECONDS;
        assert!(scale.idle.frames_coordinator <= beats_max, "{scale:?}");
        assert!(scale.idle.wakes <= first.idle.wakes * 1.02, "{scale:?} against {first:?}");
        // In a larger job a node meets a few servers more for the first time.
        assert!(scale.busy.frames <= first.busy.frames * 1.3, "{scale:?} against {first:?}");
        assert!(scale.busy.wakes <= first.busy.wakes * 1.3, "{scale:?} against {first:?}");
    }
}

/// In this simulation at most twice for each: by its frame, and by that of the answer. In a large job many come at once.
#[test]
fn server_0_at_rest_is_woken_by_heartbeats_alone() {
    for nodes in [2, 3, 64] {
        let idle = scale(nodes).idle;
        assert!(idle.frames_coordinator > 0, "{nodes} nodes: {idle:?}");
        assert!(idle.wakes_coordinator <= 2 * idle.frames_coordinator, "{nodes} nodes: {idle:?}");
    }
}
