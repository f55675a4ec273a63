//! What `stage` and `pack` have in common: choosing names, keys, and watching a transfer.
//!
//! Rooms: [`arguments`], [`keys`] (where a key comes from), [`watch`] (progress, events, the summary).

mod arguments;
mod keys;
mod watch;

pub(super) use arguments::{CopyArgs, SelectionArgs, pack_size, zstd_level};
pub(crate) use keys::KeyError;
pub(super) use keys::{KeyArgs, NewKeyArgs};
pub(super) use watch::{run, while_watched};
