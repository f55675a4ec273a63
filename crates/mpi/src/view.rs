//! The view of one process: which bytes of the file its offsets count, in etypes.
//!
//! Here: view stream <-> file for every filetype that MPI allows; sizes and pointers in etypes.
//! Not here: moving bytes ([`crate::transfer`]).
//! Source: MPI 4.1, sections 14.1.1 and 14.3; paper 001, figure 6.

use std::{ops::Range, sync::Arc};

use hayase_layout::{
    Datatype, GlobalOffset, Offset, StreamMap, StreamOffset, View, ViewId, units::OFFSET_MAX,
};

use crate::{
    abi::ErrorClass,
    datatype::{OwnedType, Parsed},
    error::Error,
};

/// How data look in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datarep {
    Native,
    Internal,
    /// Big-endian IEEE; of types whose elements are as long there as in memory.
    External32,
}

impl Datarep {
    /// Fails for all that a program may have registered.
    pub(crate) fn of(name: &[u8]) -> Result<Self, Error> {
        match name.to_ascii_lowercase().as_slice() {
            b"native" => Ok(Self::Native),
            b"internal" => Ok(Self::Internal),
            b"external32" => Ok(Self::External32),
            _ => {
                let name = String::from_utf8_lossy(name);
                let what = format!("data representation `{name}` is not possible in a container");
                Err(Error::usual(ErrorClass::UnsupportedDatarep, what))
            }
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Internal => "internal",
            Self::External32 => "external32",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileView {
    pub(crate) displacement: i64,
    /// `None` before the first MPI_File_set_view: bytes.
    pub(crate) types: Option<Types>,
    pub(crate) datarep: Datarep,
    pub(crate) etype_size: u64,
    pub(crate) map: Map,
}

/// Etype and filetype.
#[derive(Debug)]
pub(crate) struct Types {
    /// Our own copies: the program may free its handles.
    pub(crate) held: (OwnedType, OwnedType),
    /// What they select. The program's types remember the same values as long as they live, and these can not
    /// be freed while they are held here: so a type that has one of them is the type that was given.
    pub(crate) parsed: (Arc<Parsed>, Arc<Parsed>),
}

/// Views of one file that are kept for when they are set again: HDF5 and PnetCDF change between two.
const VIEWS_KEPT_MAX: usize = 8;

/// The last views of one file, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Recent(Vec<Arc<FileView>>);

impl Recent {
    /// The view that was made of the same arguments. A few comparisons: nothing is parsed, copied or declared.
    pub(crate) fn find(
        &mut self,
        displacement: i64,
        parsed: (&Arc<Parsed>, &Arc<Parsed>),
        datarep: Datarep,
    ) -> Option<Arc<FileView>> {
        let nth = self.0.iter().position(|view| {
            let is_same = |types: &Types| {
                Arc::ptr_eq(&types.parsed.0, parsed.0) && Arc::ptr_eq(&types.parsed.1, parsed.1)
            };
            view.displacement == displacement
                && view.datarep == datarep
                && view.types.as_ref().is_some_and(is_same)
        })?;
        self.0[..=nth].rotate_right(1);
        Some(Arc::clone(&self.0[0]))
    }

    pub(crate) fn keep(&mut self, view: &Arc<FileView>) {
        self.0.truncate(VIEWS_KEPT_MAX - 1);
        self.0.insert(0, Arc::clone(view));
    }
}

/// Which bytes of the file a view's stream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    /// All from here on.
    Flat(u64),
    /// Ascending, as layouts know it; the number is that of the writer's declaration.
    Tiles(View, ViewId),
    /// Anything else: tiles that interlock, or go backwards.
    Scattered(Scattered),
    /// None at all.
    Nothing,
}

/// A filetype repeated from a displacement on, wherever its bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scattered {
    /// As many times as a file has room for.
    tiled: Datatype,
    displacement: i64,
    tile_len: u64,
    extent: i64,
    /// Of one tile.
    bounds: Range<i64>,
}

impl FileView {
    /// What a file has when it is opened.
    pub(crate) fn of_bytes() -> Self {
        Self {
            displacement: 0,
            types: None,
            datarep: Datarep::Native,
            etype_size: 1,
            map: Map::Flat(0),
        }
    }

    /// Bytes of the stream before `etypes`.
    pub(crate) fn stream(&self, etypes: i64) -> Result<u64, Error> {
        let bytes =
            u64::try_from(etypes).ok().and_then(|etypes| etypes.checked_mul(self.etype_size));
        let bytes = bytes.filter(|bytes| *bytes <= OFFSET_MAX);
        bytes.ok_or_else(|| Error::argument(format!("offset {etypes} is outside of every file")))
    }

