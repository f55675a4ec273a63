//! What a constructor of datatypes selects, by its arguments. Pure: nothing here asks the library.
//!
//! Source: MPI 4.1, section 5.1.13, tables of MPI_Type_get_contents.

use std::ffi::c_int;

use hayase_layout::{
    Datatype, DatatypeError,
    datatype::array::{Dealt, Distribution, Order, Side},
};

use crate::{
    abi::{ArrayNumbers, Combiner},
    error::Error,
};

/// How a type was made: by which constructor, with which arguments.
#[derive(Debug)]
pub(super) struct Constructor {
    pub(super) combiner: Combiner,
    pub(super) integers: Vec<c_int>,
    pub(super) addresses: Vec<i64>,
    /// Of the constructors that end with `_c`; where there are any, there are no addresses.
    pub(super) counts: Vec<i64>,
}

impl Constructor {
    /// Whether it makes a type of no others: only the library knows what such a type is.
    pub(super) fn is_basic(&self) -> bool {
        matches!(self.combiner, Combiner::Named | Combiner::F90 | Combiner::ValueIndex)
    }

    /// What it makes of types that select `inner`; `numbers` are those of the library. Bounds may still be others.
    pub(super) fn selects(
        &self,
        inner: &[Datatype],
        numbers: &ArrayNumbers,
    ) -> Result<Datatype, Error> {
        match self.combiner {
            Combiner::Subarray => subarray(self, only(inner)?, numbers),
            Combiner::Darray => darray(self, only(inner)?, numbers),
            _ => derived(self, inner),
        }
    }
}

