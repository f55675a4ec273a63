//! Real mounts: over a server in memory ([`mounted`]), and over real servers ([`nodes`]).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acl;
mod mounted;
mod nodes;
mod set_ids;
