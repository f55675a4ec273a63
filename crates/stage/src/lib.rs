//! Whole trees between two tiers: packs of small files, plans, resume, verification.
//!
//! It sees only [`hayase_tier::Tier`]s; the binary hands it directories, stores and areas as such.
//!
//! Rooms: [`item`] (one name of a tree), [`pack`] (many small files in one object, drawn in `FORMAT.md`).
//! The API blocks; it starts threads only where it says so.

#![forbid(unsafe_code)]

mod checksum;
pub mod item;
pub mod limits;
pub mod pack;
mod place;

pub use item::{Item, Kind, Mtime};
pub use place::Place;
