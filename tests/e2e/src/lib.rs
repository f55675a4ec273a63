//! End-to-end tests of a job: what programs on several nodes see through ordinary POSIX calls.
//!
//! Here: the *actor* (a small program, one per node, that makes the calls it is told to make), the
//! *job* under test (a real `hayase up`, or an ordinary directory to test the tests with), and the
//! runner that gives each test its own directory and its actors, and runs a few groups at a time.
//! Not here: the tests (`tests/e2e/`, one file per group), suites written by others (`tests/foreign`).
//!
//! Environment: `HAYASE_E2E_BACKEND` = `hayase` (default) or `plain` (then `HAYASE_E2E_PRIVATE` says
//! that nobody else uses the file system of the directory, `HAYASE_E2E_PLAIN_EXEC` puts a program
//! between a node and the directory); `HAYASE_E2E_PROFILE` = a
//! `--kernel-profile`; `HAYASE_E2E_UP` = further options of `up`; `HAYASE_E2E_DIR` = where temporary
//! trees go; `HAYASE_E2E_STREAMS` = how many groups run at once; `HAYASE_BIN` = the binary under test (default: in the directory of the actor).
#![deny(unsafe_code)]

pub mod actor;
pub mod cached;
pub mod expect;
pub mod groups;
pub mod job;
pub mod node;
pub mod patience;
pub mod process;
pub mod random;
pub mod scene;
pub mod suite;
pub mod tier_dir;
pub mod trial;
mod wanted;

pub use actor::{Attr, Command, Data, Loop, MapKind, Report, Space, Until, Whence};
pub use expect::{Refused, eventually, expect_errno};
pub use job::{Job, JobOptions};
pub use node::{File, Map, Node};
pub use scene::Scene;
pub use suite::{Suite, note, skip};
pub use tier_dir::TierDir;
pub use trial::Trial;

/// What a test returns: the error says what was seen.
pub type TestResult = anyhow::Result<()>;
