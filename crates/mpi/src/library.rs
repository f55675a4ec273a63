//! The MPI library as safe calls: communication, requests, hints.
//!
//! - `functions`: the functions that are called, with their types.
//! - `communicator`: few collective calls among the processes of one open file.
//! - `copies`: of the program's communicators, kept for the next file.
//! - `meeting`: what opens, closes and syncs tell each other.
//! - `requests`: requests that are complete when they are made; statuses.
//! - `files`: its own `MPI_File_` calls, on stubs.
//! - `waiting`: collectives that leave the processor to those they wait for.
//! - `hints`: the values of an `MPI_Info`.
//!
//! Not here: the program's `MPI_File_` calls that are passed on (`crate::exports`), datatypes ([`crate::datatype`]).
//! Every function here asks the library for what it needs; what one lacks is an error, not a crash.

use std::ffi::c_int;

use crate::{
    abi::{Abi, Handle, Objects},
    error::Error,
    real,
};

pub(crate) mod communicator;
pub(crate) mod copies;
pub(crate) mod files;
pub(crate) mod functions;
pub(crate) mod hints;
pub(crate) mod meeting;
pub(crate) mod requests;
mod waiting;

pub(crate) use communicator::Communicator;

/// The table of the library; an error where it is none that we know.
pub(crate) fn abi() -> Result<&'static Abi, Error> {
    real::found().abi.ok_or(Error::internal("an unknown MPI library"))
}

/// Its predefined objects.
pub(crate) fn objects() -> Result<&'static Objects<Handle>, Error> {
    real::found().objects.as_ref().ok_or(Error::internal("an unknown MPI library"))
}

/// What a call of the library answered.
pub(crate) fn done(answer: Option<c_int>, call: &'static str) -> Result<(), Error> {
    match answer {
        Some(0) => Ok(()),
        Some(code) => Err(Error::library(call, code)),
        None => Err(Error::missing(call)),
    }
}
