//! Another user of the machine prepares what commands of root read: no command acts on it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::job::{binary, is_alive};
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{JobOptions, Suite, TestResult, Trial};

/// How long a command may take on a busy machine.
const COMMAND: Duration = Duration::from_secs(60);

/// The one who attacks; there need be no such user.
const STRANGER: u32 = 4711;

pub(crate) fn suite() -> Suite {
    Suite::new("strangers", JobOptions::three())
        .alone("strangers_registry_is_not_read", registry_is_not_read)
        .alone("strangers_job_directory_is_not_read", job_directory_is_not_read)
        .alone("strangers_can_not_swap_the_way_to_a_job", way_can_not_be_swapped)
        .alone("strangers_places_are_not_used", places_are_not_used)
}

/// A job of root, and a copy of its directory by which a stranger would lead commands of root to its processes, mounts
/// and files.
struct Bait {
    trial: Trial,
    daemons: Vec<u32>,
    copy: PathBuf,
}

impl Bait {
    fn new() -> anyhow::Result<Self> {
        let trial = Trial::new()?;
        run(&mut trial.up(&JobOptions::nodes(1))?, COMMAND)?.success()?;
        let pid = |line: String| line.split(':').next().and_then(|pid| pid.parse().ok());
        let daemons: Vec<u32> = trial.processes().into_iter().filter_map(pid).collect();
        ensure!(daemons.len() >= 3, "daemons: {daemons:?}");
        let above = trial.tree().path().join("stranger");
        let copy = above.join("run/jobs/bait");
        fs::create_dir_all(copy.parent().context("it was joined")?)?;
        copy_all(&trial.tree().job_dir(), &copy)?;
        give_all(&above)?;
        Ok(Self { trial, daemons, copy })
    }

    fn above(&self) -> PathBuf {
        self.trial.tree().path().join("stranger")
    }

    /// All above the copy.
    fn give_way_to_root(&self) -> TestResult {
        let above = self.above();
        let mut way = self.copy.ancestors().skip(1).take_while(|path| path.starts_with(&above));
        Ok(way.try_for_each(|path| chown(path, Some(0), None))?)
    }

    /// Every command that reads a job or the registry, with what the stranger wants it to read. None does anything.
    fn expect_refused(&self, name: &Path, runtime: Option<&Path>, why: &str) -> TestResult {
        let before = all_below(&self.above())?;
        let job = ["--job".as_ref(), name.as_os_str()];
        let plain: [&[&str]; 12] = [
            &["status"],
            &["exec", "--", "true"],
            &["exec", "--node", "0", "--", "true"],
            &["down"],
            &["down", "--here"],
            &["down", "--discard"],
            &["flush"],
            &["top", "--count", "1"],
            &["report", "--output", "/dev/null"],
            &["flush", "--verify"],
            &["status", "--prometheus"],
            &["status", "--ledger"],
        ];
        for words in plain {
            let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            let mut command = Process::new(binary()?);
            command.args(&words[..at]).args(job).args(&words[at..]);
            self.expect_refusal(&mut command, runtime, why)?;
        }
        let mut resume = Process::new(binary()?);
        self.expect_refusal(resume.arg("resume").arg(&self.copy), runtime, "is not used: ")?;
        let after = all_below(&self.above())?;
        ensure!(before == after, "files of the stranger have changed: {before:?} {after:?}");
        self.expect_untouched()
    }

    fn expect_refusal(
        &self,
        command: &mut Process,
        runtime: Option<&Path>,
        why: &str,
    ) -> TestResult {
        if let Some(runtime) = runtime {
            command.env("HAYASE_RUNTIME_DIR", runtime);
        }
        let found: Finished = run(command, COMMAND)?;
        ensure!(found.code.is_some_and(|code| code != 0), "{command:?} ended well: {found:?}");
        ensure!(found.stderr.contains(why), "{command:?} does not say why: {found:?}");
        self.expect_untouched().with_context(|| format!("after {command:?}"))
    }

    fn expect_untouched(&self) -> TestResult {
        let dead: Vec<_> = self.daemons.iter().filter(|pid| !is_alive(**pid)).collect();
        ensure!(dead.is_empty(), "processes {dead:?} have ended");
        ensure!(self.trial.tree().job_dir().exists(), "the job directory is gone");
        ensure!(!self.trial.stored().is_empty(), "the storage is gone");
        Ok(())
    }

