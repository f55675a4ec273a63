//! What all measurements of a run share: the product's binary, a place for files, the guard.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::guard::{Guard, remove_tree};
use crate::journal::Thing;
use crate::leftovers;

/// One run.
#[derive(Debug)]
pub(crate) struct Bench {
    hayase: PathBuf,
    program: PathBuf,
    scratch: PathBuf,
    guard: Guard,
    quick: bool,
    precedence: bool,
    names: Cell<u32>,
}

impl Bench {
    /// Finds the binary beside this one, clears up after benches that were killed, and makes a place for files below
    /// `storage`.
    pub(crate) fn new(
        hayase: Option<PathBuf>,
        storage: &Path,
        quick: bool,
        precedence: bool,
    ) -> anyhow::Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "simulated nodes and images need root");
        let program = std::env::current_exe().context("find this program")?;
        let hayase = hayase.unwrap_or_else(|| program.with_file_name("hayase"));
        ensure!(
            hayase.exists(),
            "{} is not there: build it with `cargo build --release -p hayase`",
            hayase.display()
        );
        let hayase = std::path::absolute(hayase)?;
        let storage = std::path::absolute(storage)?;
        for line in leftovers::sweep(&storage, &hayase) {
            warn(&line);
        }
        let scratch = leftovers::tree_of(&storage, std::process::id());
        std::fs::create_dir(&scratch).with_context(|| format!("make {}", scratch.display()))?;
        let guard = Guard::start(&scratch)?;
        guard.made(Thing::Tree(scratch.clone()))?;
        Ok(Self { hayase, program, scratch, guard, quick, precedence, names: Cell::new(0) })
    }

    /// The product.
    pub(crate) fn hayase(&self) -> &Path {
        &self.hayase
    }

    /// This program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// For storage, mount points and job directories.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// What cleans up when this process can not.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// `full` rounds, or what quick runs have time for.
    pub(crate) fn rounds(&self, quick: usize, full: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Milliseconds that one block of work takes at least.
    pub(crate) fn block_milliseconds(&self) -> u64 {
        if self.quick { 60 } else { 150 }
    }

    /// Whether what is measured goes before other programs of the machine.
    pub(crate) fn give_precedence(&self, process: u32) -> anyhow::Result<()> {
        if self.precedence { crate::precedence::give(process) } else { Ok(()) }
    }

    /// For a job; not used before.
    pub(crate) fn new_name(&self) -> String {
        let number = self.names.get();
        self.names.set(number + 1);
        format!("bench-{}-{number}", std::process::id())
    }

    /// To a person, at once.
    pub(crate) fn warn(&self, text: &str) {
        warn(text);
    }
}

fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Drop for Bench {
    fn drop(&mut self) {
        match remove_tree(&self.scratch) {
            Ok(()) => drop(self.guard.removed(Thing::Tree(self.scratch.clone()))),
            Err(error) => self.warn(&format!("{error:#}")),
        }
    }
}