/// A type without parts; of the pairs for MPI_MINLOC some have a gap before their `int`.
///
/// It has `size` bytes, the first at `start`, and is `len` long.
pub(super) fn basic(size: u64, (start, len): (i64, i64)) -> Result<Datatype, Error> {
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

fn derived(constructor: &Constructor, inner: &[Datatype]) -> Result<Datatype, Error> {
    let mut numbers = Numbers::of(constructor);
    Ok(match constructor.combiner {
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

fn subarray(
    constructor: &Constructor,
    element: &Datatype,
    numbers: &ArrayNumbers,
) -> Result<Datatype, Error> {
    let (dimensions, order, mut sides) = match constructor.integers[..] {
        [dimensions, order] => (dimensions, order, Numbers::new(constructor.counts.clone())),
        [dimensions, ref sides @ .., order] => {
            (dimensions, order, Numbers::new(sides.iter().copied().map(i64::from).collect()))
        }
        _ => return Err(Error::internal("the contents of a sub-array")),
    };
    let [whole, part, start] =
        [sides.counts(dimensions)?, sides.counts(dimensions)?, sides.counts(dimensions)?];
    let sides = whole.into_iter().zip(part).zip(start);
    let sides: Vec<_> = sides.map(|((whole, part), start)| Side { whole, part, start }).collect();
    Ok(element.subarray(&sides, order_of(order, numbers)?)?)
}

fn darray(
    constructor: &Constructor,
    element: &Datatype,
    numbers: &ArrayNumbers,
) -> Result<Datatype, Error> {
    let mut arguments = Numbers::new(constructor.integers.iter().copied().map(i64::from).collect());
    let (_size, rank, dimensions) = (arguments.count()?, arguments.count()?, arguments.int()?);
    let wholes = match constructor.counts.is_empty() {
        true => arguments.counts(dimensions)?,
        false => Numbers::new(constructor.counts.clone()).counts(dimensions)?,
    };
    let kinds = arguments.ints(dimensions)?;
    let blocks = arguments.ints(dimensions)?;
    let processes = arguments.counts(dimensions)?;
    let order = order_of(arguments.int()?, numbers)?;
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

fn order_of(number: c_int, numbers: &ArrayNumbers) -> Result<Order, Error> {
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

    fn of(constructor: &Constructor) -> Self {
        let small = constructor.integers.iter().copied().map(i64::from);
        let small = small.chain(constructor.addresses.iter().copied());
        Self::new(match constructor.counts.is_empty() {
            true => small.collect(),
            false => constructor.counts.clone(),
        })
    }

    fn next(&mut self) -> Result<i64, Error> {
        self.numbers.next().ok_or(Error::internal("the contents of a datatype end early"))
    }

    fn count(&mut self) -> Result<u64, Error> {
        count_of(self.next()?)
    }

    fn int(&mut self) -> Result<c_int, Error> {
        let number = self.next()?;
        c_int::try_from(number).map_err(|_| Error::internal("an `int` of a datatype"))
    }

    fn counts(&mut self, len: c_int) -> Result<Vec<u64>, Error> {
        (0..len).map(|_| self.count()).collect()
    }

    fn ints(&mut self, len: c_int) -> Result<Vec<c_int>, Error> {
        (0..len).map(|_| self.int()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::mpich;

    const NUMBERS: &ArrayNumbers = &mpich::ABI.array;

    /// Of types of four bytes: blocks as `start+len`, in the order of the type.
    fn check(combiner: Combiner, arguments: (&[c_int], &[i64]), counts: &[i64], expected: &str) {
        let (integers, addresses) = (arguments.0.to_vec(), arguments.1.to_vec());
        let constructor = Constructor { combiner, integers, addresses, counts: counts.to_vec() };
        let inner = [(); 2].map(|()| Datatype::bytes(4).unwrap());
        let selected = constructor.selects(&inner, NUMBERS).unwrap();
        let mut blocks = Vec::new();
        selected.walk(0..selected.size(), &mut |start: i64, len: u64| {
            blocks.push(format!("{start}+{len}"));
        });
        assert_eq!(blocks.join(" "), expected, "{constructor:?}");
    }

    #[test]
    fn arguments_of_both_forms_mean_the_same() {
        let check = |combiner, small: (&[c_int], &[i64]), counts: &[i64], expected| {
            check(combiner, small, &[], expected);
            check(combiner, (&[], &[]), counts, expected);
        };
        check(Combiner::Contiguous, (&[3], &[]), &[3], "0+12");
        check(Combiner::Vector, (&[2, 1, 3], &[]), &[2, 1, 3], "0+4 12+4");
        check(Combiner::Hvector, (&[2, 1], &[10]), &[2, 1, 10], "0+4 10+4");
        check(Combiner::Indexed, (&[2, 1, 2, 3, 7], &[]), &[2, 1, 2, 3, 7], "12+4 28+8");
        check(Combiner::Hindexed, (&[2, 1, 2], &[3, 17]), &[2, 1, 2, 3, 17], "3+4 17+8");
        check(Combiner::IndexedBlock, (&[2, 1, 5, 0], &[]), &[2, 1, 5, 0], "20+4 0+4");
        check(Combiner::HindexedBlock, (&[2, 1], &[5, 20]), &[2, 1, 5, 20], "5+4 20+4");
        check(Combiner::Struct, (&[2, 1, 1], &[0, 9]), &[2, 1, 1, 0, 9], "0+4 9+4");
    }

    #[test]
    fn arrays_are_read_by_the_numbers_of_the_library() {
        let (c, fortran) = (NUMBERS.order_c, NUMBERS.order_fortran);
        check(Combiner::Subarray, (&[2, 2, 4, 2, 1, 0, 2, c], &[]), &[], "8+4 24+4");
        check(Combiner::Subarray, (&[2, 4, 2, 1, 2, 2, 0, fortran], &[]), &[], "8+4 24+4");
        check(Combiner::Subarray, (&[2, c], &[]), &[2, 4, 2, 1, 0, 2], "8+4 24+4");
        let of_rank_1 = [2, 1, 1, 4, NUMBERS.cyclic, NUMBERS.default_argument, 2, c];
        check(Combiner::Darray, (&of_rank_1, &[]), &[], "4+4 12+4");
    }

    #[test]
    fn arguments_that_end_early_are_an_error() {
        let constructor = Constructor {
            combiner: Combiner::Vector,
            integers: vec![2, 1],
            addresses: Vec::new(),
            counts: Vec::new(),
        };
        let inner = [Datatype::bytes(4).unwrap()];
        assert!(constructor.selects(&inner, NUMBERS).is_err());
        assert!(constructor.selects(&[], NUMBERS).is_err());
    }

    #[test]
    fn pairs_may_have_a_gap_before_their_index() {
        let check = |size, bounds, expected: &[(i64, u64)]| {
            let mut blocks = Vec::new();
            let pair = basic(size, bounds).unwrap();
            pair.walk(0..size, &mut |start: i64, len: u64| blocks.push((start, len)));
            assert_eq!(blocks, expected);
        };
        check(12, (0, 12), &[(0, 12)]);
        check(6, (0, 8), &[(0, 2), (4, 4)]); // MPI_SHORT_INT
        assert!(basic(4, (0, -1)).is_err());
        assert!(basic(3, (0, 8)).is_err());
    }
}
