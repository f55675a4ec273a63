//! Two trees compared: does the target hold what the source has, byte for byte?

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hayase_tier::Reader;

use crate::checksum::Checksum;
use crate::item::{Item, Kind};
use crate::limits::{LINK_BYTES_MAX, PIECE_BYTES};
use crate::pack::{Codec, PackError, Row};
use crate::source::{Next, Origin, Source};
use crate::transfer::asking::{file_of, link_of};
use crate::transfer::open_packs::OpenPacks;
use crate::{Progress, Selection};

/// One name that is not the same on both sides.
#[derive(Debug)]
pub struct Difference {
    /// Relative to the trees.
    pub name: String,
    /// What differs.
    pub what: String,
}

/// What was compared, and what differs.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Names of the source.
    pub names: u64,
    /// In no order.
    pub differences: Vec<Difference>,
}

/// Compares names, kinds, sizes, modes, times and bytes of what `selection` takes, on `threads` threads.
///
/// Where an index has the checksum of a side, that side is still read: what counts is what is there.
/// More names at the target are told only with `is_exact`.
pub fn compare(
    source: &Source,
    target: &Source,
    selection: &Selection,
    is_exact: bool,
    threads: usize,
    progress: &Progress,
) -> Comparison {
    let result = Mutex::new(Comparison::default());
    let differ = |name: &str, what: String| {
        let difference = Difference { name: name.to_owned(), what };
        result
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .differences
            .push(difference);
    };
    let names = AtomicU64::new(0);
    let sides = [source, target].map(Tree::new);
    let pairs = Mutex::new(Pairs::new(source, target, selection));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let pair =
                        pairs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                    match pair {
                        None => return,
                        Some(Pair::Wrong(name, what)) => differ(&name, what),
                        Some(Pair::Missing(item)) => {
                            differ(&item.name.to_string(), "is missing".into());
                        }
                        Some(Pair::More(item)) if is_exact => {
                            differ(&item.name.to_string(), "is not in the source".into());
                        }
                        Some(Pair::More(_)) => {}
                        Some(Pair::Both(ours, theirs)) => {
                            names.fetch_add(1, Ordering::Relaxed);
                            Progress::add(&progress.found, 1);
                            if let Some(what) = differs(&sides, &ours, &theirs, progress) {
                                differ(&ours.0.name.to_string(), what);
                            }
                        }
                    }
                }
            });
        }
    });
    let mut result = result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    result.names = names.into_inner();
    result.differences.sort_by(|a, b| a.name.cmp(&b.name));
    result
}

type Side = (Item, Origin);

enum Pair {
    Both(Box<Side>, Box<Side>),
    Missing(Item),
    More(Item),
    Wrong(String, String),
}

/// Both trees in step.
struct Pairs<'a> {
    source: std::iter::Peekable<crate::source::Stream<'a>>,
    target: std::iter::Peekable<crate::source::Stream<'a>>,
    selection: &'a Selection,
}

impl<'a> Pairs<'a> {
    fn new(source: &'a Source, target: &'a Source, selection: &'a Selection) -> Self {
        let (source, target) = (source.stream().peekable(), target.stream().peekable());
        Self { source, target, selection }
    }

    fn next(&mut self) -> Option<Pair> {
        let wrong = settle(&mut self.source, self.selection, true)
            .or_else(|| settle(&mut self.target, self.selection, false));
        if wrong.is_some() {
            return wrong;
        }
        let order = match (self.source.peek(), self.target.peek()) {
            (None, None) => return None,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(Next::Item(ours, _)), Some(Next::Item(theirs, _))) => ours.order(theirs),
            _ => unreachable!("everything else was settled above"),
        };
        let take = |next: Option<Next>| match next {
            Some(Next::Item(item, origin)) => (item, origin),
            _ => unreachable!("it was peeked at"),
        };
        Some(match order {
            std::cmp::Ordering::Less => Pair::Missing(take(self.source.next()).0),
            std::cmp::Ordering::Greater => Pair::More(take(self.target.next()).0),
            std::cmp::Ordering::Equal => {
                let (ours, theirs) = (take(self.source.next()), take(self.target.next()));
                Pair::Both(Box::new(ours), Box::new(theirs))
            }
        })
    }
}

/// Goes on to the next item that takes part; answers what can not be compared on the way there.
fn settle(
    stream: &mut std::iter::Peekable<crate::source::Stream<'_>>,
    selection: &Selection,
    is_source: bool,
) -> Option<Pair> {
    let side = if is_source { "source" } else { "target" };
    loop {
        match stream.peek()? {
            Next::Item(item, _) if selection.takes(&item.name, item.is_directory()) => return None,
            _ => {}
        }
        match stream.next()? {
            Next::Unreadable(error) => {
                return Some(Pair::Wrong(format!("a directory of the {side}"), error.to_string()));
            }
            Next::Other(name, why) if is_source => {
                return Some(Pair::Wrong(crate::source::shown(&name), why.to_owned()));
            }
            _ => {}
        }
    }
}

