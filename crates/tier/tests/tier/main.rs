//! Tiers: the one suite that all pass, and what is particular to a directory and to a bucket.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod model;
mod posix;
mod s3;
mod s3_damage;
mod s3_faults;
mod s3_kept;
mod s3_tls;
mod scripted;
