//! The MPI library as safe calls: communication, types, requests, hints.
//!
//! - `functions`: the originals that are called and not taken, with their types.
//! - `communicator`: few collective calls among the processes of one open file.
//! - `copies`: of the program's communicators, kept for the next file.
//! - `meeting`: what opens, closes and syncs tell each other.
//! - `types`: what is asked about datatypes; what is remembered with them.
//! - `requests`: requests that are complete when they are made; statuses.
//! - `waiting`: collectives that leave the processor to those they wait for.
//! - `hints`: the values of an `MPI_Info`.
//!
//! Not here: `MPI_File_` calls ([`crate::exports::original`]), what types select ([`crate::datatype`]).
//! Every function here asks the library for what it needs; what one lacks is an error, not a crash.

use std::ffi::c_int;

use crate::{
    abi::{Abi, Handle, Objects},
    error::Error,
    real,
};

pub(crate) mod communicator;
pub(crate) mod copies;
mod functions;
pub(crate) mod hints;
pub(crate) mod meeting;
pub(crate) mod requests;
pub(crate) mod types;
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
fn done(answer: Option<c_int>, call: &'static str) -> Result<(), Error> {
    match answer {
        Some(0) => Ok(()),
        Some(code) => Err(Error::library(call, code)),
        None => Err(Error::missing(call)),
    }
}
