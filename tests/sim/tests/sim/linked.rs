//! Hard links, counted while servers end in the middle of link(2) and unlink(2). Each commit tries seeds of its own.

use hayase_sim::linked_while_servers_end;

use crate::seeds::of_commit;

const SEEDS: u64 = 100;

#[test]
fn a_file_counts_the_names_that_it_has_whoever_ends_meanwhile() {
    let first = of_commit().unwrap_or(1);
    let mut failed = Vec::new();
    for seed in first..first + SEEDS {
        if let Err(wrong) = linked_while_servers_end(seed) {
            failed.push(format!("seed {seed}:\n{}", wrong.join("\n")));
        }
    }
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}
