//! Nonblocking reads and writes, collective ones too: done at once, with a request that is complete.
//!
//! The page cache takes what is written, so there is little to wait for; and a thread of ours could not
//! complete a request unless the program asked for MPI_THREAD_MULTIPLE.
//! Source: MPI 4.1, section 14.4.5; [`crate::library::requests`].

use super::{independent, shared};
use crate::{
    error::Error,
    library::requests::complete,
    memory::Memory,
    open_files::OpenFile,
    pointers::{OutObject, Request},
    transfer::Moved,
};

pub(crate) fn iread_at(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    request: OutObject<'_, Request>,
) -> Result<(), Error> {
    finish(independent::load_at(file, offset, memory), request)
}

pub(crate) fn iwrite_at(
    file: &OpenFile,
    offset: i64,
    memory: Memory,
    request: OutObject<'_, Request>,
) -> Result<(), Error> {
    finish(independent::store_at(file, offset, memory), request)
}

pub(crate) fn iread(
    file: &OpenFile,
    memory: Memory,
    request: OutObject<'_, Request>,
) -> Result<(), Error> {
    finish(independent::load(file, memory), request)
}

pub(crate) fn iwrite(
    file: &OpenFile,
    memory: Memory,
    request: OutObject<'_, Request>,
) -> Result<(), Error> {
    finish(independent::store(file, memory), request)
}

pub(crate) fn iread_shared(
    file: &OpenFile,
    memory: Memory,
    request: OutObject<'_, Request>,
) -> Result<(), Error> {
    finish(shared::load(file, memory), request)
}

pub(crate) fn iwrite_shared(
    file: &OpenFile,
    memory: Memory,
    request: OutObject<'_, Request>,
) -> Result<(), Error> {
    finish(shared::store(file, memory), request)
}

/// An error is the call's own: there is no request then.
fn finish(moved: Moved, request: OutObject<'_, Request>) -> Result<(), Error> {
    match moved.error {
        Some(error) => Err(error),
        None => complete(request, moved.bytes),
    }
}
