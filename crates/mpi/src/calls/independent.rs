//! Reads and writes of one process, at an offset or at its own pointer.
//!
//! The rest of the reads and writes are these, with another way to say where, or when they are over.
//! Source: MPI 4.1, sections 14.4.2 and 14.4.3.

use std::sync::Arc;

use crate::{
    error::Error,
    library::requests::set_status,
    memory::Memory,
    open_files::{OpenFile, cursor::advance},
    pointers::{OutObject, Status},
    transfer::{self, Moved},
};

pub(crate) fn read_at(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(load_at(file, offset, memory), status)
}

pub(crate) fn write_at(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(store_at(file, offset, memory), status)
}

pub(crate) fn read(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(load(file, memory), status)
}

pub(crate) fn write(
    file: &OpenFile,
    memory: Memory,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    finish(store(file, memory), status)
}

/// Says how much was moved, also when there was an error.
pub(super) fn finish(moved: Moved, status: OutObject<'_, Status>) -> Result<(), Error> {
    let said = set_status(status, moved.bytes);
    moved.error.map_or(said, Err)
}

/// Reads at `offset` etypes.
pub(super) fn load_at(file: &OpenFile, offset: i64, memory: Memory) -> Moved {
    let view = file.cursor.view();
    Moved::of(|| {
        let mut region = memory.region()?;
        Ok(transfer::read(file, &view, view.stream(offset)?, &mut region))
    })
}

/// Writes at `offset` etypes.
pub(super) fn store_at(file: &OpenFile, offset: i64, memory: Memory) -> Moved {
    let view = file.cursor.view();
    Moved::of(|| {
        let region = memory.region()?;
        require_etypes(region.len(), view.etype_size)?;
        Ok(transfer::write(file, &view, view.stream(offset)?, &region))
    })
}

/// Reads at the individual pointer, which advances by what was read.
pub(super) fn load(file: &OpenFile, memory: Memory) -> Moved {
    Moved::of(|| {
        let mut region = memory.region()?;
        // Locked meanwhile: nobody knows before where the pointer will be.
        Ok(file.cursor.locked(|view, position| {
            let moved = transfer::read(file, view, *position, &mut region);
            *position += moved.bytes;
            moved
        }))
    })
}

/// Writes at the individual pointer, which advances by what is to be written.
pub(super) fn store(file: &OpenFile, memory: Memory) -> Moved {
    Moved::of(|| {
        let region = memory.region()?;
        let (view, stream) = file.cursor.locked(|view, position| {
            require_etypes(region.len(), view.etype_size)?;
            Ok::<_, Error>((Arc::clone(view), advance(position, region.len())))
        })?;
        Ok(transfer::write(file, &view, stream, &region))
    })
}

/// Only whole etypes can be written.
pub(super) fn require_etypes(bytes: u64, etype_size: u64) -> Result<(), Error> {
    match bytes % etype_size {
        0 => Ok(()),
        _ => Err(Error::usual(
            crate::abi::ErrorClass::Io,
            format!("{bytes} bytes are no whole number of etypes of {etype_size} bytes"),
        )),
    }
}
