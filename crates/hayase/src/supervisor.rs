//! The process that keeps one node of a job: `hayase node`, started by `up` and `run`.
//!
//! It makes the node (namespaces, network, areas), starts the two daemons, and takes all of it down
//! again: on request, on a signal, or when its lifeline breaks. One thread, one wait for everything
//! ([`events`]), no polling. Its death by force ends the daemons (parent-death signal) and, with the
//! last process inside, the namespaces with their mounts.
//!
//! Rooms: [`keeper`] (what is up, in which order), [`teardown`] (the way back), [`fate`] (of the bytes), [`areas`] (the
//! node's areas as mounts), [`apart`] (away from the programs),
//! [`daemon`] (one child), [`restarts`] (when one that ended is started again),
//! [`programs`] (programs of the job on this node), [`orphans`] (what a killed one leaves running), [`control`] (requests of commands), [`said`]
//! (what it tells the launcher).

pub(crate) mod apart;
mod areas;
pub(crate) mod control;
pub(crate) mod daemon;
mod drain;
mod events;
mod fate;
mod keeper;
pub(crate) mod orphans;
mod programs;
mod restarts;
pub(crate) mod said;
mod teardown;

pub(crate) use keeper::run;