    fn end(self) -> TestResult {
        let mut down = Process::new(binary()?);
        run(down.arg("down").arg("--job").arg(self.trial.tree().job_dir()), COMMAND)?.success()?;
        self.trial.expect_nothing_left(COMMAND)?;
        self.trial.end()
    }
}

/// The directory of jobs was made by a stranger, before its user's first command.
fn registry_is_not_read() -> TestResult {
    let bait = Bait::new()?;
    let runtime = bait.above().join("run");
    let why = "belongs to another user, or others can enter it";
    bait.expect_refused(Path::new("bait"), Some(&runtime), why)?;
    for words in [&["status"][..], &["down"], &["up", "--nodes", "1"], &["evict", "/tmp"]] {
        let mut command = Process::new(binary()?);
        bait.expect_refusal(command.args(words), Some(&runtime), why)?;
    }
    // One of the user's own that leads to the stranger's is no better.
    let own = bait.trial.tree().path().join("own");
    fs::create_dir_all(own.join("jobs"))?;
    for path in [&own, &own.join("jobs")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    symlink(&bait.copy, own.join("jobs/bait"))?;
    bait.expect_refused(Path::new("bait"), Some(&own), "belongs to user 4711")?;
    fs::remove_dir_all(&own)?;
    bait.end()
}

/// A job directory of a stranger, by its path.
fn job_directory_is_not_read() -> TestResult {
    let bait = Bait::new()?;
    bait.expect_refused(&bait.copy.clone(), None, "belongs to user 4711")?;
    bait.give_way_to_root()?;
    bait.expect_refused(&bait.copy.clone(), None, "it belongs to user 4711")?;
    fs::set_permissions(&bait.copy, fs::Permissions::from_mode(0o777))?;
    chown(&bait.copy, Some(0), None)?;
    bait.expect_refused(&bait.copy.clone(), None, "others can write to it")?;
    bait.end()
}

/// A directory of root's own, in a place where a stranger can put another one in its stead at any moment.
fn way_can_not_be_swapped() -> TestResult {
    let bait = Bait::new()?;
    chown(&bait.copy, Some(0), None)?;
    fs::set_permissions(&bait.copy, fs::Permissions::from_mode(0o700))?;
    bait.expect_refused(&bait.copy.clone(), None, "on the way to it belongs to user 4711")?;
    bait.give_way_to_root()?;
    fs::set_permissions(bait.above(), fs::Permissions::from_mode(0o777))?;
    bait.expect_refused(&bait.copy.clone(), None, "others can replace what is in")?;
    bait.end()
}

/// Storage, mount point and job directory in a place of a stranger, and the default storage that a stranger made first.
fn places_are_not_used() -> TestResult {
    let bait = Bait::new()?;
    let theirs = bait.above().join("place");
    fs::create_dir(&theirs)?;
    chown(&theirs, Some(STRANGER), None)?;
    let temporary = bait.trial.tree().path().join("tmp");
    fs::create_dir_all(temporary.join("hayase-0-storage"))?;
    chown(temporary.join("hayase-0-storage"), Some(STRANGER), None)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777))?;
    for options in
        [&["--storage", "place"][..], &["--mount", "place/areas"], &["--job-dir", "place/job"], &[]]
    {
        let mut up = Process::new(binary()?);
        up.args(["up", "--nodes", "1", "--shared", "16M", "--local", "16M"]).args(options);
        up.current_dir(bait.above()).env("TMPDIR", &temporary);
        bait.expect_refusal(&mut up, None, "belongs to user 4711")?;
        ensure!(fs::read_dir(&theirs)?.next().is_none(), "something is in the stranger's place");
    }
    fs::remove_dir_all(&temporary)?;
    bait.end()
}

fn copy_all(from: &Path, to: &Path) -> TestResult {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn give_all(path: &Path) -> TestResult {
    lchown(path, Some(STRANGER), Some(STRANGER))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_all(&entry?.path())?;
        }
    }
    Ok(())
}

/// Every path below, with its bytes.
fn all_below(path: &Path) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let kind = path.symlink_metadata()?.file_type();
        let bytes = if kind.is_file() { fs::read(&path)? } else { Vec::new() };
        found.push((path.clone(), bytes));
        if kind.is_dir() {
            found.extend(all_below(&path)?);
        }
    }
    found.sort();
    Ok(found)
}
