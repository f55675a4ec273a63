//! What `stage` and `pack` have in common: choosing names, keys, and watching a transfer.
//!
//! Rooms: [`arguments`], [`keys`] (where a key comes from), [`remembered`] (which streams and parts were good),
//! [`watch`] (progress, events, the summary).

mod arguments;
mod keys;
mod remembered;
mod watch;

pub(crate) use arguments::DeleteOfFile;
pub(super) use arguments::{
    CopyArgs, OutSelectionArgs, OverwriteArg, PackArgs, SelectionArgs, ZSTD_LEVEL_DEFAULT,
    pack_size, zstd_level,
};
pub(crate) use keys::KeyError;
pub(super) use keys::{KeyArgs, NewKeyArgs, OutKeyArgs, told};
pub(super) use remembered::Remembered;
pub(crate) use remembered::Start;
pub(crate) use watch::{End, Event, NodePart, Now};
pub(super) use watch::{run, run_quietly, run_to_end, show_end, tell_would, while_watched};
