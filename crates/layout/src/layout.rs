//! Layouts: in which parts the bytes of one file lie.
//!
//! Here: the four layouts as they are kept and as they travel, and the one map that serves those whose
//! bytes are found by arithmetic alone.
//! Not here: `Recorded` files, whose bytes are found in an [`crate::index`] given beside.

use serde::{Deserialize, Serialize};

use crate::{
    ByteCount, Extent, GlobalOffset, InodeId, LocalExtent, LocalOffset, PartPiece, Piece, ServerId,
    StripeError, StripeMap, pack::Packed,
};

/// Where the bytes of one file lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// No bytes of its own: directories, links, devices.
    None,
    /// One part, on the home server; the global offset is the local one.
    Whole,
    /// Units of `stripe` bytes dealt round robin over `servers`; part `i` lies on `servers[i]`.
    Striped {
        /// Bytes dealt to one part before the next one's turn.
        stripe: ByteCount,
        /// In order of the parts.
        servers: Vec<ServerId>,
    },
    /// An N-1 file kept as one part per writer; the records of all writers tell where a byte lies.
    Recorded {
        /// The directory of its parts and indexes, which are files of their own.
        container: InodeId,
    },
    /// A stretch of a larger file.
    Packed(Packed),
}

/// Why a layout is no [`PartMap`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Directories, links and devices.
    #[error("a file of this kind has no bytes")]
    NoBytes,
    /// Arithmetic alone does not find the bytes of a recorded file.
    #[error("the bytes of a recorded file are found in its index")]
    NeedsIndex,
    /// The stripes make no sense.
    #[error("the file's stripes are not valid")]
    Stripe(#[from] StripeError),
}

impl Layout {
    /// The inode whose parts hold the bytes of `ino`: the pack's for a packed file, else its own.
    pub fn holder(&self, ino: InodeId) -> InodeId {
        match self {
            Self::Packed(packed) => packed.pack(),
            Self::None | Self::Whole | Self::Striped { .. } | Self::Recorded { .. } => ino,
        }
    }

    /// Each part's server, in order of the parts, for file `ino` of this layout. The parts of a recorded
    /// file have inodes of their own.
    pub fn servers(&self, ino: InodeId) -> Vec<ServerId> {
        match self {
            Self::None | Self::Recorded { .. } => Vec::new(),
            Self::Whole | Self::Packed(_) => vec![self.holder(ino).home()],
            Self::Striped { servers, .. } => servers.clone(),
        }
    }

    /// The map of file `ino`; make it once per open file.
    pub fn map(&self, ino: InodeId) -> Result<PartMap, LayoutError> {
        match self {
            Self::None => Err(LayoutError::NoBytes),
            Self::Recorded { .. } => Err(LayoutError::NeedsIndex),
            Self::Whole => Ok(PartMap { stripes: StripeMap::whole(ino.home()), packed: None }),
            Self::Striped { stripe, servers } => {
                let stripes = StripeMap::new(*stripe, servers.clone())?;
                Ok(PartMap { stripes, packed: None })
            }
            Self::Packed(packed) => {
                let stripes = StripeMap::whole(packed.pack().home());
                Ok(PartMap { stripes, packed: Some(*packed) })
            }
        }
    }
}

/// Forward and backward map of a `Whole`, `Striped` or `Packed` file. Valid by construction.
///
/// One arithmetic: a whole file is striped over one part with an endless stripe, and a packed file is a
/// whole one, shifted and cut off at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMap {
    stripes: StripeMap,
    packed: Option<Packed>,
}

impl PartMap {
    /// What sizes mean to the parts; `None` for a packed file, which never changes its size.
    pub fn stripes(&self) -> Option<&StripeMap> {
        self.packed.is_none().then_some(&self.stripes)
    }

    /// Number of parts.
    pub fn width(&self) -> u16 {
        self.stripes.width()
    }

    /// Part `i` lies on the `i`-th.
    pub fn servers(&self) -> &[ServerId] {
        self.stripes.servers()
    }

    /// Pieces in file order, longest possible, none empty. Of a packed file only what is before its end.
    ///
    /// O(1) each, no allocation.
    pub fn split(&self, extent: Extent) -> impl Iterator<Item = Piece> + Clone + '_ {
        let shift = self.shift();
        self.stripes
            .split(self.clip(extent))
            .map(move |piece| Piece { local: shifted(piece.local, shift), ..piece })
    }

    /// For each part that `extent` touches its one contiguous piece, in the order of first bytes.
    ///
    /// As [`StripeMap::by_server`]: one request per server, whatever the size. O(1) each, no allocation.
    pub fn by_server(&self, extent: Extent) -> impl Iterator<Item = PartPiece> + Clone + '_ {
        let shift = self.shift();
        self.stripes.by_server(self.clip(extent)).map(move |piece| PartPiece {
            local: shifted(piece.local, shift),
            shift,
            ..piece
        })
    }

    /// Forward: the part that holds the byte at `offset`, and where in it. `None` behind a packed file.
    pub fn locate(&self, offset: GlobalOffset) -> Option<(u16, LocalOffset)> {
        match self.packed {
            Some(packed) => packed.locate(offset).map(|local| (0, local)),
            None => Some(self.stripes.locate(offset)),
        }
    }

    /// Backward: which byte of the file is at `offset` of `part`. `None` when none is.
    pub fn global(&self, part: u16, offset: LocalOffset) -> Option<GlobalOffset> {
        match self.packed {
            Some(packed) => (part == 0).then(|| packed.global(offset)).flatten(),
            None => self.stripes.global(part, offset),
        }
    }

    fn shift(&self) -> u64 {
        self.packed.map_or(0, |packed| packed.place().start().0)
    }

    /// What of `extent` the file can have. Never moves the start, from which buffers are counted, unless
    /// nothing is left.
    fn clip(&self, extent: Extent) -> Extent {
        match self.packed {
            Some(packed) => {
                packed.split(extent).map_or(Extent::within_valid(0, 0), |(clipped, _)| clipped)
            }
            None => extent,
        }
    }
}

