//! Stripes: fixed-size units of a file dealt round robin over parts.
//!
//! Here: the rule, forward (file to part) and backward, and what sizes mean.
//! Not here: who is asked to hold the parts ([`crate::placement`]), what users may ask for ([`crate::policy`]).
//! Source: paper 003 (LLIO), and every striped file system since Swift (Cabrera, Long 1991).

use std::collections::BTreeSet;

use crate::{
    ByteCount, Extent, GlobalOffset, LocalExtent, LocalOffset, PartPiece, Piece, PolicyError,
    ServerId, deal::Deal, policy::check_stripe, units::Offset,
};

/// Why there is no such map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StripeError {
    /// The stripe is out of bounds or not whole pages.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No server, or more than part numbers can tell.
    #[error("a striped file has 1 to 65535 parts, not {count}")]
    Width {
        /// How many were given.
        count: usize,
    },
    /// Two parts of one file on one server.
    #[error("server {server} cannot hold two parts of one file")]
    Twice {
        /// The one that was given twice.
        server: ServerId,
    },
}

/// Where each byte of a striped file lies. Valid by construction; make it once per open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeMap {
    deal: Deal,
    stripe: ByteCount,
    servers: Vec<ServerId>,
}

impl StripeMap {
    /// Fails on an empty server list, on a server named twice, and on a stripe that is not a multiple of
    /// 4 KiB from 4 KiB to 1 GiB. Part `i` lies on `servers[i]`.
    pub fn new(stripe: ByteCount, servers: Vec<ServerId>) -> Result<Self, StripeError> {
        check_stripe(stripe)?;
        let width = u16::try_from(servers.len()).ok().filter(|width| *width > 0);
        let width = width.ok_or(StripeError::Width { count: servers.len() })?;
        let mut seen = BTreeSet::new();
        if let Some(server) = servers.iter().find(|server| !seen.insert(**server)) {
            return Err(StripeError::Twice { server: *server });
        }
        Ok(Self { deal: Deal::new(stripe, width), stripe, servers })
    }

    /// One part that holds everything at its own offset.
    pub(crate) fn whole(server: ServerId) -> Self {
        Self { deal: Deal::WHOLE, stripe: Deal::WHOLE.unit(), servers: vec![server] }
    }

    /// Bytes dealt to one part before the next one's turn.
    pub fn stripe(&self) -> ByteCount {
        self.stripe
    }

    /// Part `i` lies on the `i`-th.
    pub fn servers(&self) -> &[ServerId] {
        &self.servers
    }

    /// Number of parts.
    pub fn width(&self) -> u16 {
        self.deal.width()
    }

