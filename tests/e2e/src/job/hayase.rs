//! A real job: `hayase up`, `exec`, `layout set`, `down`, and what /proc tells of its daemons.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{JobOptions, Tree};
use crate::process::{self, Finished};

/// `up` is to take 2 s; a loaded machine gets more before we call it hung.
const UP_BOUND: Duration = Duration::from_secs(60);
/// Likewise.
const COMMAND_BOUND: Duration = Duration::from_secs(30);
/// Of each log, at its end.
const LOG_LINES_MAX: usize = 25;

/// The binary under test: `HAYASE_BIN`, or the one beside the actor.
///
/// # Errors
/// When it was not built.
pub fn binary() -> Result<PathBuf> {
    std::env::var_os("HAYASE_BIN").map_or_else(|| super::built("hayase"), |path| Ok(path.into()))
}

/// A job that `hayase up` started.
pub struct Cluster {
    binary: PathBuf,
    job_dir: PathBuf,
    nodes: u16,
    is_up: bool,
    /// What `up --json` printed.
    said: serde_json::Value,
}

/// Processes of a job by what they do.
#[derive(Clone, Debug, Default)]
pub struct Daemons {
    /// `hayase serve`, by node.
    pub servers: Vec<u32>,
    /// `hayase serve-mount`, by node.
    pub mounts: Vec<u32>,
    /// `hayase node`, by node.
    pub supervisors: Vec<u32>,
}

impl Cluster {
    /// Starts a job in `tree`.
    ///
    /// # Errors
    /// What `up` said.
    pub fn up(tree: &Tree, options: &JobOptions) -> Result<Self> {
        let binary = binary()?;
        let job_dir = tree.job_dir();
        let mut cluster = Self {
            binary,
            job_dir,
            nodes: options.nodes,
            is_up: true,
            said: serde_json::Value::Null,
        };
        let mut up = Self::up_command(tree, options)?;
        let said = process::run(&mut up, UP_BOUND).and_then(Finished::success);
        let said = match said {
            Ok(said) => said,
            Err(error) => {
                let logs = cluster.logs();
                // What it says is of less use than why `up` failed.
                let _ = cluster.down();
                return Err(error.context(format!("hayase up\n{logs}")));
            }
        };
        cluster.said = serde_json::from_str(&said.stdout)
            .with_context(|| format!("`up --json` printed: {}", said.stdout))?;
        Ok(cluster)
    }

    /// The command line of `up`, for tests that want to see it fail.
    ///
    /// # Errors
    /// When the binary was not built, or a directory can not be made.
    pub fn up_command(tree: &Tree, options: &JobOptions) -> Result<Process> {
        let mut up = Process::new(binary()?);
        up.args(["up", "--json"]);
        Self::add_options(&mut up, tree, options)?;
        Ok(up)
    }

    /// The options that `up` and `run` share.
    ///
    /// # Errors
    /// When a directory can not be made.
    pub fn add_options(command: &mut Process, tree: &Tree, options: &JobOptions) -> Result<()> {
        let path = |name: &str| tree.path().join(name);
        for name in ["storage", "mount"] {
            std::fs::create_dir_all(path(name)).with_context(|| format!("make {name}"))?;
        }
        command.args(["--nodes", &options.nodes.to_string()]);
        let storage = options.storage.clone().unwrap_or_else(|| path("storage"));
        command.arg("--storage").arg(storage).arg("--mount").arg(path("mount"));
        command.args(["--shared", &options.shared, "--local", &options.local]);
        command.arg("--job-dir").arg(tree.job_dir()).args(&options.extra);
        if let Some(profile) = super::profile() {
            command.args(["--kernel-profile", &profile]);
        }
        if let Ok(more) = std::env::var("HAYASE_E2E_UP") {
            command.args(more.split_whitespace());
        }
        Ok(())
    }

    /// Where node `index` keeps the job's bytes; on that node an XFS image may be mounted there.
    ///
    /// # Errors
    /// When `up --json` does not tell the storage.
    pub fn node_storage(&self, index: u16) -> Result<PathBuf> {
        let storage = self.said["storage"].as_str().context("`up --json` tells no storage")?;
        Ok(Path::new(storage).join(format!("node-{index}")))
    }

    /// What `up --json` printed.
    pub const fn said(&self) -> &serde_json::Value {
        &self.said
    }