    /// Where a file of `size` bytes ends, in etypes.
    pub(crate) fn end(&self, size: u64) -> u64 {
        self.map.before(size).div_ceil(self.etype_size)
    }
}

impl Map {
    /// What `filetype` selects from `displacement` on; `declare` numbers a view.
    pub(crate) fn new(
        displacement: i64,
        filetype: &Datatype,
        declare: impl FnOnce(&View) -> ViewId,
    ) -> Result<Self, Error> {
        let start = u64::try_from(displacement);
        let start = start.map_err(|_| Error::argument(format!("displacement {displacement}")))?;
        let Some(bounds) = filetype.true_bounds() else { return Ok(Self::Nothing) };
        if bounds.start.checked_add(displacement).is_none_or(|first| first < 0) {
            return Err(Error::datatype("a filetype that begins before the file"));
        }
        let extent = filetype.extent();
        if extent <= 0 {
            return Err(Error::datatype(format!("a filetype of extent {extent}")));
        }
        if let Some(dense) = filetype.dense_start()
            && extent as u64 == filetype.size()
        {
            return Ok(Self::Flat((displacement + dense) as u64)); // not before the file: checked above
        }
        if let Some(view) = filetype.view(GlobalOffset(start)) {
            let id = declare(&view);
            return Ok(Self::Tiles(view, id));
        }
        Scattered::new(displacement, filetype, bounds).map(Self::Scattered)
    }

    /// Where the byte at `stream` lies; `None` where no file has such a byte.
    pub(crate) fn place(&self, stream: u64) -> Option<u64> {
        match self {
            Self::Flat(start) => start.checked_add(stream).filter(|at| *at <= OFFSET_MAX),
            Self::Tiles(view, _) => view.forward(StreamOffset(stream)).map(Offset::get),
            Self::Scattered(scattered) => scattered.place(stream),
            Self::Nothing => None,
        }
    }

    /// How many bytes of the stream come before the end of a file of `size` bytes.
    pub(crate) fn before(&self, size: u64) -> u64 {
        match self {
            Self::Flat(start) => size.saturating_sub(*start),
            Self::Tiles(view, _) => view.rank(GlobalOffset(size)).get(),
            Self::Scattered(scattered) => scattered.before(size),
            Self::Nothing => 0,
        }
    }
}

impl Scattered {
    fn new(displacement: i64, filetype: &Datatype, bounds: Range<i64>) -> Result<Self, Error> {
        let extent = filetype.extent();
        // Tiles that end inside of a file, but for the one at its very end.
        let room = (OFFSET_MAX as i64).checked_sub(displacement);
        let room = room.and_then(|room| room.checked_sub(bounds.end)).filter(|room| *room >= 0);
        let far = || Error::argument("a view that begins behind the end of every file");
        let mut tiles = (room.ok_or_else(far)? / extent) as u64;
        // The stream has less than 63 bits too: overlapping tiles are longer than the file.
        tiles = tiles.min(OFFSET_MAX / filetype.size()).max(1);
        let tiled = filetype.contiguous(tiles)?;
        let tile_len = filetype.size();
        Ok(Self { tiled, displacement, tile_len, extent, bounds })
    }

    /// Blocks of the file that the bytes `window` of the stream are, in the order of the stream.
    pub(crate) fn blocks(&self, window: Range<u64>, mut visit: impl FnMut(u64, u64)) {
        self.tiled.walk(window, &mut |start: i64, len: u64| {
            visit((self.displacement + start) as u64, len);
        });
    }

    /// Longest stream.
    pub(crate) fn len(&self) -> u64 {
        self.tiled.size()
    }

    fn place(&self, stream: u64) -> Option<u64> {
        let mut place = None;
        self.blocks(stream..stream.saturating_add(1), |start, _| place = Some(start));
        place
    }

