//! The daemon of one node: names, bytes, opens.
//!
//! One thread runs everything that decides; threads of a pool wait for disks. Rooms:
//! - [`home`]: who has an inode open and who may cache it, as a pure state machine; `homes` keeps
//!   them and carries out what they decide.
//! - `request`: what each request between servers is, one row for each: how long it may take, whether it may be
//!   repeated, who may ask.
//! - `peer_service`: what is done for another server (or for this one in another role): shard of
//!   names, home of inodes and directories, server of parts.
//! - `node_service`: what is done for a process of this node: asks the roles above, wherever they
//!   are, and puts their answers together.
//! - `recorded`: files that MPI-IO keeps as one part per writer, and how they are shown as one.
//! - `meta`: records, intents and answers in one store; `data`: parts and their bytes; `rpc`: calls to servers, in
//!   sessions; `names`: which server decides about a name; `activity`: counters. These know no role.
//! - `socket`: the way in for processes; `clients`: the processes of this node; `local`: such a process inside the
//!   server's own.
//! - `cache`: the area in front of a tier; `flusher`: how what is written there gets to it.
//! - [`Ground`]: what a server stands on, so that a simulation can own it.
//!
//! Source: `docs/design/001-coherence.md`.

#![deny(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod acl;
mod activity;
mod alarm;
mod appends;
mod arenas;
mod beside;
mod booked;
mod boxed;
mod cache;
mod clients;
mod convert;
mod crowd;
mod data;
mod disk;
#[cfg(test)]
mod explore;
mod failed_names;
mod files;
mod finished;
mod flusher;
mod grace;
mod ground;
mod handed_on;
mod handed_over;
mod home;
mod homes;
mod keyed_lock;
mod late;
mod left_links;
mod lent;
mod limits;
mod local;
mod locks;
mod lost_files;
mod meeting;
mod membership;
mod meta;
mod multiplexed;
mod names;
mod network;
mod node;
mod node_service;
mod peer_service;
mod recorded;
mod recovery;
mod refusals;
mod request;
mod rpc;
mod serve;
mod serve_error;
mod settings;
mod socket;
mod starting;
mod status;
mod stray_parts;
mod told_renames;
mod turns;
mod uncounted;
mod unfinished;
mod unsynced_elsewhere;
mod when_woken;

pub use cache::CACHE_NAME;
pub use clients::AnswerCallback;
pub use failed_names::{Exit, NAMES_FULL, NAMES_LOST};
pub use flusher::resume::{
    LeftNode, LeftNodes, Resumed, ResumedJob, Resuming, SalvagedFile, Salvaging, salvage,
};
pub use flusher::verify::{Verified, checksum_line, verify};
pub use ground::{Ground, OpenNames};
pub use local::{LocalProcess, LocalServer, ServerGone};
pub use names::kept_names::KeptUntil;
pub use network::TransportChoice;
pub use serve::{serve, serve_on};
pub use serve_error::ServeError;
pub use settings::{CacheSettings, DurableAt, Settings};
