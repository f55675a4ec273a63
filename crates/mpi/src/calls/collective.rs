//! Reads and writes of all processes of a file together.
//!
//! Each writes its own part and reads what is published, without a word to the others: nothing has to be
//! exchanged, so nothing is waited for. (MPI promises no synchronisation in these calls.)
//! Source: MPI 4.1, sections 14.4.2 and 14.4.3.

use super::independent;
use crate::{error::Error, memory::Memory, open_files::OpenFile, pointers::Address};

pub(crate) fn read_at_all(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    status: Address,
) -> Result<(), Error> {
    independent::read_at(file, offset, memory, status)
}

pub(crate) fn write_at_all(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    status: Address,
) -> Result<(), Error> {
    independent::write_at(file, offset, memory, status)
}

pub(crate) fn read_all(file: &OpenFile, memory: Memory, status: Address) -> Result<(), Error> {
    independent::read(file, memory, status)
}

pub(crate) fn write_all(file: &OpenFile, memory: Memory, status: Address) -> Result<(), Error> {
    independent::write(file, memory, status)
}
