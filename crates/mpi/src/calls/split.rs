//! Split collective calls: the first half does the work, the second one tells the status.
//!
//! At most one is begun on a file at a time.
//! Source: MPI 4.1, section 14.4.6.

use super::{collective, independent, shared};
use crate::{
    abi::ErrorClass,
    error::Error,
    library::requests::set_status,
    memory::Memory,
    open_files::{OpenFile, Split},
    pointers::{Address, OutObject, Status},
    transfer::Moved,
};

pub(crate) fn read_at_all_begin(file: &OpenFile, offset: i64, memory: Memory) -> Result<(), Error> {
    begin(file, Split::ReadAtAll, || collective::load_at(file, offset, memory))
}

pub(crate) fn write_at_all_begin(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
) -> Result<(), Error> {
    begin(file, Split::WriteAtAll, || independent::store_at(file, offset, memory))
}

pub(crate) fn read_all_begin(file: &OpenFile, memory: Memory) -> Result<(), Error> {
    begin(file, Split::ReadAll, || collective::load(file, memory))
}

pub(crate) fn write_all_begin(file: &OpenFile, memory: Memory) -> Result<(), Error> {
    begin(file, Split::WriteAll, || independent::store(file, memory))
}

pub(crate) fn read_ordered_begin(file: &OpenFile, memory: Memory) -> Result<(), Error> {
    begin(file, Split::ReadOrdered, || shared::load_ordered(file, memory))
}

pub(crate) fn write_ordered_begin(file: &OpenFile, memory: Memory) -> Result<(), Error> {
    begin(file, Split::WriteOrdered, || shared::store_ordered(file, memory))
}

/// The second half; the buffer is that of the first, which has let go of it.
pub(crate) fn end(
    file: &OpenFile,
    split: Split,
    _buffer: Address,
    status: OutObject<'_, Status>,
) -> Result<(), Error> {
    match file.split.end(split) {
        Some(bytes) => set_status(status, bytes),
        None => Err(Error::usual(ErrorClass::Io, format!("{split:?} has not begun"))),
    }
}

fn begin(file: &OpenFile, split: Split, run: impl FnOnce() -> Moved) -> Result<(), Error> {
    if let Some(begun) = file.split.begun() {
        let what = format!("{split:?} begins while {begun:?} has not ended");
        return Err(Error::usual(ErrorClass::Io, what));
    }
    let moved = run();
    match moved.error {
        None => {
            file.split.begin(split, moved.bytes);
            Ok(())
        }
        Some(error) => Err(error),
    }
}
