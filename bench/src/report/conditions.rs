//! Under which conditions a run was made: what somebody needs to repeat it, or to doubt it.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::build::{Build, commit_of};

/// Machine, software, time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conditions {
    /// UTC.
    pub(crate) date: String,
    /// As typed.
    pub(crate) command: String,
    /// Commit of the sources, with `+` when they were changed since.
    pub(crate) commit: String,
    /// Commit of the build that this one is compared with, and where it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    /// With fewer rounds and shorter blocks.
    pub(crate) quick: bool,
    /// Processors and memory.
    pub(crate) machine: String,
    /// `uname`.
    pub(crate) kernel: String,
    /// Distribution, compiler, libraries.
    pub(crate) versions: Vec<String>,
    /// File system and disk below the images.
    pub(crate) storage: String,
    /// Load average before the run.
    pub(crate) load_before: String,
    /// And after it.
    pub(crate) load_after: String,
}

impl Conditions {
    /// Now; `storage` is where the images lie, `before` what this build is compared with.
    pub(crate) fn now(storage: &Path, quick: bool, before: Option<&Build>) -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        Self {
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            command: format!("./bench.sh {}", arguments.join(" ")),
            commit: commit_of(Path::new(".")).unwrap_or_else(|| "unknown".to_owned()),
            before: before
                .map(|build| format!("{} in {}", build.commit(), build.hayase().display())),
            quick,
            machine: machine(),
            kernel: said("uname", &["-srm"]),
            versions: versions(arguments.first().map_or("", String::as_str)),
            storage: storage_of(storage),
            load_before: load(),
            load_after: String::new(),
        }
    }

    /// To be called at the end.
    pub(crate) fn end(&mut self) {
        self.load_after = load();
    }

    /// For people: name and value.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let before = self.before.iter().map(|before| ("compared with", before.clone()));
        let first = [
            ("date", self.date.clone()),
            ("command", format!("`{}`", self.command)),
            ("sources", self.commit.clone()),
        ];
        let rest = [
            ("machine", self.machine.clone()),
            ("kernel", self.kernel.clone()),
            ("versions", self.versions.join(", ")),
            ("storage of jobs", self.storage.clone()),
            (
                "load average (1, 5, 15 min)",
                format!("{} before, {} after", self.load_before, self.load_after),
            ),
        ];
        first.into_iter().chain(before).chain(rest).collect()
    }
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let model = value(&read("/proc/cpuinfo"), "model name").unwrap_or_default();
    let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let memory: u64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{processors} processors ({model}), {} GiB of memory", memory >> 20)
}

/// Debian's packages of what a bench runs beside us.
const PACKAGES: [(&str, &[&str]); 4] = [
    ("stage", &["rclone", "radosgw", "s3cmd", "s3fs"]),
    ("gfarm", &["gfmd", "gfarm2fs"]),
    ("mpiio", &["mpich", "openmpi-bin"]),
    ("mpiio-nodes", &["mpich"]),
];

/// Of this machine, and of what the bench of this name compares with.
fn versions(bench: &str) -> Vec<String> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let mut versions = vec![
        name.unwrap_or("unknown").trim_matches('"').to_owned(),
        said("rustc", &["--version"]),
        format!("hayase {}", env!("CARGO_PKG_VERSION")),
        said("mkfs.xfs", &["-V"]),
    ];
    for package in PACKAGES.iter().filter(|(name, _)| *name == bench).flat_map(|(_, names)| *names)
    {
        let version = said("dpkg-query", &["-W", "-f", "${Version}", package]);
        if version != "unknown" && !version.is_empty() {
            versions.push(format!("{package} {version}"));
        }
    }
    versions
}

fn storage_of(path: &Path) -> String {
    let path = path.to_string_lossy();
    let found = said("findmnt", &["-no", "SOURCE,FSTYPE", "-T", &path]);
    format!("XFS images on {}", found.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
