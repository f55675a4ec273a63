//! What all measurements of a run share: the build that is measured, a place for files, the guard.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, ensure};

use crate::build::Build;
use crate::guard::{Guard, remove_tree};
use crate::journal::Thing;
use crate::leftovers;

/// How a run measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Fewer rounds, shorter blocks.
    pub(crate) quick: bool,
    /// What is measured goes before other programs of the machine.
    pub(crate) precedence: bool,
}

/// A run, as one build sees it.
#[derive(Debug)]
pub(crate) struct Bench {
    build: Build,
    program: PathBuf,
    manner: Manner,
    place: Rc<Place>,
}

/// What the builds of a run share.
#[derive(Debug)]
struct Place {
    scratch: PathBuf,
    guard: Guard,
    names: Cell<u32>,
}

impl Bench {
    /// Clears up after benches that were killed, and makes a place for files below `storage`.
    pub(crate) fn new(
        hayase: Option<PathBuf>,
        storage: &Path,
        manner: Manner,
    ) -> anyhow::Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "simulated nodes and images need root");
        let program = std::env::current_exe().context("find this program")?;
        let build = Build::this(&program, hayase)?;
        let storage = std::path::absolute(storage)?;
        for line in leftovers::sweep(&storage, build.hayase()) {
            warn(&line);
        }
        let place = Rc::new(Place::new(&storage)?);
        Ok(Self { build, program, manner, place })
    }

    /// The same run for another build.
    pub(crate) fn of_build(&self, build: Build) -> Self {
        let (program, place) = (self.program.clone(), Rc::clone(&self.place));
        Self { build, program, manner: self.manner, place }
    }

    /// What is measured.
    pub(crate) fn build(&self) -> &Build {
        &self.build
    }

    /// The product.
    pub(crate) fn hayase(&self) -> &Path {
        self.build.hayase()
    }

    /// This program, whichever build is measured: all do the same work.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// For storage, mount points and job directories.
    pub(crate) fn scratch(&self) -> &Path {
        &self.place.scratch
    }

    /// Cleans up when this process cannot.
    pub(crate) fn guard(&self) -> &Guard {
        &self.place.guard
    }

    /// `full` rounds, or what quick runs have time for.
    pub(crate) fn rounds(&self, quick: usize, full: usize) -> usize {
        if self.manner.quick { quick } else { full }
    }

    /// Milliseconds that one block of work takes at least.
    pub(crate) fn block_milliseconds(&self) -> u64 {
        if self.manner.quick { 60 } else { 150 }
    }

    /// Whether what is measured goes before other programs of the machine.
    pub(crate) fn give_precedence(&self, process: u32) -> anyhow::Result<()> {
        if self.manner.precedence { crate::precedence::give(process) } else { Ok(()) }
    }

    /// For a job; not used before.
    pub(crate) fn new_name(&self) -> String {
        let number = self.place.names.get();
        self.place.names.set(number + 1);
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

impl Place {
    fn new(storage: &Path) -> anyhow::Result<Self> {
        let scratch = leftovers::tree_of(storage, std::process::id());
        std::fs::create_dir(&scratch).with_context(|| format!("make {}", scratch.display()))?;
        let guard = Guard::start(&scratch)?;
        guard.made(Thing::Tree(scratch.clone()))?;
        Ok(Self { scratch, guard, names: Cell::new(0) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match remove_tree(&self.scratch) {
            Ok(()) => drop(self.guard.removed(Thing::Tree(self.scratch.clone()))),
            Err(error) => warn(&format!("{error:#}")),
        }
    }
}
