//! Shards: which server decides about a name.
//!
//! Here: from directory and hash of the name to a server. Pure, and the same on all nodes of a job.
//! Not here: the hash (`hayase_store`), what a shard keeps.

use crate::{InodeId, ServerId};

/// The server, of `servers` (at least one), that holds the entry whose name has this `hash` in `parent`.
///
/// All bits count, so that a hash that lacks some (a cookie of a listing has 63) spreads over all servers
/// too. Two multiplications: the finalizer of `splitmix64` (Steele, Lea, Flood: Fast splittable
/// pseudorandom number generators, OOPSLA 2014).
pub fn name_shard(parent: InodeId, hash: u64, servers: u16) -> ServerId {
    let mut mixed = hash ^ parent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    ServerId(((u128::from(mixed) * u128::from(servers)) >> 64) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_directory_spread_over_all_servers() {
        const EACH: usize = 400;
        for servers in [1, 2, 3, 5, 16, 100] {
            for parent in [1, 2, 3, 1 << 48 | 7, 2 << 48 | 8, 255 << 48 | 9].map(InodeId) {
                for spread in [1, 0x9e37_79b9_7f4a_7c15] {
                    let mut counts = vec![0; usize::from(servers)];
                    for i in 0..EACH as u64 * u64::from(servers) {
                        // The uppermost bit is never set, as in a cookie.
                        let hash = i.wrapping_mul(spread) >> 1;
                        counts[usize::from(name_shard(parent, hash, servers).0)] += 1;
                    }
                    let even = |count: &usize| (EACH * 3 / 4..=EACH * 5 / 4).contains(count);
                    assert!(counts.iter().all(even), "{servers} servers, {parent}: {counts:?}");
                }
            }
        }
    }
}
