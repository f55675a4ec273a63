//! What was written into the cache area comes to the tier, behind the job's back.
//!
//! Rooms: [`policy`] says what is flushed next (pure); [`worker`] does it; [`source`] reads the bytes of any layout,
//! [`gather`] makes them the tier's version; [`pause`] says how long it may sleep; [`asked`] does it now for somebody who waits; [`removal`] takes away what the job has removed; [`space`] gives room back and slows down who fills it,
//! [`spread_copies`] that of files on several nodes;
//! [`deadline`] says what will not be durable in time; [`resume`] does the same work for a job whose
//! servers are gone; [`leftovers`] removes what a killed server left unfinished in the tier; [`verify`] reads back what came to the tier.
//!
//! A flush reads a part that nobody writes, and what it read is worth something only if nothing of
//! the file changed until the end: its bytes, its name, its openers. Then the tier's version is
//! replaced in one step, if it is the one that the ledger knows; else both versions are kept.
//!
//! Source: paper 003 (LLIO), asynchronous flush; `docs/guide/cache.md`, "What is flushed, and when".

mod asked;
pub(crate) mod deadline;
pub(crate) mod gather;
pub(crate) mod leftovers;
mod pause;
pub(crate) mod policy;
pub(crate) mod removal;
pub(crate) mod resume;
pub(crate) mod source;
pub(crate) mod space;
mod spread_copies;
mod traffic;
pub(crate) mod verify;
mod worker;

pub(crate) use self::traffic::Traffic;
