//! A place of its own for each test: registry, storage and mount point in a temporary directory; jobs in
//! it are taken down at the end, also when the test panics.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest wait for something that takes a moment.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The place.
pub(crate) struct Scene {
    top: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scene {
    pub(crate) fn new() -> Self {
        // Not /tmp: that may be in memory, and images want a disk.
        let top = tempfile::Builder::new().prefix("hayase-test").tempdir_in("/var/tmp").unwrap();
        let scene = Self { top };
        fs::create_dir(scene.path("storage")).unwrap();
        fs::create_dir(scene.path("mount")).unwrap();
        scene
    }

    /// `None`, and a line that says so, where simulated nodes can not be made.
    pub(crate) fn with_nodes(test: &str) -> Option<Self> {
        Self::unless_missing(
            test,
            without_root()
                .or_else(without_fuse)
                .or_else(|| (!unshares(&["--net", "--mount"])).then_some("needs namespaces")),
        )
    }

    /// The same where a mount can not be kept to one process and its children.
    pub(crate) fn with_own_mounts(test: &str) -> Option<Self> {
        let alone = || (!unshares(&["--mount"])).then_some("needs a mount namespace");
        Self::unless_missing(test, without_root().or_else(alone))
    }

    fn unless_missing(test: &str, missing: Option<&str>) -> Option<Self> {
        let Some(reason) = missing else { return Some(Self::new()) };
        println!("SKIP {test}: {reason}");
        None
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// The command in this place, with nothing of the caller's jobs in its environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_hayase"));
        command.args(args);
        command
    }

    /// Another program that runs the command, in the same place and with the same environment.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.stdin(Stdio::null()).current_dir(self.top.path());
        for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("HAYASE_") || n == "TMPDIR")
        {
            command.env_remove(name);
        }
        command.env("HAYASE_RUNTIME_DIR", self.path("run"));
        command
    }

    pub(crate) fn hayase(&self, args: &[&str]) -> Done {
        done(&self.command(args).output().unwrap())
    }

    /// `up` (or what `verb` says) with small areas in this place and more arguments.
    pub(crate) fn start_args<'a>(&self, verb: &'a str, more: &[&'a str]) -> Vec<String> {
        let (storage, mount) = (self.path("storage"), self.path("mount"));
        let mut args = vec![verb.to_owned(), "--storage".into(), storage.display().to_string()];
        args.extend(["--mount".into(), mount.display().to_string()]);
        args.extend(["--shared", "16M", "--local", "16M"].map(str::to_owned));
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        args
    }

    pub(crate) fn start_command(&self, verb: &str, more: &[&str]) -> Command {
        let args = self.start_args(verb, more);
        self.command(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn up(&self, more: &[&str]) -> Done {
        done(&self.start_command("up", more).output().unwrap())
    }

    /// Names of the jobs that are registered.
    pub(crate) fn jobs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("run/jobs")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Mounts, processes and files of jobs that are still here.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let top = self.top.path().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut found: Vec<_> =
            mounts.lines().filter(|line| line.contains(&top)).map(str::to_owned).collect();
        found.extend(self.processes().into_iter().map(|(pid, what)| format!("{pid} {what}")));
        found.extend(
            self.jobs().iter().flat_map(|job| files_below(&self.path("run/jobs").join(job))),
        );
        for place in ["storage", "mount"] {
            let entries = fs::read_dir(self.path(place)).into_iter().flatten().flatten();
            found.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        found
    }

    /// Processes whose command line names this place.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let top = self.top.path().display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let of = |pid: i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(&top).then_some((pid, line))
        };
        pids.filter_map(of).collect()
    }

    /// By force; returns when they are gone.
    pub(crate) fn kill_supervisors(&self, job: &str, nodes: impl Iterator<Item = u16>) {
        for node in nodes {
            let record = self.path(&format!("run/jobs/{job}/node-{node}/supervisor.json"));
            let record: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
            let pid = Pid::from_raw(record["process"]["pid"].as_i64().unwrap() as i32).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
            let proc = format!("/proc/{}", pid.as_raw_nonzero());
            let is_gone = || !fs::exists(&proc).unwrap();
            wait_until("a killed supervisor is gone", is_gone, || proc.clone());
        }
    }

    /// Fails when something stays for longer than a moment.
    pub(crate) fn check_nothing_left(&self) {
        wait_until(
            "nothing of a job is left",
            || self.leftovers().is_empty(),
            || format!("{:#?}", self.leftovers()),
        );
    }

    /// Output with everything that differs between runs replaced.
    pub(crate) fn plain(&self, text: &str) -> String {
        text.replace(&self.top.path().display().to_string(), "[TOP]")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for job in self.jobs() {
            let _ = self.command(&["down", "--job", &job]).output();
        }
        if !std::thread::panicking() {
            self.check_nothing_left();
        }
    }
}

pub(crate) fn done(output: &Output) -> Done {
    Done {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Done {
    /// Fails unless the command ended with `code`.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Fails unless standard error holds every one of `words`.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is missing in {self:#?}");
        }
        self
    }
}

/// `place` and everything below it.
fn files_below(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut found = vec![place.display().to_string()];
    found.extend(entries.flat_map(|entry| files_below(&entry.path())));
    found
}

#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool, found: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}: {}", found());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where snapshots lie.
fn snapshots() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/snapshots")
}

/// Names of the snapshots that begin so.
pub(crate) fn snapshots_of(start: &str) -> Vec<String> {
    let entries = fs::read_dir(snapshots()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(start)).collect()
}

/// Compares with a file in `tests/commands/snapshots`; with `UPDATE_SNAPSHOTS=1` writes it instead.
#[track_caller]
pub(crate) fn check_snapshot(name: &str, text: &str) {
    check_file(&snapshots().join(name), text);
}

/// The same with a file anywhere.
#[track_caller]
pub(crate) fn check_file(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(path, text).unwrap();
        return;
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let name = path.display();
    assert_eq!(text, kept, "{name} changed; if that is meant, run with UPDATE_SNAPSHOTS=1");
}

fn without_root() -> Option<&'static str> {
    (!rustix::process::geteuid().is_root()).then_some("needs root")
}

fn without_fuse() -> Option<&'static str> {
    fs::File::open("/dev/fuse").is_err().then_some("needs /dev/fuse")
}

fn unshares(what: &[&str]) -> bool {
    let tried = Command::new("unshare").args(what).arg("true").output();
    tried.is_ok_and(|output| output.status.success())
}
