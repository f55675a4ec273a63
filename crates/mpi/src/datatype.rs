//! MPI datatypes -> [`hayase_layout::Datatype`], by asking how they were made.
//!
//! Here: what each constructor's arguments mean. Not here: asking ([`crate::library::types`]), the typemap
//! itself.
//! Source: MPI 4.1, section 5.1.13, tables of MPI_Type_get_contents.
//!
//! O(constructors), not O(blocks). Bounds are the library's at each level: what padding a struct has is
//! its choice.

use std::sync::Arc;

use hayase_layout::{
    Datatype, DatatypeError,
    datatype::array::{Dealt, Distribution, Order, Side},
};

use crate::{
    abi::{Combiner, Handle},
    error::Error,
    library::{
        self,
        types::{self, Contents, OwnedType},
    },
};

/// What one MPI datatype selects.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) datatype: Datatype,
}

/// Deepest nesting of constructors that is followed.
const DEPTH_MAX: usize = 256;

impl From<DatatypeError> for Error {
    fn from(error: DatatypeError) -> Self {
        Self::datatype(error.to_string())
    }
}

/// What `handle` selects, as remembered with the type or asked for now.
pub(crate) fn parsed(handle: Handle) -> Result<Arc<Parsed>, Error> {
    let handle = library::abi()?.handle(handle);
    if let Some(known) = known(handle)? {
        return Ok(known);
    }
    let parsed = Arc::new(Parsed { datatype: parse(handle, 0)? });
    types::remember(handle, &parsed);
    Ok(parsed)
}

fn known(handle: Handle) -> Result<Option<Arc<Parsed>>, Error> {
    // Asking for an attribute of the null datatype would end the program.
    types::require_type(handle)?;
    Ok(types::recall(handle))
}

fn parse(handle: Handle, depth: usize) -> Result<Datatype, Error> {
    if depth > DEPTH_MAX {
        return Err(Error::datatype(format!("a datatype nested deeper than {DEPTH_MAX}")));
    }
    let contents = types::contents(handle)?;
    let inner = contents.datatypes.iter().map(|inner: &OwnedType| parse(**inner, depth + 1));
    let inner = inner.collect::<Result<Vec<_>, _>>()?;
    let datatype = match contents.combiner {
        Combiner::Named | Combiner::F90 | Combiner::ValueIndex => basic(handle)?,
        Combiner::Subarray => subarray(&contents, only(&inner)?)?,
        Combiner::Darray => darray(&contents, only(&inner)?)?,
        _ => derived(&contents, &inner)?,
    };
    let (lb, extent) = types::extent(handle)?;
    Ok(datatype.resized(lb, extent))
}

/// A type without parts; of the pairs for MPI_MINLOC some have a gap before their `int`.
fn basic(handle: Handle) -> Result<Datatype, Error> {
    let size = types::size(handle)?;
    let (start, len) = types::true_extent(handle)?;
    let len = u64::try_from(len).map_err(|_| Error::datatype("a datatype of negative extent"))?;
    if size == len {
        return Ok(Datatype::sequence([(start, 1, &Datatype::bytes(size)?)])?);
    }
    const INT: u64 = size_of::<std::ffi::c_int>() as u64;
    let (Some(value), Some(index)) = (size.checked_sub(INT), len.checked_sub(INT)) else {
        return Err(Error::datatype("a basic datatype with a gap that is not known here"));
    };
    let (value, int) = (Datatype::bytes(value)?, Datatype::bytes(INT)?);
    Ok(Datatype::sequence([(start, 1, &value), (start + index as i64, 1, &int)])?)
}

fn derived(contents: &Contents, inner: &[Datatype]) -> Result<Datatype, Error> {
    let mut numbers = Numbers::of(contents);
    Ok(match contents.combiner {
        Combiner::Dup | Combiner::Resized => only(inner)?.clone(),
        Combiner::Contiguous => only(inner)?.contiguous(numbers.count()?)?,
        Combiner::Vector => {
            let (count, block) = (numbers.count()?, numbers.count()?);
            let stride = scaled(numbers.next()?, only(inner)?)?;
            only(inner)?.vector(count, block, stride)?
        }
        Combiner::Hvector => {
            let (count, block) = (numbers.count()?, numbers.count()?);
            only(inner)?.vector(count, block, numbers.next()?)?
        }
        combiner => {
            let count = numbers.count()?;
            let blocks = match combiner {
                Combiner::IndexedBlock | Combiner::HindexedBlock => {
                    vec![numbers.count()?; usize::try_from(count).unwrap_or(0)]
                }
                _ => (0..count).map(|_| numbers.count()).collect::<Result<_, _>>()?,
            };
            let mut members = Vec::with_capacity(blocks.len());
            for (nth, block) in blocks.into_iter().enumerate() {
                let of = if combiner == Combiner::Struct { inner.get(nth) } else { inner.first() };
                let of = of.ok_or(Error::internal("a datatype without parts"))?;
                let place = numbers.next()?;
                let place = match combiner {
                    Combiner::Indexed | Combiner::IndexedBlock => scaled(place, of)?,
                    _ => place,
                };
                members.push((place, block, of));
            }
            Datatype::sequence(members)?
        }
    })
}

