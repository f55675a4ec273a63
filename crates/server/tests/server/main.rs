//! Servers as processes and other servers meet them: whole jobs in this process, each with directories, sockets
//! and counters of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acl;
mod cached;
mod cached_lists;
mod cached_recorded;
mod cached_xattrs;
mod cluster;
mod crash_points;
mod kept_names;
mod keys;
mod lost_bytes;
mod lost_replies;
mod multiplexed;
mod power_cut_recorded;
mod recorded;
mod resumed_recorded;
mod slow_disk;
mod starting;
mod stray_parts;
mod striped_copy;
mod three_servers;
