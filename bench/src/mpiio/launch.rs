//! Running the MPI program: which MPIs are here, how each starts it, what it says.
//!
//! Not here: what is run against what (the rooms beside this one).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::bench::Bench;
use crate::command::{Ended, run};
use crate::sample::Measured;
use crate::workloads::evict::evict;

const SOURCE: &str = "bench/mpi/patterns.c";
const COMPILE_PATIENCE: Duration = Duration::from_secs(60);
/// Stock collective calls of many small pieces take their time.
const RUN_PATIENCE: Duration = Duration::from_secs(600);
const TOOL_PATIENCE: Duration = Duration::from_secs(120);

/// As few MPIs as differ in how they do I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mpich,
    OpenMpi,
}

/// The program, compiled by one MPI.
#[derive(Debug)]
pub(crate) struct Mpi {
    pub(crate) kind: Kind,
    program: PathBuf,
    library: PathBuf,
    /// Marked, so that new files in it become containers.
    marked: PathBuf,
    plain: PathBuf,
}

/// Whose file calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The MPI's own, with these arguments of mpiexec and hints of the program.
    Stock { options: &'static [&'static str], hints: &'static str },
    /// Ours.
    Hayase,
    /// Ours, with these hints of the program.
    Hinted(&'static str),
}

impl By {
    /// The MPI as it is.
    pub(crate) const STOCK: Self = Self::Stock { options: &[], hints: "" };
}

/// What the program printed of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    bytes: f64,
    open: f64,
    calls: f64,
    close: f64,
    cpu: f64,
}

impl Phases {
    /// Open, calls and close.
    pub(crate) fn together(&self) -> Measured {
        let seconds = self.open + self.calls + self.close;
        Measured { amount: self.bytes, seconds, own_cpu: self.cpu }
    }

    /// The calls alone.
    pub(crate) fn calls(&self) -> Measured {
        Measured { seconds: self.calls, ..self.together() }
    }

    /// The same, counting something else than bytes.
    pub(crate) fn calls_of(&self, amount: f64) -> Measured {
        Measured { amount, ..self.calls() }
    }
}

/// The lines of one run.
#[derive(Debug)]
pub(crate) struct Said(String);

impl Said {
    /// As a run of the program wrote it.
    pub(crate) fn of(ended: Ended, what: &str) -> anyhow::Result<Self> {
        ended.success(what).map(Self)
    }

    /// Of `write` or `read`.
    pub(crate) fn phases(&self, direction: &str) -> anyhow::Result<Phases> {
        match self.numbers(direction)?[..] {
            [bytes, open, calls, close, cpu] => Ok(Phases { bytes, open, calls, close, cpu }),
            _ => bail!("the program said `{}`", self.0),
        }
    }

    /// The numbers of the line that begins with this word.
    pub(crate) fn numbers(&self, word: &str) -> anyhow::Result<Vec<f64>> {
        let mut lines = self.0.lines().map(|line| line.split(' '));
        let line = lines.find_map(|mut line| (line.next() == Some(word)).then_some(line));
        let line =
            line.with_context(|| format!("no `{word}` in what the program said: {}", self.0))?;
        Ok(line.map(str::parse).collect::<Result<_, _>>()?)
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        }
    }

    /// How Debian calls its tools.
    pub(crate) fn tool(self, tool: &str) -> String {
        match self {
            Self::Mpich => format!("{tool}.mpich"),
            Self::OpenMpi => format!("{tool}.openmpi"),
        }
    }

    /// The program, for this MPI.
    pub(crate) fn compile(self, program: &Path) -> anyhow::Result<()> {
        let mut compiler = Command::new(self.tool("mpicc"));
        compiler.args(["-O2", "-o"]).arg(program).arg(SOURCE);
        run(&mut compiler, COMPILE_PATIENCE)?.success("compile the MPI program").map(drop)
    }
}

