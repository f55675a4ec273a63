//! Reads and writes at the shared pointer: whoever comes first, or in the order of ranks.
//!
//! Source: MPI 4.1, section 14.4.4. All processes have the same view then, so etypes count alike.

use super::independent::{finish, require_etypes};
use crate::{
    collective_read::{self, Ask},
    error::Error,
    memory::{Memory, Region},
    open_files::OpenFile,
    pointers::{Out, OutObject, Status},
    transfer::{self, Moved},
};

pub(crate) fn read_shared(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(load(file, memory), status)
}

pub(crate) fn write_shared(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(store(file, memory), status)
}

pub(crate) fn read_ordered(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(load_ordered(file, memory), status)
}

pub(crate) fn write_ordered(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(store_ordered(file, memory), status)
}

/// Collective: all say the same offset.
pub(crate) fn seek_shared(
    file: &OpenFile,
    offset: i64,
    whence: std::ffi::c_int,
) -> Result<(), Error> {
    // Nobody may still move it when it is set, and nobody move it before.
    file.comm.barrier()?;
    let target = file
        .shared
        .get()
        .and_then(|now| super::seek::target(file, &file.cursor.view(), offset, whence, now));
    let answer = match (&target, file.comm.rank()) {
        (Ok(target), 0) => file.shared.set(*target),
        _ => Ok(()),
    };
    file.comm.barrier()?;
    target?;
    answer
}

pub(crate) fn get_position_shared(file: &OpenFile, offset: Out<'_, i64>) -> Result<(), Error> {
    offset.set(file.shared.get()? as i64);
    Ok(())
}

pub(super) fn load(file: &OpenFile, memory: Memory) -> Moved {
    at_next(file, memory, read_etypes)
}

pub(super) fn store(file: &OpenFile, memory: Memory) -> Moved {
    at_next(file, memory, write_etypes)
}

pub(super) fn load_ordered(file: &OpenFile, memory: Memory) -> Moved {
    Moved::of(|| {
        let (etypes, region) = in_order(file, memory)?;
        let view = file.cursor.view();
        let stream = etypes.saturating_mul(view.etype_size);
        Ok(collective_read::read(file, region.map(|region| Ask { view, stream, region })))
    })
}

pub(super) fn store_ordered(file: &OpenFile, memory: Memory) -> Moved {
    Moved::of(|| {
        let (etypes, region) = in_order(file, memory)?;
        Ok(write_etypes(file, etypes, &mut region?))
    })
}

type Transfer = fn(&OpenFile, u64, &mut Region) -> Moved;

fn read_etypes(file: &OpenFile, etypes: u64, region: &mut Region) -> Moved {
    let view = file.cursor.view();
    transfer::read(file, &view, etypes.saturating_mul(view.etype_size), region)
}

fn write_etypes(file: &OpenFile, etypes: u64, region: &mut Region) -> Moved {
    let view = file.cursor.view();
    if let Err(error) = require_etypes(region.len(), view.etype_size) {
        return error.into();
    }
    transfer::write(file, &view, etypes.saturating_mul(view.etype_size), region)
}

/// The pointer advances by what is to be moved, before anything is.
fn at_next(file: &OpenFile, memory: Memory, transfer: Transfer) -> Moved {
    Moved::of(|| {
        let mut region = memory.region()?;
        let etypes = region.len() / file.cursor.view().etype_size;
        let start = file.shared.fetch_add(etypes)?;
        Ok(transfer(file, start, &mut region))
    })
}

/// Collective: where this process begins, in etypes, which is where the rank before it ends; and its memory.
/// A process whose arguments are wrong takes part with nothing. The outer error is one of all.
fn in_order(file: &OpenFile, memory: Memory) -> Result<(u64, Result<Region, Error>), Error> {
    let region = memory.region();
    let etypes = region.as_ref().map_or(0, |region| region.len() / file.cursor.view().etype_size);
    let all = file.comm.gather(etypes)?;
    let start = match file.comm.rank() {
        0 => file.shared.fetch_add(all.iter().sum()),
        _ => Ok(0),
    };
    // An error of rank 0 is one of all.
    let is_known = u64::from(start.is_ok());
    let [is_known, start] = file.comm.tell([is_known, *start.as_ref().unwrap_or(&0)])?;
    if is_known == 0 {
        return Err(Error::unsupported("rank 0 could not move the shared pointer"));
    }
    let before: u64 = all[..file.comm.rank() as usize].iter().sum();
    Ok((start + before, region))
}