    /// Pieces in file order, longest possible, none empty; cannot fail, since a `StripeMap` is always valid.
    ///
    /// O(1) each, no allocation.
    pub fn split(&self, extent: Extent) -> impl Iterator<Item = Piece> + Clone + '_ {
        extent.chunks(self.deal.unit()).map(move |chunk| {
            let (part, local) = self.deal.locate(chunk.start());
            Piece {
                part: part.into(),
                server: self.servers[usize::from(part)],
                local: LocalExtent::within_valid(local.0, local.0 + chunk.len().0),
                extent: chunk,
                buffer: chunk.start().0 - extent.start().0,
            }
        })
    }

    /// For each part that `extent` touches its one contiguous piece, in the order of first bytes.
    ///
    /// At most [`StripeMap::width`] of them, so that a call of any size needs one request per server.
    /// O(1) each, no allocation.
    pub fn by_server(&self, extent: Extent) -> impl Iterator<Item = PartPiece> + Clone + '_ {
        let units = match extent.is_empty() {
            true => 0,
            false => {
                let (first, last) = (extent.start().0, extent.end().0 - 1);
                last / self.deal.unit().0 - first / self.deal.unit().0 + 1
            }
        };
        (0..units.min(self.deal.parts())).map(move |nth| {
            let (part, local) = self.deal.share(extent, nth);
            let server = self.servers[usize::from(part)];
            PartPiece { part, server, local, window: extent, deal: self.deal, shift: 0 }
        })
    }

    /// Forward: the part that holds the byte at `offset`, and where in it.
    pub fn locate(&self, offset: GlobalOffset) -> (u16, LocalOffset) {
        self.deal.locate(offset)
    }

    /// Backward: which byte of the file is at `offset` of `part`. `None` when there is no such part, or
    /// no file can be so long.
    pub fn global(&self, part: u16, offset: LocalOffset) -> Option<GlobalOffset> {
        (part < self.width()).then(|| self.deal.global(part, offset)).flatten()
    }

    /// How long `part` is when the file has `file_size` bytes and every byte was written; also what a
    /// truncation of the file truncates the part to. Zero when there is no such part.
    pub fn part_len(&self, part: u16, file_size: ByteCount) -> ByteCount {
        if part < self.width() { self.deal.part_len(part, file_size) } else { ByteCount::ZERO }
    }

    /// The smallest file that has parts of these lengths, given in order of the parts.
    ///
    /// `None` when no file can be so long, or a part without a number has bytes.
    pub fn file_size(&self, part_lens: &[ByteCount]) -> Option<ByteCount> {
        let mut size = 0;
        for (part, len) in part_lens.iter().enumerate().filter(|(_, len)| !len.is_zero()) {
            let last = self.global(u16::try_from(part).ok()?, LocalOffset(len.0 - 1))?;
            size = size.max(last.checked_add(ByteCount(1))?.get());
        }
        Some(ByteCount(size))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive;
    use crate::units::OFFSET_MAX;

    const K4: ByteCount = ByteCount::kib(4);

    fn map(stripe: ByteCount, width: u16) -> StripeMap {
        // Numbers that differ from the places, so that a mix-up shows.
        StripeMap::new(stripe, (0..width).map(|part| ServerId(part ^ 100)).collect()).unwrap()
    }

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(GlobalOffset(start), ByteCount(len)).unwrap()
    }

    /// Pieces as `part@local`, then what each server gets as `part@local<-buffers`.
    fn check(width: u16, (start, len): (u64, u64), pieces: &str, by_server: &str) {
        let map = map(K4, width);
        let text: Vec<_> = map
            .split(extent(start, len))
            .map(|piece| format!("{}@{}", piece.part, piece.local))
            .collect();
        assert_eq!(text.join(" "), pieces);
        let text: Vec<_> = map
            .by_server(extent(start, len))
            .map(|piece| {
                let buffers: Vec<_> = piece.buffers().map(|range| format!("{range:?}")).collect();
                format!("{}@{}<-{}", piece.part, piece.local, buffers.join("+"))
            })
            .collect();
        assert_eq!(text.join(" "), by_server);
    }

    #[test]
    fn units_are_dealt_round_robin() {
        check(3, (0, 0), "", "");
        check(3, (100, 50), "0@100..150", "0@100..150<-0..50");
        check(3, (4000, 200), "0@4000..4096 1@0..104", "0@4000..4096<-0..96 1@0..104<-96..200");
        check(
            2,
            (4096, 12288),
            "1@0..4096 0@4096..8192 1@4096..8192",
            "1@0..8192<-0..4096+8192..12288 0@4096..8192<-4096..8192",
        );
        check(1, (4000, 9000), "0@4000..13000", "0@4000..13000<-0..9000"); // one part: never cut
    }

    #[test]
    fn only_sound_maps_exist() {
        let check = |stripe: u64, servers: &[u16], valid: bool| {
            let servers: Vec<_> = servers.iter().map(|server| ServerId(*server)).collect();
            assert_eq!(StripeMap::new(ByteCount(stripe), servers).is_ok(), valid);
        };
        check(4096, &[0], true);
        check(4096, &[5, 3], true);
        check(4096, &[], false);
        check(4096, &[1, 2, 1], false);
        check(4097, &[1, 2], false);
        check(0, &[1, 2], false);
        let many: Vec<_> = (0..=u16::MAX).map(ServerId).collect();
        assert!(StripeMap::new(K4, many).is_err());
    }

    #[test]
    fn sizes_come_from_the_parts_and_go_to_them() {
        let check = |width, size: u64, lens: &[u64]| {
            let map = map(K4, width);
            let lens: Vec<_> = lens.iter().map(|len| ByteCount(*len)).collect();
            let parts: Vec<_> =
                (0..width).map(|part| map.part_len(part, ByteCount(size))).collect();
            assert_eq!(parts, lens);
            assert_eq!(map.file_size(&lens), Some(ByteCount(size)));
        };
        check(3, 0, &[0, 0, 0]);
        check(3, 1, &[1, 0, 0]);
        check(3, 4097, &[4096, 1, 0]);
        check(3, 3 * 4096, &[4096, 4096, 4096]);
        check(3, 3 * 4096 + 9, &[4105, 4096, 4096]);
        check(1, OFFSET_MAX, &[OFFSET_MAX]);

        let map = map(K4, 2);
        assert_eq!(map.file_size(&[ByteCount(0), ByteCount(1)]), Some(ByteCount(4097))); // a hole before
        assert_eq!(map.file_size(&[ByteCount(OFFSET_MAX), ByteCount(0)]), None);
        assert_eq!(map.file_size(&[ByteCount(0), ByteCount(0), ByteCount(1)]), None);
        assert_eq!(map.global(2, LocalOffset(0)), None);
        assert_eq!(map.part_len(2, ByteCount::mib(1)), ByteCount::ZERO);
    }

    #[test]
    fn the_largest_offsets_do_not_overflow() {
        let end = extent(OFFSET_MAX - 5000, 5000);
        for (stripe, width) in [(K4, 1), (K4, 2), (ByteCount::gib(1), 7), (K4, 65535)] {
            let map = map(stripe, width);
            let pieces: u64 = map.split(end).map(|piece| piece.local.len().0).sum();
            let by_server: u64 = map.by_server(end).map(|piece| piece.local.len().0).sum();
            assert_eq!((pieces, by_server), (5000, 5000));
            let (part, local) = map.locate(GlobalOffset(OFFSET_MAX));
            assert_eq!(map.global(part, local), Some(GlobalOffset(OFFSET_MAX)));
        }
    }

    prop_compose! {
        fn any_map()(pages in 1..4u64, width in 1..6u16) -> StripeMap {
            map(ByteCount(pages * 4096), width)
        }
    }

    prop_compose! {
        fn any_extent()(start in 0..80_000u64, len in 0..60_000u64) -> Extent { extent(start, len) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn forward_and_backward_agree_with_dealing_each_byte(map in any_map(), bytes in 1..60_000u64) {
            let dealt = naive::deal(map.stripe(), map.width(), bytes);
            for (offset, place) in (0..).map(GlobalOffset).zip(&dealt) {
                prop_assert_eq!(map.locate(offset), *place);
                prop_assert_eq!(map.global(place.0, place.1), Some(offset));
            }
            for part in 0..map.width() {
                let len = dealt.iter().filter(|place| place.0 == part).count() as u64;
                prop_assert_eq!(map.part_len(part, ByteCount(bytes)), ByteCount(len));
            }
            let lens: Vec<_> =
                (0..map.width()).map(|part| map.part_len(part, ByteCount(bytes))).collect();
            prop_assert_eq!(map.file_size(&lens), Some(ByteCount(bytes)));
        }

        #[test]
        fn both_kinds_of_pieces_agree_with_dealing_each_byte(map in any_map(), extent in any_extent()) {
            let dealt = naive::deal(map.stripe(), map.width(), extent.end().0);
            let expected = &dealt[extent.start().0 as usize..];

            let mut found = Vec::new();
            for piece in map.split(extent) {
                prop_assert_eq!(piece.buffer().start, found.len()); // file order, no gap
                prop_assert_eq!(piece.server, map.servers()[piece.part as usize]);
                prop_assert_eq!(piece.extent.len(), piece.local.len());
                let locals = piece.local.start().0..piece.local.end().0;
                found.extend(locals.map(|local| (piece.part as u16, LocalOffset(local))));
            }
            prop_assert_eq!(&found[..], expected);

            let mut found = vec![None; expected.len()];
            let mut parts = BTreeSet::new();
            for piece in map.by_server(extent) {
                prop_assert!(parts.insert(piece.part), "one piece per part");
                prop_assert_eq!(piece.server, map.servers()[usize::from(piece.part)]);
                let mut local = piece.local.start().0;
                for at in piece.buffers().flatten() {
                    prop_assert_eq!(found[at].replace((piece.part, LocalOffset(local))), None);
                    local += 1;
                }
                prop_assert_eq!(local, piece.local.end().0);
            }
            prop_assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn bytes_survive_the_way_through_the_parts(
            map in any_map(), extent in any_extent(), len_max in 1..9000u64
        ) {
            let data: Vec<u8> = (0..extent.len().0).map(|at| (at * 7 % 251) as u8).collect();
            let mut back = vec![0; data.len()];
            for piece in map.by_server(extent) {
                for request in piece.requests(ByteCount(len_max)) {
                    prop_assert!(request.local.len().0 <= len_max);
                    let mut slot = vec![0; request.local.len().0 as usize];
                    request.gather(&data, &mut slot);
                    request.scatter(&slot, &mut back);
                }
            }
            prop_assert_eq!(back, data);
        }
    }
}