    /// Behind the last byte of the stream that lies before `size`.
    fn before(&self, size: u64) -> u64 {
        let first = self.displacement + self.bounds.start;
        let Some(inside) = i64::try_from(size).ok().and_then(|size| size.checked_sub(first + 1))
        else {
            return 0;
        };
        if inside < 0 {
            return 0;
        }
        let last_tile = (inside / self.extent) as u64 * self.tile_len;
        let mut end = last_tile;
        let mut at = last_tile;
        self.blocks(last_tile..last_tile + self.tile_len, |start, len| {
            if start < size {
                end = at + len.min(size - start);
            }
            at += len;
        });
        end.min(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(displacement: i64, filetype: &Datatype) -> Map {
        Map::new(displacement, filetype, |_| ViewId(7)).unwrap()
    }

    fn bytes(len: u64) -> Datatype {
        Datatype::bytes(len).unwrap()
    }

    fn check(map: &Map, places: &[u64], before: &[(u64, u64)]) {
        let found: Vec<_> = (0..places.len() as u64).map(|at| map.place(at).unwrap()).collect();
        assert_eq!(found, places, "{map:?}");
        for (size, stream) in before {
            assert_eq!(map.before(*size), *stream, "{size} {map:?}");
        }
    }

    #[test]
    fn every_filetype_has_its_map() {
        check(&map(10, &bytes(4)), &[10, 11, 12, 13, 14], &[(0, 0), (10, 0), (13, 3)]);
        let cyclic = bytes(2).resized(0, 6);
        check(&map(1, &cyclic), &[1, 2, 7, 8, 13], &[(1, 0), (2, 1), (5, 2), (8, 3), (14, 5)]);
        assert!(matches!(map(1, &cyclic), Map::Tiles(_, ViewId(7))));
        // Columns of two bytes that interlock: 0 1 8 9 | 2 3 10 11 | ..
        let column = bytes(2).vector(2, 1, 8).unwrap().resized(0, 2);
        let places = [4, 5, 12, 13, 6, 7, 14, 15, 8];
        check(&map(4, &column), &places, &[(4, 0), (5, 1), (7, 5), (14, 18)]);
        let backwards = Datatype::sequence([(4, 1, &bytes(2)), (0, 1, &bytes(1))]).unwrap();
        check(
            &map(0, &backwards),
            &[4, 5, 0, 10, 11, 6],
            &[(0, 0), (1, 3), (5, 3), (6, 3), (7, 6)],
        );
        assert_eq!(map(3, &bytes(0)), Map::Nothing);
    }

    #[test]
    fn views_outside_of_files_are_refused() {
        let refused = |displacement, filetype: &Datatype| {
            Map::new(displacement, filetype, |_| ViewId(0)).is_err()
        };
        assert!(refused(-1, &bytes(1)));
        assert!(refused(3, &Datatype::sequence([(-4, 1, &bytes(1))]).unwrap()));
        assert!(!refused(4, &Datatype::sequence([(-4, 1, &bytes(1))]).unwrap().resized(0, 8)));
        assert!(refused(0, &bytes(4).resized(0, 0)));
        let far = bytes(2).vector(2, 1, 8).unwrap().resized(0, 2);
        assert!(refused(OFFSET_MAX as i64, &far));
        let map = map(0, &far);
        assert_eq!(map.place(u64::MAX), None);
        assert!(map.place(1 << 40).is_some());
    }

    #[test]
    fn views_that_are_set_again_are_the_same() {
        let parsed = |len| Arc::new(Parsed { datatype: bytes(len) });
        let (byte, block) = (parsed(1), parsed(4));
        let view = |displacement, block: &Arc<Parsed>| {
            let held = (OwnedType::named_for_tests(), OwnedType::named_for_tests());
            let parsed = (Arc::clone(&byte), Arc::clone(block));
            let types = Some(Types { held, parsed });
            Arc::new(FileView { displacement, types, ..FileView::of_bytes() })
        };
        let mut recent = Recent::default();
        let find = |recent: &mut Recent, displacement, block: &Arc<Parsed>| {
            recent.find(displacement, (&byte, block), Datarep::Native).is_some()
        };
        recent.keep(&view(7, &block));
        assert!(find(&mut recent, 7, &block));
        assert!(!find(&mut recent, 8, &block));
        // Another type, though it selects the same.
        assert!(!find(&mut recent, 7, &parsed(4)));
        assert!(recent.find(7, (&byte, &block), Datarep::External32).is_none());
        for displacement in 10..10 + VIEWS_KEPT_MAX as i64 - 1 {
            recent.keep(&view(displacement, &block));
            assert!(find(&mut recent, 7, &block), "it is used, so it is kept");
        }
        recent.keep(&view(99, &block));
        recent.keep(&view(98, &block));
        assert!(!find(&mut recent, 10, &block));
        assert_eq!(recent.0.len(), VIEWS_KEPT_MAX);
    }

    #[test]
    fn offsets_count_etypes() {
        let view = FileView { etype_size: 4, ..FileView::of_bytes() };
        assert_eq!(view.stream(3).unwrap(), 12);
        assert!(view.stream(-1).is_err() && view.stream(i64::MAX).is_err());
        assert_eq!((view.end(8), view.end(9)), (2, 3));
    }
}
