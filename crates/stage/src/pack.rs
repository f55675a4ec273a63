//! Packs: many small files in one object, a plain tar that any tar opens; drawn in `docs/guide/pack-format.md`.
//!
//! Rooms: [`row`] and [`index`] (where each entry lies), [`header`] (the tar member before it),
//! [`writer`], [`reader`], [`seal`] (authenticated encryption in chunks), [`key`] (where the key of a
//! sealed set comes from), [`set`] (packs and their index in a tier), [`contents`] (what lies in the directory of a set), [`claim`] (which writer makes the next index), [`reindex`] (an index that was lost), [`verify`].
//!
//! Invariants:
//! 1. The index is the authority; tar headers say the same, and `verify` compares them byte for byte.
//! 2. No byte of an entry is delivered whose checksum, and seal where there is one, was not checked.
//! 3. An index names packs that were durable before it; a pack is removed only after an index
//!    without it is durable.

mod claim;
mod contents;
mod error;
pub mod header;
pub mod index;
pub mod key;
mod object;
pub mod reader;
pub mod reindex;
pub mod row;
pub mod seal;
pub mod set;
pub mod verify;
pub mod writer;

pub use error::PackError;
pub use index::{Index, PackId, PackLine};
pub use key::{DataKey, MasterKey};
pub use object::DIRECTORY;
pub(crate) use object::Stretch;
pub use reader::PackReader;
pub use row::{Codec, Location, Row};
pub use set::PackSet;
pub use writer::{Compression, PackWriter, Written};
