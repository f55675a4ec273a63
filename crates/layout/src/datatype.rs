//! Datatypes: the typemap of an MPI datatype as nested repetitions of bytes, never as a list of blocks.
//!
//! Here: building types as MPI's constructors do, walking the bytes of a window in the order of the typemap.
//! Not here: MPI handles (`hayase_mpi::datatype`), what ascends and can be a view ([`tile`]), arrays
//! and their distributions ([`array`]).
//! Source: MPI 4.1, chapter 5 (datatypes); Thakur, Gropp, Lusk 1999 for what flattening costs.
//!
//! Unlike a [`Run`](crate::Run), a type may begin before its origin, go backwards and select a byte
//! twice: memory types do. So a walk tells places relative to the origin, as signed numbers.

use std::{ops::Range, sync::Arc};

pub mod array;
pub mod order;
pub mod tile;

/// A typemap: which bytes in which order, and how far one repetition lies behind the other.
///
/// Invariant: no byte lies farther from the origin than `i64` can say, so that a walk can not overflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datatype {
    /// Nothing when no byte is selected.
    body: Option<Placed>,
    lb: i64,
    extent: i64,
}

/// A shape somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    offset: i64,
    /// Bytes of the sequence before this shape.
    first: u64,
    shape: Shape,
}

/// Bytes relative to an origin, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    kind: Kind,
    /// How many bytes; at least one.
    len: u64,
    /// Where the lowest of them lies, and behind the highest.
    low: i64,
    high: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// `len` bytes from the origin on.
    Block,
    /// At least twice.
    Repeated { count: u64, stride: i64, inner: Arc<Shape> },
    /// At least two.
    Sequence(Arc<[Placed]>),
}

/// A type that reaches farther than addresses do, or arguments that MPI forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatatypeError {
    /// Some byte would be farther away than a signed 64-bit number says.
    #[error("a datatype reaches farther than addresses do")]
    TooFar,
    /// A sub-array that is not inside its array, or a distribution that leaves elements out.
    #[error("a sub-array or distribution does not fit its array")]
    Array,
}

/// What a walk meets.
pub trait Visit {
    /// `count` blocks (at least one) of `len` bytes (at least one), the first at `start`, each `stride`
    /// behind the one before.
    fn blocks(&mut self, start: i64, len: u64, count: u64, stride: i64);
}

impl<F: FnMut(i64, u64)> Visit for F {
    fn blocks(&mut self, start: i64, len: u64, count: u64, stride: i64) {
        for nth in 0..count as i64 {
            self(start + nth * stride, len);
        }
    }
}

impl Datatype {
    /// `len` bytes behind each other.
    ///
    /// Fails when there are more than addresses.
    pub fn bytes(len: u64) -> Result<Self, DatatypeError> {
        let extent = signed(len)?;
        let shape = Shape { kind: Kind::Block, len, low: 0, high: extent };
        let body = (len > 0).then_some(Placed { offset: 0, first: 0, shape });
        Ok(Self { body, lb: 0, extent })
    }

    /// `count` times, each an extent behind the one before (MPI_Type_contiguous).
    pub fn contiguous(&self, count: u64) -> Result<Self, DatatypeError> {
        self.repeated(count, self.extent)
    }

    /// `count` times, each `stride` bytes behind the one before.
    pub fn repeated(&self, count: u64, stride: i64) -> Result<Self, DatatypeError> {
        let Some((lb, ub)) = self.repeated_bounds(count, stride)? else { return Self::bytes(0) };
        let body = match &self.body {
            None => None,
            Some(body) => {
                let shape = body.shape.repeated(count, stride)?;
                Some(Placed { offset: body.offset, first: 0, shape }.checked()?)
            }
        };
        Ok(Self { body, lb, extent: ub.checked_sub(lb).ok_or(DatatypeError::TooFar)? })
    }

    /// `count` groups of `block` repetitions, the groups `stride` bytes apart (MPI_Type_create_hvector).
    pub fn vector(&self, count: u64, block: u64, stride: i64) -> Result<Self, DatatypeError> {
        self.contiguous(block)?.repeated(count, stride)
    }