    /// The job directory.
    pub fn job_dir(&self) -> &Path {
        &self.job_dir
    }

    /// `hayase exec --node I -- ARGS`.
    pub fn exec(&self, index: u16, arguments: &[&Path]) -> Process {
        let mut process = self.hayase("exec");
        process.args(["--node", &index.to_string(), "--"]).args(arguments);
        process
    }

    /// `hayase VERB --job DIR`.
    pub fn hayase(&self, verb: &str) -> Process {
        let mut process = Process::new(&self.binary);
        process.arg(verb).arg("--job").arg(&self.job_dir);
        process
    }

    /// Runs `hayase VERB --job DIR ARGS` to its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn run(&self, verb: &str, arguments: &[&str]) -> Result<Finished> {
        process::run(self.hayase(verb).args(arguments), COMMAND_BOUND)
    }

    /// Runs `hayase VERB` on a node: paths of the mounts mean something only there.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn run_on(&self, index: u16, verb: &str, arguments: &[&str]) -> Result<Finished> {
        let mut process = self.exec(index, &[&self.binary]);
        process.arg(verb).arg("--job").arg(&self.job_dir).args(arguments);
        process::run(&mut process, COMMAND_BOUND)
    }

    pub(super) fn stripe(&self, path: &str, stripe: &str, width: u16) -> Result<()> {
        let width = width.to_string();
        let arguments = ["set", "--stripe", stripe, "--width", &width, path];
        let mut process = self.exec(0, &[&self.binary]);
        process.arg("layout").args(arguments).env("HAYASE_JOB", &self.job_dir);
        process::run(&mut process, COMMAND_BOUND)?.success().context("hayase layout set")?;
        Ok(())
    }

    /// `hayase down`, and nothing of the job is left.
    ///
    /// # Errors
    /// What `down` said, or what is left.
    pub fn down(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_up) {
            return Ok(());
        }
        self.stop()
    }

    fn stop(&self) -> Result<()> {
        if !self.job_dir.exists() {
            return Ok(());
        }
        let daemons = self.daemons();
        self.run("down", &[])?.success().context("hayase down")?;
        let left: Vec<u32> = daemons.all().filter(|pid| is_alive(*pid)).collect();
        ensure!(left.is_empty(), "processes are left after down: {left:?}");
        Ok(())
    }

    /// The end of each log of each node, and where the processes are.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for node in 0..self.nodes {
            let dir = self.job_dir.join(format!("node-{node}"));
            let logs = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            for path in logs.map(|entry| entry.path()) {
                if path.extension().is_some_and(|extension| extension == "log") {
                    let tail = tail(&path);
                    if !tail.is_empty() {
                        text += &format!("--- {}\n{tail}", path.display());
                    }
                }
            }
        }
        let daemons = self.daemons();
        for (what, pids) in [("serve", daemons.servers), ("serve-mount", daemons.mounts)] {
            for pid in pids {
                text += &format!("--- {what}: {}\n", state_of(pid));
            }
        }
        text
    }

    /// The processes of this job, found by their command lines: they name the job directory.
    pub fn daemons(&self) -> Daemons {
        let mut daemons = Daemons::default();
        let needle = self.job_dir.to_string_lossy().into_owned();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.split('\0').collect();
            if !words.iter().any(|word| word.contains(&needle)) {
                continue;
            }
            match words.get(1) {
                Some(&"serve") => daemons.servers.push(pid),
                Some(&"serve-mount") => daemons.mounts.push(pid),
                Some(&"node") => daemons.supervisors.push(pid),
                _ => {}
            }
        }
        daemons
    }
}

impl Daemons {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.servers.iter().chain(&self.mounts).chain(&self.supervisors).copied()
    }
}

/// A process that is there and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// What it does at this moment: whether it runs or sleeps, and in which call of the kernel.
fn state_of(pid: u32) -> String {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        std::fs::read_to_string(path).unwrap_or_else(|error| error.to_string())
    };
    let state =
        read("stat").rsplit_once(") ").map_or('?', |(_, rest)| rest.chars().next().unwrap_or('?'));
    format!("process {pid} {state} {}", read("wchan"))
}

fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // The start of a daemon is the same each time and tells nothing about a failure.
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains(" INFO ")).collect();
    let start = lines.len().saturating_sub(LOG_LINES_MAX);
    lines[start..].iter().map(|line| format!("{line}\n")).collect()
}