fn subarray(contents: &Contents, element: &Datatype) -> Result<Datatype, Error> {
    let (dimensions, order, mut sides) = match contents.integers[..] {
        [dimensions, order] => (dimensions, order, Numbers::new(contents.counts.clone())),
        [dimensions, ref sides @ .., order] => {
            (dimensions, order, Numbers::new(sides.iter().copied().map(i64::from).collect()))
        }
        _ => return Err(Error::internal("the contents of a sub-array")),
    };
    let [whole, part, start] =
        [sides.counts(dimensions)?, sides.counts(dimensions)?, sides.counts(dimensions)?];
    let sides = whole.into_iter().zip(part).zip(start);
    let sides: Vec<_> = sides.map(|((whole, part), start)| Side { whole, part, start }).collect();
    Ok(element.subarray(&sides, order_of(order)?)?)
}

fn darray(contents: &Contents, element: &Datatype) -> Result<Datatype, Error> {
    let numbers = library::abi()?.array;
    let mut arguments = Numbers::new(contents.integers.iter().copied().map(i64::from).collect());
    let (_size, rank, dimensions) = (arguments.count()?, arguments.count()?, arguments.int()?);
    let wholes = match contents.counts.is_empty() {
        true => arguments.counts(dimensions)?,
        false => Numbers::new(contents.counts.clone()).counts(dimensions)?,
    };
    let kinds = arguments.ints(dimensions)?;
    let blocks = arguments.ints(dimensions)?;
    let processes = arguments.counts(dimensions)?;
    let order = order_of(arguments.int()?)?;
    let mut dealt = Vec::with_capacity(wholes.len());
    for (nth, whole) in wholes.into_iter().enumerate() {
        let block = match blocks[nth] {
            block if block == numbers.default_argument => None,
            block => Some(count_of(block.into())?),
        };
        let distribution = match kinds[nth] {
            kind if kind == numbers.none => Distribution::None,
            kind if kind == numbers.block => Distribution::Block(block),
            kind if kind == numbers.cyclic => Distribution::Cyclic(block),
            _ => return Err(Error::datatype("a distribution that is not known here")),
        };
        dealt.push(Dealt { whole, distribution, processes: processes[nth] });
    }
    Ok(element.distributed(rank, &dealt, order)?)
}

fn order_of(number: std::ffi::c_int) -> Result<Order, Error> {
    let numbers = library::abi()?.array;
    match number {
        number if number == numbers.order_c => Ok(Order::C),
        number if number == numbers.order_fortran => Ok(Order::Fortran),
        _ => Err(Error::datatype("an order of arrays that is not known here")),
    }
}

fn only(inner: &[Datatype]) -> Result<&Datatype, Error> {
    inner.first().ok_or(Error::internal("a datatype without parts"))
}

/// Extents as bytes.
fn scaled(extents: i64, of: &Datatype) -> Result<i64, Error> {
    extents.checked_mul(of.extent()).ok_or(DatatypeError::TooFar.into())
}

fn count_of(number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| Error::datatype("a negative count in a datatype"))
}

/// Arguments of a constructor, in order: integers, then addresses; of the large form the counts.
struct Numbers {
    numbers: std::vec::IntoIter<i64>,
}

impl Numbers {
    fn new(numbers: Vec<i64>) -> Self {
        Self { numbers: numbers.into_iter() }
    }

    fn of(contents: &Contents) -> Self {
        let small = contents.integers.iter().copied().map(i64::from);
        let small = small.chain(contents.addresses.iter().copied());
        Self::new(match contents.counts.is_empty() {
            true => small.collect(),
            false => contents.counts.clone(),
        })
    }

    fn next(&mut self) -> Result<i64, Error> {
        self.numbers.next().ok_or(Error::internal("the contents of a datatype end early"))
    }

    fn count(&mut self) -> Result<u64, Error> {
        count_of(self.next()?)
    }

    fn int(&mut self) -> Result<std::ffi::c_int, Error> {
        let number = self.next()?;
        std::ffi::c_int::try_from(number).map_err(|_| Error::internal("an `int` of a datatype"))
    }

    fn counts(&mut self, len: std::ffi::c_int) -> Result<Vec<u64>, Error> {
        (0..len).map(|_| self.count()).collect()
    }

    fn ints(&mut self, len: std::ffi::c_int) -> Result<Vec<std::ffi::c_int>, Error> {
        (0..len).map(|_| self.int()).collect()
    }
}