    /// Types behind each other, each at a displacement in bytes and repeated there (MPI_Type_create_struct,
    /// and all that are a special case of it).
    ///
    /// O(1) for each; neighbours that touch or repeat become one.
    pub fn sequence<'a>(
        members: impl IntoIterator<Item = (i64, u64, &'a Self)>,
    ) -> Result<Self, DatatypeError> {
        let mut bounds: Option<(i64, i64)> = None;
        let mut sequence = Sequence::default();
        for (displacement, count, member) in members {
            let Some((lb, ub)) = member.repeated_bounds(count, member.extent)? else { continue };
            let (lb, ub) = (add(displacement, lb)?, add(displacement, ub)?);
            let joined = bounds.map_or((lb, ub), |(low, high)| (low.min(lb), high.max(ub)));
            bounds = Some(joined);
            if let Some(body) = &member.body {
                let offset = add(displacement, body.offset)?;
                sequence.push(offset, body.shape.repeated(count, member.extent)?)?;
            }
        }
        let Some((lb, ub)) = bounds else { return Self::bytes(0) };
        let extent = ub.checked_sub(lb).ok_or(DatatypeError::TooFar)?;
        Ok(Self { body: sequence.finish()?, lb, extent })
    }

    /// The same bytes with other bounds (MPI_Type_create_resized).
    #[must_use]
    pub fn resized(self, lb: i64, extent: i64) -> Self {
        Self { lb, extent, ..self }
    }

    /// Number of bytes selected.
    pub fn size(&self) -> u64 {
        self.body.as_ref().map_or(0, |body| body.shape.len)
    }

    /// Where the next repetition's origin would lie.
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// Lower bound, as MPI_Type_get_extent says it.
    pub fn lower_bound(&self) -> i64 {
        self.lb
    }

    /// Where the lowest byte lies, and behind the highest; nothing when there is none.
    pub fn true_bounds(&self) -> Option<Range<i64>> {
        let body = self.body.as_ref()?;
        Some(body.offset + body.shape.low..body.offset + body.shape.high)
    }

    /// Where the bytes begin when they lie behind each other, in order and with no gap between.
    pub fn dense_start(&self) -> Option<i64> {
        let body = self.body.as_ref().filter(|body| body.shape.kind == Kind::Block)?;
        Some(body.offset)
    }

    /// Visits the bytes `window` of the sequence, in order, as blocks as long as the structure tells.
    ///
    /// O(depth) to start, O(1) for each regular group of blocks. Bytes behind the end are left out.
    pub fn walk(&self, window: Range<u64>, visit: &mut impl Visit) {
        if let Some(body) = &self.body {
            let end = window.end.min(body.shape.len);
            if window.start < end {
                body.shape.walk(body.offset, window.start, end, visit);
            }
        }
    }

    /// Bounds of `count` repetitions; `None` when there are none.
    fn repeated_bounds(
        &self,
        count: u64,
        stride: i64,
    ) -> Result<Option<(i64, i64)>, DatatypeError> {
        let Some(last) = count.checked_sub(1) else { return Ok(None) };
        let last = mul(last, stride)?;
        let ub = add(self.lb, self.extent)?;
        Ok(Some((add(self.lb, last.min(0))?, add(ub, last.max(0))?)))
    }
}

impl Placed {
    fn checked(self) -> Result<Self, DatatypeError> {
        add(self.offset, self.shape.low)?;
        add(self.offset, self.shape.high)?;
        Ok(self)
    }
}

impl Shape {
    /// `count` is at least one.
    fn repeated(&self, count: u64, stride: i64) -> Result<Self, DatatypeError> {
        if count == 1 {
            return Ok(self.clone());
        }
        let len = self.len.checked_mul(count).ok_or(DatatypeError::TooFar)?;
        signed(len)?;
        let last = mul(count - 1, stride)?;
        let (low, high) = (add(self.low, last.min(0))?, add(self.high, last.max(0))?);
        let kind = match &self.kind {
            Kind::Block if stride == self.high => Kind::Block,
            // One level more of the same is no level.
            Kind::Repeated { count: own, stride: step, inner }
                if mul(*own, *step).is_ok_and(|span| span == stride) =>
            {
                Kind::Repeated { count: own * count, stride: *step, inner: Arc::clone(inner) }
            }
            _ => Kind::Repeated { count, stride, inner: Arc::new(self.clone()) },
        };
        Ok(Self { kind, len, low, high })
    }

