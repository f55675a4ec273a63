//! Packs: a small file as a stretch of a larger one.
//!
//! Here: the shift between the two. Not here: what is in a pack and where (`hayase_stage::pack`).

use serde::{Deserialize, Serialize};

use crate::{
    ByteCount, Extent, GlobalOffset, InodeId, LocalExtent, LocalOffset, extent::ExtentError,
};

/// Where a file lies inside its pack. The pack is a `Whole` file: one part, on its home server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(InodeId, LocalOffset, ByteCount)", into = "(InodeId, LocalOffset, ByteCount)")]
pub struct Packed {
    pack: InodeId,
    place: LocalExtent,
}

impl Packed {
    /// A file of `len` bytes that begins at `start` of the pack's part. Fails when no file reaches so far.
    pub fn new(pack: InodeId, start: LocalOffset, len: ByteCount) -> Result<Self, ExtentError> {
        Ok(Self { pack, place: LocalExtent::new(start, len)? })
    }

    /// The pack's own inode: the part is its part 0, and its home holds it.
    pub fn pack(self) -> InodeId {
        self.pack
    }

    /// The bytes of the pack that are this file.
    pub fn place(self) -> LocalExtent {
        self.place
    }

    /// Forward. `None` at the end of the file and behind it.
    pub fn locate(self, offset: GlobalOffset) -> Option<LocalOffset> {
        (offset.0 < self.place.len().0).then(|| LocalOffset(self.place.start().0 + offset.0))
    }

    /// Backward. `None` for bytes of the pack that are not this file's.
    pub fn global(self, offset: LocalOffset) -> Option<GlobalOffset> {
        self.place.contains(offset).then(|| GlobalOffset(offset.0 - self.place.start().0))
    }

    /// What of `extent` is before the end of the file, and where that lies. `None` when nothing is.
    pub fn split(self, extent: Extent) -> Option<(Extent, LocalExtent)> {
        let file = Extent::within_valid(0, self.place.len().0);
        let extent = extent.intersect(file)?;
        let shift = self.place.start().0;
        let local = LocalExtent::within_valid(extent.start().0 + shift, extent.end().0 + shift);
        Some((extent, local))
    }
}

impl From<Packed> for (InodeId, LocalOffset, ByteCount) {
    fn from(packed: Packed) -> Self {
        (packed.pack, packed.place.start(), packed.place.len())
    }
}

impl TryFrom<(InodeId, LocalOffset, ByteCount)> for Packed {
    type Error = ExtentError;

    fn try_from(
        (pack, start, len): (InodeId, LocalOffset, ByteCount),
    ) -> Result<Self, Self::Error> {
        Self::new(pack, start, len)
    }
}
