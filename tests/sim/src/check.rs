//! Checkers: what must be true of what the clients saw.

pub(crate) mod counter;
pub(crate) mod linear;
pub(crate) mod names;
pub(crate) mod register;
pub(crate) mod small_file;
pub(crate) mod storage;
pub(crate) mod synced;
