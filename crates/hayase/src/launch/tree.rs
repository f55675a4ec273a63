//! Nodes that are other hosts: a tree of relays that starts them, and through which commands reach them.
//!
//! ```text
//!   hayase up ──ssh──► relay on a ──ssh──► relay on b      each relay starts its own node's supervisor
//!       │                  └─────ssh──► relay on c         and carries lines of JSON both ways
//!       └──────ssh──► relay on d ──ssh──► relay on e
//! ```
//!
//! Messages go through standard streams only: the job's secret is never in a command line or an environment,
//! and no port is opened. The end of a relay's standard input is the end of its work; before `keep` it takes
//! its node down, so that whatever happens to the launcher, nothing stays.
//!
//! Rooms: [`split`] (who starts whom), [`way`] (ssh and srun), [`lines`] and [`message`] (what travels),
//! [`outbox`], [`link`] (one ssh), [`branches`] (all links of one place), [`relay`] (the part that runs on a
//! host), [`own_node`] and [`answer`] (what it does there), [`board`] (files of servers without a shared
//! directory), [`up`] and [`session`] (the part of `up`, and of other commands).

mod answer;
mod board;
mod branches;
mod lines;
mod link;
mod message;
mod outbox;
mod own_node;
pub(crate) mod relay;
mod session;
mod split;
mod up;
pub(crate) mod way;

pub(crate) use message::Answer;
pub(crate) use session::{JOIN_PATIENCE, Session, WAY_MAX};
pub(crate) use up::Tree;
