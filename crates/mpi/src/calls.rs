//! What each call does on a container.
//!
//! - `opening`: open, close, delete, and the end of the program.
//! - `admin`: size, sync, atomicity, access mode. `views`: set_view, get_view, extents of types.
//! - `independent`, `collective`, `nonblocking`, `split`, `shared`: reads and writes.
//! - `seek`: the individual pointer.
//!
//! Functions here are called from the table in [`crate::exports`], with the arguments of the call. Each
//! moves what it can, says in the status how much that was, and gives an error for the file's handler.

pub(crate) mod admin;
pub(crate) mod collective;
pub(crate) mod independent;
pub(crate) mod nonblocking;
pub(crate) mod opening;
pub(crate) mod seek;
pub(crate) mod shared;
pub(crate) mod split;
pub(crate) mod views;
