//! Loops that run at full speed inside an actor and count what happened.
//!
//! A loop ends after `count` rounds, after `seconds`, when its flag is raised or when the actor is
//! reset, whichever comes first; a slow machine has [`PATIENCE`] times as long for the least rounds
//! that a test needs, so that time does not decide what passes. Errors that belong to the race are counted by name; what must
//! never be seen is a *violation*, told in words.

mod append;
mod directories;
mod locks;
mod names;
mod opens;
mod run;
mod shares;
mod stripes;
mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::command::LockKind;
use super::table::Table;
pub use append::{RECORD_BYTES, record};
use run::Run;
pub use versions::{VERSIONS, version_len};

/// See [`Until::at_least`].
const PATIENCE: f64 = 8.0;

/// When a loop ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Until {
    /// Rounds at most.
    pub count: u64,
    /// Rounds that neither `seconds` nor the flag cut short.
    pub least: u64,
    /// A bound in time.
    pub seconds: f64,
    /// The word of a [`super::Command::Raise`].
    pub flag: Option<String>,
}

impl Until {
    /// `count` rounds, or as many as `seconds` allow.
    pub const fn rounds(count: u64, seconds: f64) -> Self {
        Self { count, least: 0, seconds, flag: None }
    }

    /// Until `flag` is raised, at most for `seconds`.
    pub fn raised(flag: &str, seconds: f64) -> Self {
        Self { count: u64::MAX, least: 0, seconds, flag: Some(flag.to_owned()) }
    }

    /// But no fewer rounds than this, however long they take.
    #[must_use]
    pub fn at_least(self, least: u64) -> Self {
        Self { least, ..self }
    }

    /// When the loop is over for certain, in seconds.
    pub fn seconds_max(&self) -> f64 {
        if self.least > 0 { self.seconds * PATIENCE } else { self.seconds }
    }
}

/// What to do again and again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loop {
    /// Appends [`record`]s of this writer, one write(2) each, through one descriptor.
    Append {
        /// The file.
        path: String,
        /// Tells writers apart.
        writer: u8,
    },
    /// Opens and closes, dealt to threads.
    Reopen {
        /// The file.
        path: String,
        /// See `errno::open_flags`.
        flags: String,
        /// How many at once.
        threads: u32,
    },
    /// Writes version after version to `temporary` and renames it over `path`.
    Replace {
        /// What is replaced.
        path: String,
        /// Where the new one is written.
        temporary: String,
    },
    /// Opens and reads `path`: it must always be one whole version.
    ReadVersions {
        /// What is replaced meanwhile.
        path: String,
    },
    /// Renames; that `from` is not there yet is counted as an error, and is no round.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// Creates `create<i>` and unlinks `unlink<i>` (which may not be there).
    CreateUnlink {
        /// A path that a number completes.
        create: String,
        /// A path that a number completes.
        unlink: String,
    },
    /// Lists a directory: `stable` names that start with `s` are there, once each; others at most once.
    List {
        /// The directory.
        path: String,
        /// How many names start with `s`.
        stable: u64,
        /// Between listings.
        pause_ms: u64,
    },
    /// mkdir and rmdir of one name.
    MakeRemove {
        /// The directory.
        path: String,
    },
    /// Creates a file in a directory that comes and goes; once created it must be there.
    CreateInside {
        /// The directory.
        path: String,
        /// What a number completes to a name.
        name: String,
    },
    /// Writes `len` bytes at `offset` again and again and reads them back: no zero among them.
    WriteAcross {
        /// A file that others truncate meanwhile.
        path: String,
        /// Where to write.
        offset: u64,
        /// How much.
        len: u64,
        /// How the descriptor that reads is opened.
        read_flags: String,
    },
    /// Writes its own pieces of a block of 4 KiB that it shares with other writers, and looks whether they stay.
    WriteOwn {
        /// The file.
        path: String,
        /// See `errno::open_flags`.
        flags: String,
        /// Bytes of a piece.
        piece: u32,
        /// Which of the writers this is.
        writer: u32,
        /// How many there are.
        writers: u32,
    },
    /// Adds one to the number in a file, under a lock of it, through one descriptor.
    CountUnderLock {
        /// The file: eight bytes.
        path: String,
        /// Which lock.
        kind: LockKind,
    },
    /// Truncates to `size` again and again.
    Truncate {
        /// The file.
        path: String,
        /// In bytes.
        size: u64,
    },
}

/// What a loop counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Rounds.
    pub rounds: u64,
    /// Rounds without an error.
    pub good: u64,
    /// Errors by name.
    pub errors: BTreeMap<String, u64>,
    /// What must never happen: how often.
    pub violations: u64,
    /// The first few, in words.
    pub examples: Vec<String>,
    /// The slowest round.
    pub slowest_us: u64,
    /// The longest that the scheduler kept a sleeping thread of this process from running meanwhile.
    pub unscheduled_us: u64,
    /// All together.
    pub millis: u64,
}

pub(super) fn run(table: &Table, work: &Loop, until: &Until) -> Result<Report, String> {
    let mut run = Run::new(table, until.clone());
    match work {
        Loop::Append { path, writer } => append::append(&mut run, path, *writer)?,
        Loop::Reopen { path, flags, threads } => opens::reopen(&mut run, path, flags, *threads)?,
        Loop::Replace { path, temporary } => versions::replace(&mut run, path, temporary),
        Loop::ReadVersions { path } => versions::read(&mut run, path),
        Loop::Rename { from, to } => names::rename(&mut run, from, to),
        Loop::CreateUnlink { create, unlink } => names::create_unlink(&mut run, create, unlink),
        Loop::List { path, stable, pause_ms } => {
            directories::list(&mut run, path, *stable, Duration::from_millis(*pause_ms));
        }
        Loop::MakeRemove { path } => directories::make_remove(&mut run, path),
        Loop::CreateInside { path, name } => directories::create_inside(&mut run, path, name),
        Loop::WriteAcross { path, offset, len, read_flags } => {
            stripes::write_across(&mut run, path, (*offset, *len as usize), read_flags)?;
        }
        Loop::WriteOwn { path, flags, piece, writer, writers } => {
            let share = (*writer as usize, *writers as usize);
            shares::write_own(&mut run, (path, flags), *piece as usize, share)?;
        }
        Loop::CountUnderLock { path, kind } => locks::count(&mut run, path, *kind)?,
        Loop::Truncate { path, size } => stripes::truncate(&mut run, path, *size)?,
    }
    Ok(run.finish())
}
