//! The command as a person uses it: its help, its errors, and whole jobs.
//!
//! [`help`] and [`bad_input`] need nothing; [`jobs`] needs root and says `SKIP` without.

mod bad_input;
mod help;
mod jobs;
mod support;
