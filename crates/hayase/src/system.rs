//! What this machine is asked and given to do by means of its kernel and its own programs.
//!
//! Rooms: [`mounts`] (what is mounted where), [`holders`] (which processes keep a mount busy), [`open_files`] (which have
//! files of it open), [`namespaces`] and [`network`] (what makes a simulated node), [`storage_kind`] (storage that is
//! not on a disk), [`discard`] (not writing down what is removed), [`loop_devices`], [`program`] (finding `ip` and its like).

pub(crate) mod discard;
pub(crate) mod holders;
pub(crate) mod loop_devices;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod network;
pub(crate) mod open_files;
pub(crate) mod program;
pub(crate) mod storage_kind;
