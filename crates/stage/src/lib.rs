//! Whole trees between two tiers: packs of small files, plans, resume, verification.
//!
//! It sees only [`hayase_tier::Tier`]s; the binary hands it directories, stores and areas as such.
//!
//! Rooms: [`item`] (one name of a tree), [`pack`] (many small files in one object, drawn in `docs/guide/pack-format.md`),
//! [`source`] (a tree as a stream, loose or packed), [`select`] and [`compare`] (what is copied), [`Form`] (what a target is kept as),
//! [`pack_volume`] (a set of packs to be looked at without unpacking),
//! [`plan`] (which files travel together), [`tuner`] (how many streams, how large parts), [`spread`] (who of several nodes copies what), [`transfer`] (the copy itself), [`verify`] (two trees compared).
//!
//! There is no manifest beside the data: what a target holds tells what is finished. A file is there
//! whole or not at all, with the size and time of its source; a pack ends with its own index.
//! The API blocks; it starts threads only where it says so.

#![forbid(unsafe_code)]

mod bandwidth;
mod checksum;
pub mod compare;
mod form;
pub mod item;
pub mod limits;
mod options;
pub mod pack;
mod pack_volume;
mod place;
pub mod plan;
pub mod progress;
pub mod select;
pub mod source;
mod spread;
mod summary;
pub mod transfer;
pub mod tuner;
pub mod verify;
mod walk;
mod way;

pub use compare::Overwrite;
pub use form::{Form, begin_packs};
pub use item::{Item, Kind, Mtime};
pub use options::{Options, PackOptions};
pub use pack_volume::{Node, PackVolume, Shown};
pub use place::Place;
pub use progress::{Observer, Progress};
pub use select::{PatternError, Selection, Sizes};
pub use spread::Share;
pub use summary::{Failure, Summary};
pub use transfer::{Random, transfer};
pub use tuner::{PartSize, Streams};
