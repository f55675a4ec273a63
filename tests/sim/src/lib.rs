//! A whole job in one process: servers on a simulated network, storage in memory, a clock that
//! jumps, and everything that happens chosen by one seed.
//!
//! The servers are the real ones, above the trait of transports and below the messages of
//! processes. Rooms: `network`, `job` and `crash_point` are the ground, `mount` stands for a node's
//! kernel and FUSE daemon, `workload` is what programs do, `kind` and `faults` are what happens to
//! them, `check` what must be true of what they saw.
//!
//! # What is checked
//!
//! The invariants are those of the protocol (`docs/design/001-coherence.md` says how each is kept).
//!
//! | | what must be true | who looks |
//! |---|---|---|
//! | I1 | the part of a whole file is at its home, every part belongs to a file | `check::storage`, at the end of runs |
//! | I2 | no open makes a kernel refuse another | not here, there is no kernel: `tests/e2e` 06, 07, 09 |
//! | I3 | a read is not older than the last write acknowledged before it began | `workload::registers` by `check::linear`; `home::model` in the server, all states |
//! | I4 | nobody keeps pages while another node's open for writing was answered | seen through I3 here; `home::model` directly |
//! | I5 | a size never shrinks without truncate | what was appended is read at its place in the end (`workload::appends`); truncation is tried by `tests/e2e` 14 to 16 |
//! | I6 | appends do not overlap, none is lost or made twice | `workload::appends` |
//! | I7 | a lock is not held twice, also over restarts, losses and a silent server 0 | `workload::locks`: holders, and a counter under the lock (`check::counter`) |
//! | I8 | nothing bypasses a part that is written around the page cache | not here: all parts of this version are buffered |
//! | I9 | a name stands for at most one inode, a rename is all or nothing, links are counted right | `workload::names` by `check::names`; `check::storage` |
//! | I10 | nothing of a former session changes anything | the counter of I7: a late write under a lost lock would show |
//! | I11 | every call ends | `workload`: 200 s for any call; what a lost node holds is EIO within 1 s once that is known |
//! | I12 | a request happens once | appends, names, the counter |
//! | I13 | durable is what was synced | `workload::synced` by `check::synced`, over a power cut of all nodes |
//!
//! In front of a tier ([`flushing()`]): what fsync(2) has answered for comes to the tier, however often it fails, servers are
//! killed and nodes lose power in the middle of its calls; it shows whole versions, none after a newer one, and no
//! second version of anything.
//!
//! In some runs ([`Writes`]) mounts gather small writes, and `workload::small_writes` makes such ones. What a mount has
//! acknowledged and not handed on may be lost where that mount is killed, or is refused; then it was there before any
//! other node was shown the file, or never. Where only links break and servers end, nothing is refused.
//!
//! A write in whose middle a server is started anew may happen twice before it returns; nothing else may.
//! Half of the runs are in the root, whose names are at their shards, half in a directory, whose names are at its home
//! and then spread ([`Place`]).
//! Hard links are counted right while servers end in the middle ([`linked_while_servers_end`]).
//! Not checked: times, modes, xattrs, directories (`crates/server/tests/server/crash_points.rs`, `tests/e2e`); what a single node that loses power alone may forget; more than three nodes with
//! faults. A history with too many calls of unknown outcome is not decided, and counted.

#![deny(unsafe_code, clippy::undocumented_unsafe_blocks)]

mod before_tier;
mod check;
mod counted;
mod crash_point;
mod ended;
mod faults;
mod flushing;
mod history;
mod job;
mod kind;
mod linked;
mod lost_part;
mod mount;
mod network;
mod random;
mod renamed;
mod resumed;
mod run;
mod scale;
mod workload;

pub use ended::{Scene, Story, ended_by_power_cut};
pub use flushing::{Flushed, Plan, STRIPED, STRIPED_CUT, WHOLE, WHOLE_CUT, flushing};
pub use kind::{Kind, UnknownKind};
pub use linked::linked_while_servers_end;
pub use lost_part::{
    AfterEnd, emptied_after_power_cut, server_ends_before_fsync, synced_after_end_of_another,
};
pub use renamed::{made_before_power_cut, renamed_before_loss, renamed_before_power_cut};
pub use run::{Place, Report, Violation, Writes, run, run_kind};
pub use scale::{Effort, Scale, scale};
