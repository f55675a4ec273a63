//! Connections between servers, and between processes and their server: as they should be, and under attack.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod credits;
mod hostile;
mod job;
mod node;
mod relay;
mod rpc;
mod strangers;
