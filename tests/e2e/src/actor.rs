//! The actor: makes POSIX calls on its node and tells what came of them.
//!
//! One JSON [`Request`] per line on stdin, one JSON [`Reply`] per line on stdout, in the order in
//! which they finish: each request runs on a thread of its own, so that a call that blocks (or
//! hangs) leaves the others alone. Everything that must run at full speed is a loop inside the
//! actor ([`loops`]), never a loop of requests.

mod buffer;
mod calls;
pub mod command;
pub mod data;
pub mod errno;
pub mod loops;
mod mapping;
mod serve;
mod table;

pub use command::{
    Answer, Attr, Command, DirEntry, LockAction, LockKind, MapKind, Output, Reply, Request, Space,
    Whence,
};
pub use data::Data;
pub use loops::{Loop, Report, Until};
pub use serve::{serve_lines, serve_once};
