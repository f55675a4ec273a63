//! Rooms of the server: each uses rooms behind it in the list, and nothing leads from one to the type that holds them.

use std::collections::BTreeSet;

use hayase_tidy::{Crate, Tree, expect_none};

/// As ARCHITECTURE.md and `docs/design/010-house.md` list them.
const ROOMS: [&str; 7] = ["cache/area", "names", "rpc", "data", "meta", "clients", "activity"];

/// Holds all rooms.
const HALL: &str = "crates/server/src/node.rs";

/// The place of a file's room in the list.
fn room(file: &str) -> Option<usize> {
    let is_in = |room: &&str| {
        file.strip_prefix("crates/server/src/")
            .and_then(|file| file.strip_prefix(*room))
            .is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    };
    ROOMS.iter().position(is_in)
}

#[test]
fn rooms_of_the_server_use_those_behind_them() {
    let krate = Crate::read(&Tree::here(), "crates/server");
    let graph = krate.graph();
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for (file, targets) in &graph {
        let Some(own) = room(file) else { continue };
        seen.insert(own);
        for target in targets {
            if target == HALL {
                findings.push(format!("{file} uses {HALL}, which holds the rooms"));
            }
            if room(target).is_some_and(|used| used < own) {
                findings.push(format!("{file} uses {target}, a room in front of its own"));
            }
        }
    }
    assert_eq!(seen.len(), ROOMS.len(), "rooms without a file: was one renamed?");
    expect_none("a room uses rooms behind it in the list", &findings);
}