/// Bounded where the [`Packed`] was made: its last byte is at most at the largest offset.
fn shifted(local: LocalExtent, shift: u64) -> LocalExtent {
    LocalExtent::within_valid(local.start().0 + shift, local.end().0 + shift)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive;

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(GlobalOffset(start), ByteCount(len)).unwrap()
    }

    const FILE: InodeId = InodeId::new(ServerId(2), 7).unwrap();
    const PACK: InodeId = InodeId::new(ServerId(5), 9).unwrap();

    fn packed(start: u64, len: u64) -> Layout {
        Layout::Packed(Packed::new(PACK, LocalOffset(start), ByteCount(len)).unwrap())
    }

    fn striped(pages: u64, servers: std::ops::Range<u16>) -> Layout {
        let servers = servers.map(ServerId).collect();
        Layout::Striped { stripe: ByteCount::kib(4 * pages), servers }
    }

    /// `server/part@local<-buffer` of each piece.
    fn check(layout: &Layout, (start, len): (u64, u64), expected: &str) {
        let map = layout.map(FILE).unwrap();
        let text: Vec<_> = map
            .split(extent(start, len))
            .map(|piece| {
                format!("{}/{}@{}<-{:?}", piece.server, piece.part, piece.local, piece.buffer())
            })
            .collect();
        assert_eq!(text.join(" "), expected);
        assert_eq!(map.servers(), layout.servers(FILE));
    }

    #[test]
    fn layouts_place_bytes() {
        check(&Layout::Whole, (5, 1 << 40), "2/0@5..1099511627781<-0..1099511627776");
        check(&striped(1, 3..5), (4000, 200), "3/0@4000..4096<-0..96 4/1@0..104<-96..200");
        check(&packed(1000, 50), (10, 20), "5/0@1010..1030<-0..20");
        check(&packed(1000, 50), (10, 90), "5/0@1010..1050<-0..40"); // the file ends there
        check(&packed(1000, 50), (50, 1), "");
        assert_eq!(packed(1000, 50).holder(FILE), PACK);
        assert_eq!(Layout::Whole.holder(FILE), FILE);
    }

    #[test]
    fn some_layouts_are_no_map() {
        let recorded = Layout::Recorded { container: PACK };
        assert_eq!(Layout::None.map(FILE), Err(LayoutError::NoBytes));
        assert_eq!(recorded.map(FILE), Err(LayoutError::NeedsIndex));
        assert!(matches!(striped(1, 0..0).map(FILE), Err(LayoutError::Stripe(_))));
        assert!(Packed::new(PACK, LocalOffset(9), ByteCount(u64::MAX)).is_err());
    }

    #[test]
    fn old_layouts_stay_readable() {
        // The order of the variants is part of the protocol and of what is on disk.
        let check = |layout: &Layout, bytes: &[u8]| {
            assert_eq!(postcard::to_stdvec(layout).unwrap(), bytes);
            assert_eq!(postcard::from_bytes::<Layout>(bytes).unwrap(), *layout);
        };
        check(&Layout::None, &[0]);
        check(&Layout::Whole, &[1]);
        check(&striped(1, 0..2), &[2, 0x80, 0x20, 2, 0, 1]);
        check(&Layout::Recorded { container: InodeId(5) }, &[3, 5]);
        check(
            &Layout::Packed(Packed::new(InodeId(1), LocalOffset(2), ByteCount(3)).unwrap()),
            &[4, 1, 2, 3],
        );
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        prop_oneof![
            Just(Layout::Whole),
            (1..3u64, 1..5u16).prop_map(|(pages, width)| striped(pages, 10..10 + width)),
            (0..5000u64, 0..40_000u64).prop_map(|(start, len)| packed(start, len)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn maps_agree_with_placing_each_byte(
            layout in any_layout(), start in 0..20_000u64, len in 0..20_000u64
        ) {
            let map = layout.map(FILE).unwrap();
            let places = naive::places(&layout, start + len);
            for (offset, place) in (0..).map(GlobalOffset).zip(&places) {
                prop_assert_eq!(map.locate(offset), *place);
                if let Some((part, local)) = *place {
                    prop_assert_eq!(map.global(part, local), Some(offset));
                }
            }
            let mut split = vec![None; len as usize];
            for piece in map.split(extent(start, len)) {
                let locals = (piece.local.start().0..piece.local.end().0).map(LocalOffset);
                for (at, local) in piece.buffer().zip(locals) {
                    prop_assert_eq!(split[at].replace((piece.part as u16, local)), None);
                }
            }
            prop_assert_eq!(&split[..], &places[start as usize..]);
            let mut by_server = vec![None; len as usize];
            for piece in map.by_server(extent(start, len)) {
                prop_assert_eq!(piece.server, map.servers()[usize::from(piece.part)]);
                let locals = (piece.local.start().0..piece.local.end().0).map(LocalOffset);
                for (at, local) in piece.buffers().flatten().zip(locals) {
                    prop_assert_eq!(by_server[at].replace((piece.part, local)), None);
                }
            }
            prop_assert_eq!(by_server, split);
        }
    }
}
