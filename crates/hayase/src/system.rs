//! What this machine is asked and given to do by means of its kernel and its own programs.
//!
//! Rooms: [`mounts`] (what is mounted where), [`holders`] (which processes keep a mount busy), [`open_files`] (which have
//! files of it open), [`namespaces`] (what makes a simulated node), [`program`] (finding `ip` and its like).

pub(crate) mod holders;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod open_files;
pub(crate) mod program;
