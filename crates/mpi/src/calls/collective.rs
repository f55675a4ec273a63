//! Reads and writes of all processes of a file together.
//!
//! Each writes its own part, without a word to the others: nothing has to be exchanged, so nothing is waited
//! for. (MPI promises no synchronisation in these calls.) A read is the same, except where processes read
//! parts for each other ([`crate::collective_read`]).
//! Source: MPI 4.1, sections 14.4.2 and 14.4.3.

use super::independent::{self, finish};
use crate::{
    collective_read::{self, Ask},
    error::Error,
    exchange::Step,
    memory::{Memory, Region},
    open_files::OpenFile,
    pointers::{OutObject, Status},
    transfer::Moved,
};

pub(crate) fn read_at_all(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(load_at(file, offset, memory), status)
}

pub(crate) fn write_at_all(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    independent::write_at(file, offset, memory, status)
}

pub(crate) fn read_all(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(load(file, memory), status)
}

pub(crate) fn write_all(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    independent::write(file, memory, status)
}

/// Reads at `offset` etypes.
pub(super) fn load_at(file: &OpenFile, offset: i64, memory: Memory) -> Moved {
    let view = file.cursor.view();
    let stream = view.stream(offset);
    let ask = memory.region().and_then(|region| Ok(Ask { view, stream: stream?, region }));
    collective_read::read(file, ask)
}

/// Reads at the individual pointer, which advances by what was read.
pub(super) fn load(file: &OpenFile, memory: Memory) -> Moved {
    let step = file.exchanges.step();
    if step == Step::Alone {
        return independent::load(file, memory);
    }
    let region = memory.region();
    let len = region.as_ref().map_or(0, Region::len);
    // Not locked while others are waited for: another thread may be what they wait for. So the pointer
    // advances by all of it at first.
    let (view, stream) = file.cursor.advance(len);
    let ask = region.map(|region| Ask { view, stream, region });
    let moved = collective_read::read_as(file, step, ask);
    file.cursor.give_back(len - moved.bytes.min(len));
    moved
}
