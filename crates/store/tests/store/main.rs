//! The storage of a server: in models that forget, and on images that are mounted where this user may.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod full_disk;
mod image_area;
mod mounted;
mod power_cut;
mod write_errors;