/// A tree, and what is open of its packs: each would cost a request for each entry.
struct Tree<'a> {
    source: &'a Source,
    packs: OpenPacks,
}

impl<'a> Tree<'a> {
    fn new(source: &'a Source) -> Self {
        Self { source, packs: OpenPacks::default() }
    }
}

/// One side as it is: read to its end, and asked where its listing does not tell.
struct Seen {
    item: Item,
    /// Of a file.
    sum: Option<u32>,
    /// Its mode and time are those that it was given.
    is_dated: bool,
}

impl Seen {
    fn of(tree: &Tree<'_>, (item, origin): &Side) -> Result<Self, PackError> {
        let place = tree.source.place();
        let hides = matches!(origin, Origin::Object(_)) && place.hides();
        match item.kind {
            Kind::File { .. } => {}
            Kind::Directory if hides => {
                let item = place.told_directory(item)?;
                return Ok(Self { item, sum: None, is_dated: true });
            }
            _ => return Ok(Self { item: item.clone(), sum: None, is_dated: true }),
        }
        if let (Origin::Row(row), Some(_)) = (origin, tree.source.set())
            && row.location.is_some()
        {
            let sum = Some(packed_sum(tree, row)?);
            return Ok(Self { item: item.clone(), sum, is_dated: true });
        }
        let reader = place.tier.open(&place.key(item.name.as_bytes())?)?;
        let sum = sum(&*reader)?;
        if !hides {
            return Ok(Self { item: item.clone(), sum: Some(sum), is_dated: true });
        }
        let is_dated = reader.attributes()?.mtime.is_some();
        let item = file_of(item, &*reader)?;
        if reader.is_link()? && item.bytes() <= LINK_BYTES_MAX {
            let mut target = vec![0; usize::try_from(item.bytes()).unwrap_or(0)];
            let count = reader.read_at(0, &mut target)?;
            target.truncate(count);
            return Ok(Self { item: link_of(item, target), sum: None, is_dated: true });
        }
        Ok(Self { item, sum: Some(sum), is_dated })
    }
}

/// What differs between two items of one name.
fn differs(
    [source, target]: &[Tree<'_>; 2],
    ours: &Side,
    theirs: &Side,
    progress: &Progress,
) -> Option<String> {
    if let (Kind::File { bytes: a }, Kind::File { bytes: b }) = (&ours.0.kind, &theirs.0.kind)
        && a != b
    {
        return Some(format!("has {b} bytes instead of {a}"));
    }
    let (ours, theirs) = match (Seen::of(source, ours), Seen::of(target, theirs)) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
    };
    let (a, b) = (&ours.item, &theirs.item);
    match (&a.kind, &b.kind) {
        (Kind::Link { target: a }, Kind::Link { target: b }) if a != b => {
            return Some(format!("leads to {} instead of {}", b.escape_ascii(), a.escape_ascii()));
        }
        (Kind::File { .. }, Kind::File { .. }) if ours.sum != theirs.sum => {
            return Some("has other bytes".to_owned());
        }
        (Kind::File { bytes }, Kind::File { .. }) => Progress::add(&progress.bytes_moved, *bytes),
        (Kind::Link { .. }, Kind::Link { .. }) | (Kind::Directory, Kind::Directory) => {}
        _ => return Some("is of another kind".to_owned()),
    }
    // An object that its writer told nothing about has neither mode nor time to compare.
    let is_dated = ours.is_dated && theirs.is_dated;
    if is_dated && a.mode != b.mode {
        return Some(format!("has mode {:04o} instead of {:04o}", b.mode, a.mode));
    }
    if is_dated && !a.mtime.agrees(b.mtime) {
        return Some(format!("is dated {} instead of {}", b.mtime, a.mtime));
    }
    None
}

/// The checksum of an entry of a pack, from the bytes that are there.
fn packed_sum(tree: &Tree<'_>, row: &Row) -> Result<u32, PackError> {
    let set = tree.source.set().expect("an entry lies in a set");
    let place = row.location.expect("an entry lies in a pack");
    let pack = tree.packs.get(set, place.pack)?;
    if place.codec == Codec::Zstd || place.stored <= PIECE_BYTES as u64 {
        return Ok(crate::checksum::of(&pack.entry(row)?));
    }
    let (mut sum, mut piece, mut at) = (Checksum::new(), Vec::new(), 0);
    while at < place.stored {
        let len = (place.stored - at).min(PIECE_BYTES as u64) as usize;
        pack.read_range(place.offset + at, len, &mut piece)?;
        sum.update(&piece);
        at += len as u64;
    }
    Ok(sum.value())
}

/// That of an object.
fn sum(reader: &dyn Reader) -> Result<u32, PackError> {
    let (mut sum, mut piece, mut at) = (Checksum::new(), vec![0; PIECE_BYTES], 0);
    loop {
        let count = reader.read_at(at, &mut piece)?;
        sum.update(&piece[..count]);
        at += count as u64;
        if count < piece.len() {
            return Ok(sum.value());
        }
    }
}