    /// `from < to <= len`.
    fn walk(&self, origin: i64, from: u64, to: u64, visit: &mut impl Visit) {
        match &self.kind {
            Kind::Block => visit.blocks(origin + from as i64, to - from, 1, 0),
            Kind::Repeated { stride, inner, .. } => {
                inner.walk_repeated(origin, *stride, from, to, visit);
            }
            Kind::Sequence(members) => {
                let start = members.partition_point(|member| member.first <= from) - 1; // first: 0
                for member in &members[start..] {
                    if member.first >= to {
                        break;
                    }
                    let end = (to - member.first).min(member.shape.len);
                    let begin = from.saturating_sub(member.first);
                    member.shape.walk(origin + member.offset, begin, end, visit);
                }
            }
        }
    }

    fn walk_repeated(&self, origin: i64, stride: i64, from: u64, to: u64, visit: &mut impl Visit) {
        let at = |nth: u64| origin + nth as i64 * stride;
        let (mut nth, head) = (from / self.len, from % self.len);
        let (end, tail) = (to / self.len, to % self.len);
        if nth == end {
            return self.walk(at(nth), head, tail, visit);
        }
        if head > 0 {
            self.walk(at(nth), head, self.len, visit);
            nth += 1;
        }
        if self.kind == Kind::Block && nth < end {
            visit.blocks(at(nth), self.len, end - nth, stride);
        } else {
            (nth..end).for_each(|nth| self.walk(at(nth), 0, self.len, visit));
        }
        if tail > 0 {
            self.walk(at(end), 0, tail, visit);
        }
    }
}

/// Members behind each other; those that continue a repetition are counted, not kept.
#[derive(Default)]
struct Sequence {
    members: Vec<(i64, Shape)>,
}

impl Sequence {
    fn push(&mut self, offset: i64, shape: Shape) -> Result<(), DatatypeError> {
        add(offset, shape.low)?;
        add(offset, shape.high)?;
        let Some((last_offset, last)) = self.members.last_mut() else {
            self.members.push((offset, shape));
            return Ok(());
        };
        let distance = offset.checked_sub(*last_offset).ok_or(DatatypeError::TooFar)?;
        if last.kind == Kind::Block && shape.kind == Kind::Block && distance == last.high {
            let len = last.len + shape.len;
            *last = Shape { kind: Kind::Block, len, low: 0, high: signed(len)? };
            return Ok(());
        }
        if let Kind::Repeated { count, stride, inner } = &last.kind
            && **inner == shape
            && mul(*count, *stride)? == distance
        {
            let longer = inner.repeated(count + 1, *stride)?;
            *last = longer;
            return Ok(());
        }
        if *last == shape {
            let pair = last.repeated(2, distance)?;
            *last = pair;
            return Ok(());
        }
        self.members.push((offset, shape));
        Ok(())
    }

    fn finish(mut self) -> Result<Option<Placed>, DatatypeError> {
        if self.members.len() < 2 {
            let only = self.members.pop();
            return Ok(only.map(|(offset, shape)| Placed { offset, first: 0, shape }));
        }
        let low = self.members.iter().map(|(offset, shape)| offset + shape.low).min();
        let high = self.members.iter().map(|(offset, shape)| offset + shape.high).max();
        let mut len = 0_u64;
        let mut members = Vec::with_capacity(self.members.len());
        for (offset, shape) in self.members {
            let first = len;
            len = len.checked_add(shape.len).ok_or(DatatypeError::TooFar)?;
            members.push(Placed { offset, first, shape });
        }
        signed(len)?;
        let kind = Kind::Sequence(members.into());
        let shape = Shape { kind, len, low: low.unwrap_or(0), high: high.unwrap_or(0) };
        Ok(Some(Placed { offset: 0, first: 0, shape }))
    }
}

fn signed(bytes: u64) -> Result<i64, DatatypeError> {
    i64::try_from(bytes).map_err(|_| DatatypeError::TooFar)
}

fn add(a: i64, b: i64) -> Result<i64, DatatypeError> {
    a.checked_add(b).ok_or(DatatypeError::TooFar)
}

fn mul(count: u64, stride: i64) -> Result<i64, DatatypeError> {
    signed(count)?.checked_mul(stride).ok_or(DatatypeError::TooFar)
}

#[cfg(test)]
mod tests;
