//! Arrays: a rectangle of one, and the share of one process of a distributed one.
//!
//! Here: MPI_Type_create_subarray and MPI_Type_create_darray. Not here: any other constructor.
//! Source: MPI 4.1, sections 5.1.3 and 5.1.4.

use super::{Datatype, DatatypeError};

/// Which index moves fastest through the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last.
    C,
    /// The first.
    Fortran,
}

/// A rectangle of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Elements of the whole array.
    pub whole: u64,
    /// Elements that are selected.
    pub part: u64,
    /// The first of them.
    pub start: u64,
}

/// How one dimension is dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All of it to each process.
    None,
    /// One block each; of the given length, or as even as possible.
    Block(Option<u64>),
    /// Blocks of the given length round robin; of one element without one.
    Cyclic(Option<u64>),
}

/// One dimension of a distributed array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealt {
    /// Elements of the whole array.
    pub whole: u64,
    /// How they are dealt out.
    pub distribution: Distribution,
    /// Over how many processes.
    pub processes: u64,
}

impl Datatype {
    /// A rectangle of an array of this type. The bounds are those of the whole array.
    pub fn subarray(&self, sides: &[Side], order: Order) -> Result<Self, DatatypeError> {
        if sides.iter().any(|side| side.start.checked_add(side.part) > Some(side.whole)) {
            return Err(DatatypeError::Array);
        }
        self.of_array(sides.iter().copied(), order, |element, side, stride| {
            let offset = shift(side.start, stride)?;
            Datatype::sequence([(offset, 1, &element.repeated(side.part, stride)?)])
        })
    }

    /// What process `rank` has of an array of this type. The processes are numbered row by row.
    pub fn distributed(
        &self,
        rank: u64,
        dimensions: &[Dealt],
        order: Order,
    ) -> Result<Self, DatatypeError> {
        let mut rest = rank;
        let mut places = vec![0; dimensions.len()];
        for (place, dimension) in places.iter_mut().zip(dimensions).rev() {
            let processes = Some(dimension.processes).filter(|count| *count > 0);
            let processes = processes.ok_or(DatatypeError::Array)?;
            (*place, rest) = (rest % processes, rest / processes);
        }
        let dimensions = dimensions.iter().copied().zip(places);
        self.of_array(dimensions, order, |element, (dealt, place), stride| {
            dealt.share(element, place, stride)
        })
    }

    /// From the fastest dimension to the slowest, each told how far its elements are apart.
    fn of_array<D: Dimension>(
        &self,
        dimensions: impl DoubleEndedIterator<Item = D>,
        order: Order,
        select: impl Fn(&Self, D, i64) -> Result<Self, DatatypeError>,
    ) -> Result<Self, DatatypeError> {
        let dimensions: Vec<D> = match order {
            Order::C => dimensions.rev().collect(),
            Order::Fortran => dimensions.collect(),
        };
        let mut selected = self.clone();
        let mut stride = self.extent();
        for dimension in dimensions {
            let whole = dimension.whole();
            // The strides are told: bounds on the way would only grow.
            selected = select(&selected.resized(0, 0), dimension, stride)?;
            stride = shift(whole, stride)?;
        }
        Ok(selected.resized(0, stride))
    }
}

/// A dimension of a whole array.
trait Dimension {
    fn whole(&self) -> u64;
}

impl Dimension for Side {
    fn whole(&self) -> u64 {
        self.whole
    }
}

impl Dimension for (Dealt, u64) {
    fn whole(&self) -> u64 {
        self.0.whole
    }
}

impl Dealt {
    /// The elements of process `place` of this dimension.
    fn share(self, element: &Datatype, place: u64, stride: i64) -> Result<Datatype, DatatypeError> {
        let (block, is_cyclic) = match self.distribution {
            Distribution::None if self.processes == 1 => (self.whole, false),
            Distribution::None => return Err(DatatypeError::Array),
            Distribution::Block(block) => {
                (block.unwrap_or(self.whole.div_ceil(self.processes)), false)
            }
            Distribution::Cyclic(block) => (block.unwrap_or(1), true),
        };
        let start = place.checked_mul(block).ok_or(DatatypeError::TooFar)?;
        let rest = self.whole.saturating_sub(start);
        if rest == 0 || block == 0 {
            return if rest > 0 { Err(DatatypeError::Array) } else { Datatype::bytes(0) };
        }
        let round = block.checked_mul(self.processes).ok_or(DatatypeError::TooFar)?;
        if !is_cyclic && round < self.whole {
            return Err(DatatypeError::Array);
        }
        // Whole blocks, and perhaps a shorter one behind them.
        let (rounds, behind) = match is_cyclic {
            true => (rest / round, rest % round),
            false => (0, rest),
        };
        let whole_blocks = rounds + u64::from(behind >= block);
        let short = if behind >= block { 0 } else { behind };
        let step = shift(round, stride)?;
        let blocks = element.repeated(block, stride)?.resized(0, step);
        let last = element.repeated(short, stride)?;
        let at = shift(start, stride)?;
        let behind_blocks = at.checked_add(shift(whole_blocks, step)?);
        let behind_blocks = behind_blocks.ok_or(DatatypeError::TooFar)?;
        Datatype::sequence([(at, whole_blocks, &blocks), (behind_blocks, 1, &last)])
    }
}

fn shift(count: u64, stride: i64) -> Result<i64, DatatypeError> {
    super::mul(count, stride)
}
