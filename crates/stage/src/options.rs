//! What a person may choose about a transfer.

use crate::limits::{MEMORY_BYTES, PACK_BYTES, PACK_ENTRIES_MAX};
use crate::pack::writer::Compression;
use crate::pack::{MasterKey, Row};
use crate::tuner::{PartSize, Streams};
use crate::{Overwrite, Selection, Share, Sizes};

/// What a person may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which names take part.
    pub selection: Selection,
    /// When what is there is written over.
    pub overwrite: Overwrite,
    /// Remove what the source does not have; what is not selected stays.
    pub delete: bool,
    /// Remove nothing when it would be more than this.
    pub delete_max: Option<u64>,
    /// Change nothing; tell the observer what would be done.
    pub is_dry_run: bool,
    /// How many streams at a time.
    pub streams: Streams,
    /// How large the parts of large files are.
    pub part_size: PartSize,
    /// Bytes per second over all streams.
    pub bandwidth: Option<u64>,
    /// Bytes of data that all streams hold together; one part of a file or one pack always may.
    pub memory: u64,
    /// Make packs at the target.
    pub packs: Option<PackOptions>,
    /// Only what is this node's part; others copy the rest. Packs of a part are in no index: the complete
    /// transfer that follows the parts takes them over.
    pub share: Option<Share>,
    /// Only files of some sizes.
    pub sizes: Sizes,
    /// A file of the right size, of which listings do not tell more, was copied just now: it is not asked.
    pub trusts_sizes: bool,
    /// Rows without packs: files that the parts of this transfer put next to the packs just now
    /// ([`crate::Summary::loose`]). They are not read again for their checksums.
    pub loose: Vec<Row>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            selection: Selection::all(),
            overwrite: Overwrite::default(),
            delete: false,
            delete_max: None,
            is_dry_run: false,
            streams: Streams::default(),
            part_size: PartSize::default(),
            bandwidth: None,
            memory: MEMORY_BYTES,
            packs: None,
            share: None,
            sizes: Sizes::All,
            trusts_sizes: false,
            loose: Vec::new(),
        }
    }
}

/// How packs are made.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// What each is filled to.
    pub bytes: u64,
    /// Most names in each, 1 to [`PACK_ENTRIES_MAX`].
    pub entries: usize,
    /// Entry by entry.
    pub compression: Compression,
    /// Seal the set by a data key that this key wraps.
    pub master: Option<MasterKey>,
    /// Large files are packed as well (each alone), where otherwise they stay loose.
    pub is_complete: bool,
}

impl PackOptions {
    /// Large files stay files of their own.
    pub(crate) fn leaves_loose(&self) -> bool {
        !self.is_complete && self.master.is_none()
    }
}

impl Default for PackOptions {
    fn default() -> Self {
        let (bytes, compression) = (PACK_BYTES.get(), Compression::None);
        Self { bytes, entries: PACK_ENTRIES_MAX, compression, master: None, is_complete: false }
    }
}