impl Mpi {
    /// Each MPI that is here; why others are not, for the notes.
    pub(crate) fn all(bench: &Bench) -> anyhow::Result<(Vec<Self>, Vec<String>)> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for kind in [Kind::Mpich, Kind::OpenMpi] {
            match Self::compile(bench, kind) {
                Ok(mpi) => found.push(mpi),
                Err(error) => missing.push(format!("Without {}: {error:#}.", kind.name())),
            }
        }
        ensure!(!found.is_empty(), "there is no MPI here: {}", missing.join(" "));
        Ok((found, missing))
    }

    /// The first one that is here.
    pub(crate) fn any(bench: &Bench) -> anyhow::Result<Self> {
        Ok(Self::all(bench)?.0.remove(0))
    }

    fn compile(bench: &Bench, kind: Kind) -> anyhow::Result<Self> {
        let library = library(bench)?;
        let scratch = bench.scratch().join(bench.new_name());
        let (marked, plain) = (scratch.join("marked"), scratch.join("plain"));
        for directory in [&marked, &plain] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("make {}", directory.display()))?;
        }
        tool(Command::new(bench.hayase()).args(["container", "enable"]).arg(&marked))?;
        let program = scratch.join("patterns");
        kind.compile(&program)?;
        Ok(Self { kind, program, library, marked, plain })
    }

    /// Where a file of this name lies.
    pub(crate) fn path(&self, by: By, name: &str) -> PathBuf {
        match by {
            By::Stock { .. } => self.plain.join(name),
            By::Hayase | By::Hinted(_) => self.marked.join(name),
        }
    }

    /// Runs the program on a file of this name.
    pub(crate) fn run(
        &self,
        by: By,
        ranks: u64,
        name: &str,
        arguments: &[String],
    ) -> anyhow::Result<Said> {
        self.run_at(|program| Command::new(program), by, ranks, (&self.path(by, name), arguments))
    }

    /// Runs the program on a file of any place; `on_node` begins commands where that is.
    pub(crate) fn run_at(
        &self,
        on_node: impl FnOnce(&str) -> Command,
        by: By,
        ranks: u64,
        (path, arguments): (&Path, &[String]),
    ) -> anyhow::Result<Said> {
        let mut command = self.mpiexec(on_node(&self.kind.tool("mpiexec")), ranks);
        let mut given = "";
        match by {
            By::Stock { options, hints } => {
                command.args(options);
                given = hints;
            }
            By::Hayase => self.preload(&mut command),
            By::Hinted(hints) => {
                self.preload(&mut command);
                given = hints;
            }
        }
        command.arg(&self.program).args(arguments);
        command.arg(format!("file={}", path.display())).arg(format!("hints={given}"));
        Said::of(run(&mut command, RUN_PATIENCE)?, &format!("{arguments:?} with {by:?}"))
    }

    /// The program as one process that nothing launches, on a file of any place, without our library.
    pub(crate) fn run_alone(
        &self,
        on_node: impl FnOnce(&Path) -> Command,
        (path, arguments): (&Path, &[String]),
    ) -> anyhow::Result<Said> {
        let mut command = on_node(&self.program);
        command.args(arguments).arg(format!("file={}", path.display()));
        Said::of(run(&mut command, RUN_PATIENCE)?, &format!("{arguments:?}, alone"))
    }

    fn mpiexec(&self, mut command: Command, ranks: u64) -> Command {
        command.args(["-n", &ranks.to_string()]);
        // More ranks than cores: whoever waits lets the others go on.
        match self.kind {
            Kind::Mpich => command.args(["-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1"]),
            Kind::OpenMpi => command.args([
                "--oversubscribe",
                "--allow-run-as-root",
                "--mca",
                "mpi_yield_when_idle",
                "1",
            ]),
        };
        command
    }

    fn preload(&self, command: &mut Command) {
        let library = self.library.display();
        match self.kind {
            Kind::Mpich => command.args(["-genv", "LD_PRELOAD", &library.to_string()]),
            Kind::OpenMpi => command.args(["-x", &format!("LD_PRELOAD={library}")]),
        };
    }

    /// Removes what runs have made, and writes what is dirty: the next run finds a disk at rest.
    pub(crate) fn clean(&self) -> anyhow::Result<()> {
        for directory in [&self.marked, &self.plain] {
            for entry in std::fs::read_dir(directory)? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                match path.is_dir() {
                    true => std::fs::remove_dir_all(&path)?,
                    false if name.starts_with(".hayase-") => {}
                    false => std::fs::remove_file(&path)?,
                }
            }
        }
        sync(&self.plain)
    }
}

/// Ours, to be preloaded.
pub(crate) fn library(bench: &Bench) -> anyhow::Result<PathBuf> {
    let library = bench.hayase().with_file_name("libhayase_mpiio.so");
    let help = "cargo build --release -p hayase-mpi";
    ensure!(library.exists(), "{} is not there: {help}", library.display());
    Ok(library)
}

/// Writes all that is dirty on this file system.
pub(crate) fn sync(directory: &Path) -> anyhow::Result<()> {
    let directory = std::fs::File::open(directory)?;
    Ok(rustix::fs::syncfs(&directory)?)
}

/// Out of the page cache: a file, or a container with all its parts.
pub(crate) fn make_cold(path: &Path) -> anyhow::Result<()> {
    evict(path)
}

/// Runs a tool to its end.
pub(crate) fn tool(command: &mut Command) -> anyhow::Result<(String, Duration)> {
    let what = format!("{command:?}");
    let ended = run(command, TOOL_PATIENCE)?;
    let took = ended.took;
    Ok((ended.success(&what)?, took))
}

/// As many ranks as processors.
pub(crate) fn processors() -> u64 {
    std::thread::available_parallelism().map_or(2, |count| count.get() as u64)
}

/// `KEY=VALUE` words of one line.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
