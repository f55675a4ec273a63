//! Another user of the machine prepares what commands of root read: no command acts on it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::job::{binary, is_alive};
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{JobOptions, Suite, TestResult, Trial};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

/// How long a command may take on a busy machine.
const COMMAND: Duration = Duration::from_secs(60);

/// The one who attacks; there need be no such user.
const STRANGER: u32 = 4711;

/// A user that every system knows.
const SOMEBODY: u32 = 65534;

/// How often each command runs while what it reads is swapped.
const ROUNDS: usize = 8;

pub(crate) fn suite() -> Suite {
    Suite::new("strangers", JobOptions::three())
        .alone("strangers_registry_is_not_read", registry_is_not_read)
        .alone("strangers_job_directory_is_not_read", job_directory_is_not_read)
        .alone("strangers_links_choose_no_job", links_choose_no_job)
        .alone("strangers_can_not_swap_the_way_to_a_job", way_can_not_be_swapped)
        .alone("strangers_places_are_not_used", places_are_not_used)
        .alone("strangers_swaps_are_not_followed", swaps_are_not_followed)
        .alone("strangers_processes_are_none_of_roots_jobs", processes_are_no_jobs)
        .alone("strangers_links_lead_no_epilog", links_lead_no_epilog)
        .alone("strangers_keep_what_a_prolog_finds", prolog_removes_nothing)
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

/// A link of a stranger leads to a job of root's own: no command acts on what the stranger has chosen.
fn links_choose_no_job() -> TestResult {
    let bait = Bait::new()?;
    let tree = bait.trial.tree().path().to_owned();
    let (public, own) = (tree.join("public"), tree.join("own"));
    fs::create_dir(&public)?;
    fs::set_permissions(&public, fs::Permissions::from_mode(0o1777))?;
    fs::create_dir_all(own.join("jobs"))?;
    for path in [&own, &own.join("jobs")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    let why = "belongs to user 4711";
    for link in [bait.above().join("link"), public.join("link")] {
        symlink(bait.trial.tree().job_dir(), &link)?;
        lchown(&link, Some(STRANGER), None)?;
        bait.expect_refused(&link, None, why)?;
        let mut resume = Process::new(binary()?);
        bait.expect_refusal(resume.arg("resume").arg(&link), None, why)?;
        let mut status = Process::new(binary()?);
        bait.expect_refusal(status.arg("status").env("HAYASE_JOB", &link), None, why)?;
        // Nor where an entry of root's own leads to the link.
        symlink(&link, own.join("jobs/bait"))?;
        bait.expect_refused(Path::new("bait"), Some(&own), why)?;
        let mut down = Process::new(binary()?);
        bait.expect_refusal(down.arg("down").env_remove("HAYASE_JOB"), Some(&own), why)?;
        fs::remove_file(own.join("jobs/bait"))?;
    }
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

/// Exchanges what two paths lead to, all the time.
struct Swapper {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<rustix::io::Result<u64>>,
}

impl Swapper {
    fn start(one: &Path, two: &Path) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (end, one, two) = (is_over.clone(), one.to_owned(), two.to_owned());
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !end.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE)?;
                swaps += 1;
            }
            Ok(swaps)
        });
        Self { is_over, thread }
    }

    fn end(self) -> TestResult {
        self.is_over.store(true, Ordering::Relaxed);
        let swaps =
            self.thread.join().map_err(|_| anyhow::anyhow!("the swapper has panicked"))??;
        ensure!(swaps > 0, "nothing was swapped");
        Ok(())
    }
}

/// A directory of root takes turns with a link to what a stranger has prepared: more than a stranger could do where root's
/// commands look at all. So do two names of a stranger in a place where everybody can make some.
fn swaps_are_not_followed() -> TestResult {
    let bait = Bait::new()?;
    let public = bait.trial.tree().path().join("public");
    let (name, link) = (public.join("name"), public.join("link"));
    fs::create_dir(&public)?;
    fs::set_permissions(&public, fs::Permissions::from_mode(0o1777))?;
    let before = all_below(&bait.above())?;
    let job: [&[&str]; 5] = [
        &["resume"],
        &["status", "--job"],
        &["exec", "--node", "0", "--job"],
        &["down", "--here", "--job"],
        &["down", "--job"],
    ];
    let registry: [&[&str]; 4] = [&["status"], &["down", "--here"], &["down"], &["flush"]];
    for (theirs, commands, is_registry) in
        [(bait.copy.clone(), &job[..], false), (bait.above().join("run"), &registry[..], true)]
    {
        fs::create_dir_all(name.join("jobs"))?;
        for path in [&name, &name.join("jobs")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        }
        symlink(theirs, &link)?;
        lchown(&link, Some(STRANGER), None)?;
        let swapper = Swapper::start(&name, &link);
        let tried = (0..ROUNDS).try_for_each(|_| {
            commands.iter().try_for_each(|words| bait.run_on(words, &name, is_registry))
        });
        swapper.end()?;
        tried?;
        let after = all_below(&bait.above())?;
        ensure!(before == after, "files of the stranger have changed: {before:?} {after:?}");
        fs::remove_dir_all(&public)?;
        fs::create_dir(&public)?;
        fs::set_permissions(&public, fs::Permissions::from_mode(0o1777))?;
    }
    bait.expect_no_place(&name, &link)?;
    bait.end()
}

impl Bait {
    /// Runs a command on a job or a registry that is swapped: it may find nothing, or refuse what it finds.
    fn run_on(&self, words: &[&str], place: &Path, is_registry: bool) -> TestResult {
        let mut command = Process::new(binary()?);
        command.args(words).env_remove("HAYASE_JOB");
        match is_registry {
            true => command.env("HAYASE_RUNTIME_DIR", place),
            false => command.arg(place),
        };
        if words[0] == "exec" {
            command.args(["--", "true"]);
        }
        let found = run(&mut command, COMMAND)?;
        ensure!(is_registry || found.code != Some(0), "{command:?} ended well: {found:?}");
        self.expect_untouched().with_context(|| format!("after {command:?}: {found:?}"))
    }

    /// `up` makes nothing in a place of a stranger, nor where their link leads, while both take turns.
    fn expect_no_place(&self, name: &Path, link: &Path) -> TestResult {
        let outside = self.trial.tree().path().join("outside");
        fs::create_dir(&outside)?;
        fs::create_dir(name)?;
        symlink(&outside, link)?;
        lchown(link, Some(STRANGER), None)?;
        chown(name, Some(STRANGER), None)?;
        let swapper = Swapper::start(name, link);
        let tried: TestResult = (0..ROUNDS).try_for_each(|_| {
            for option in ["--storage", "--mount", "--job-dir"] {
                let mut up = Process::new(binary()?);
                up.args(["up", "--nodes", "1", "--shared", "16M", "--local", "16M", option]);
                up.arg(if option == "--job-dir" { name.join("job") } else { name.to_owned() });
                self.expect_refusal(&mut up, None, "belongs to user 4711")?;
            }
            Ok(())
        });
        swapper.end()?;
        tried?;
        let made = [all_below(&outside)?, all_below(name)?, all_below(link)?].concat();
        ensure!(made.is_empty(), "up has made {made:?}");
        Ok(())
    }
}

/// A process of another user that ends with this.
struct Sleeper(Child);

impl Sleeper {
    fn start(user: u32) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt;
        Ok(Self(Process::new("sleep").arg("1000").uid(user).gid(user).spawn()?))
    }

    /// As the files of a job name it.
    fn named(&self) -> anyhow::Result<Value> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let (_, fields) = stat.rsplit_once(") ").context("its name has an end")?;
        let start: u64 = fields.split(' ').nth(19).context("it has a start")?.parse()?;
        Ok(json!({ "pid": self.0.id(), "start": start }))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A registry and a job of root's own that name a process of another user, as the kernel may have given its number away.
fn processes_are_no_jobs() -> TestResult {
    let bait = Bait::new()?;
    let tree = bait.trial.tree().path().to_owned();
    let (own, mut sleeper) = (tree.join("own"), Sleeper::start(STRANGER)?);
    let copy = own.join("jobs/named");
    for command in [&["status"][..], &["exec", "--node", "0"], &["down", "--here"], &["down"]] {
        fs::create_dir_all(own.join("jobs"))?;
        for path in [&own, &own.join("jobs")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        }
        copy_all(&bait.trial.tree().job_dir(), &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o700))?;
        let named = sleeper.named()?;
        let other = BTreeMap::from([
            ("job", json!("named")),
            ("mark", json!("00000000000000000000000000000000")),
            ("storage", json!(tree.join("own-storage"))),
            ("mount", json!(tree.join("own-mount"))),
            ("runtime", json!(own)),
            ("made", json!([])),
            ("launcher", named.clone()),
        ]);
        rewrite(&copy.join("job.json"), &other)?;
        rewrite(&copy.join("node-0/supervisor.json"), &BTreeMap::from([("process", named)]))?;
        let mut process = Process::new(binary()?);
        process.args(command).args(["--job", "named"]).env("HAYASE_RUNTIME_DIR", &own);
        if command[0] == "exec" {
            process.args(["--", "true"]);
        }
        let found = run(&mut process, COMMAND)?;
        ensure!(sleeper.0.try_wait()?.is_none(), "{process:?} has ended it: {found:?}");
        let is_down =
            found.stdout.contains("dead") || found.stderr.contains("not running any more");
        ensure!(command[0] == "down" || is_down, "{process:?} took it for the job: {found:?}");
        bait.expect_untouched().with_context(|| format!("after {process:?}: {found:?}"))?;
        fs::remove_dir_all(&own)?;
    }
    bait.end()
}

/// Replaces fields of a file of a job and of its copy, which have a checksum over their text.
fn rewrite(path: &Path, fields: &BTreeMap<&str, Value>) -> TestResult {
    let mut found: Value = serde_json::from_slice(&fs::read(path)?)?;
    let all = found.as_object_mut().context("it is a structure")?;
    all.remove("checksum").context("it has a checksum")?;
    for (name, value) in fields {
        all.insert((*name).to_owned(), value.clone()).with_context(|| format!("no {name}"))?;
    }
    let text = serde_json::to_string_pretty(&found)?;
    let body = text.strip_suffix("\n}").context("it is a structure")?;
    let sum = blake3::hash(body.as_bytes()).to_hex();
    let text = format!("{body},\n  \"checksum\": \"{}\"\n}}\n", &sum[..32]);
    let mut copy = path.as_os_str().to_owned();
    copy.push(".copy");
    fs::write(path, &text)?;
    Ok(fs::write(copy, text)?)
}

/// The registry of a user, which root's epilog looks at; it has to have its usual place.
struct UserRegistry(PathBuf);

impl UserRegistry {
    fn of(user: u32) -> anyhow::Result<Self> {
        let path = PathBuf::from(format!("/tmp/hayase-{user}"));
        fs::create_dir(&path)?;
        let made = Self(path);
        fs::create_dir(made.0.join("jobs"))?;
        for path in [&made.0, &made.0.join("jobs")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            chown(path, Some(user), None)?;
        }
        Ok(made)
    }
}

impl Drop for UserRegistry {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The registry of a user leads root's epilog to a job of root, and the place of its storage to something of root's.
fn links_lead_no_epilog() -> TestResult {
    let bait = Bait::new()?;
    let tree = bait.trial.tree().path().to_owned();
    let (disk, outside) = (tree.join("disk"), tree.join("outside"));
    let (registry, storage) = (UserRegistry::of(SOMEBODY)?, disk.join("hayase-7"));
    let entry = registry.0.join("jobs/slurm-7");
    symlink(bait.trial.tree().job_dir(), &entry)?;
    lchown(&entry, Some(SOMEBODY), None)?;
    for path in [&disk, &outside, &tree.join("bin")] {
        fs::create_dir(path)?;
    }
    fs::write(outside.join("bytes"), "of root")?;
    fs::write(tree.join("bin/logger"), "#!/bin/sh\ncat >>\"$LOG\"\n")?;
    fs::set_permissions(tree.join("bin/logger"), fs::Permissions::from_mode(0o755))?;
    symlink(&outside, &storage)?;
    lchown(&storage, Some(SOMEBODY), None)?;
    let epilog = || -> anyhow::Result<String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/slurm/epilog.sh");
        let mut epilog = Process::new("sh");
        epilog.arg(script).env("HAYASE", binary()?).env("HAYASE_DISK", &disk);
        epilog.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", tree.join("bin").display()));
        epilog.env("LOG", tree.join("log")).env("SLURM_JOB_ID", "7");
        epilog.env("SLURM_JOB_UID", SOMEBODY.to_string()).env("SLURM_JOB_GID", "65534");
        run(&mut epilog, COMMAND)?.success()?;
        let log = fs::read_to_string(tree.join("log")).unwrap_or_default();
        bait.expect_untouched().with_context(|| format!("after the epilog: {log}"))?;
        ensure!(outside.join("bytes").exists(), "it has removed what is root's: {log}");
        Ok(log)
    };
    let log = epilog()?;
    ensure!(log.contains("is kept: hayase down --here ended with"), "{log}");
    fs::remove_file(&entry)?;
    let log = epilog()?;
    ensure!(log.contains("is not touched"), "{log}");
    // One that somebody else has made.
    fs::remove_file(&storage)?;
    fs::create_dir(&storage)?;
    chown(&storage, Some(STRANGER), None)?;
    let log = epilog()?;
    ensure!(log.contains("this is: directory 4711") && storage.exists(), "{log}");
    bait.end()
}

/// Strangers have made the place of a job's storage before root's prolog: nothing of theirs is removed, and nothing is given to
/// the job's user but what root has made.
fn prolog_removes_nothing() -> TestResult {
    let trial = Trial::new()?;
    let tree = trial.tree().path().to_owned();
    let (disk, outside, log) = (tree.join("disk"), tree.join("outside"), tree.join("log"));
    let storage = disk.join("hayase-7");
    for path in [&disk, &outside, &tree.join("bin")] {
        fs::create_dir(path)?;
    }
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o1777))?;
    fs::write(tree.join("bin/logger"), "#!/bin/sh\ncat >>\"$LOG\"\n")?;
    fs::set_permissions(tree.join("bin/logger"), fs::Permissions::from_mode(0o755))?;
    let prolog = || -> anyhow::Result<String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/slurm/prolog.sh");
        let mut prolog = Process::new("sh");
        prolog.arg(script).env("HAYASE_DISK", &disk).env("LOG", &log);
        prolog.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", tree.join("bin").display()));
        prolog.env("SLURM_JOB_ID", "7").env("SLURM_JOB_UID", SOMEBODY.to_string());
        let _ = fs::remove_file(&log);
        run(&mut prolog, COMMAND)?.success()?;
        Ok(fs::read_to_string(&log).unwrap_or_default())
    };
    let expect_made = || -> TestResult {
        let found = fs::symlink_metadata(&storage)?;
        let (mode, user) = (found.mode() & 0o7777, found.uid());
        ensure!(found.is_dir() && (mode, user) == (0o700, SOMEBODY), "{mode:o} of user {user}");
        Ok(())
    };
    ensure!(prolog()?.is_empty(), "there was nothing to log");
    expect_made()?;
    // A second try finds the directory of the first.
    fs::write(storage.join("bytes"), "of the job")?;
    ensure!(prolog()?.is_empty() && storage.join("bytes").exists(), "the first try is gone");

    fs::write(outside.join("bytes"), "of root")?;
    let theirs: [fn(&Path, &Path) -> std::io::Result<()>; 3] = [
        |place, _| fs::create_dir(place).and_then(|()| fs::write(place.join("bytes"), "theirs")),
        |place, _| fs::write(place, "theirs"),
        |place, outside| symlink(outside, place),
    ];
    for (number, make) in theirs.iter().enumerate() {
        fs::remove_dir_all(&storage)?;
        make(&storage, &outside)?;
        give_all(&storage)?;
        let log = prolog()?;
        expect_made().with_context(|| format!("{number}: {log}"))?;
        let aside = log.split(" it is ").nth(1).and_then(|rest| rest.split(" now").next());
        let aside = PathBuf::from(aside.with_context(|| format!("{number}: {log}"))?);
        let found = fs::symlink_metadata(&aside)?;
        ensure!(found.uid() == STRANGER, "{number}: of user {}", found.uid());
        let bytes =
            if found.is_dir() { fs::read(aside.join("bytes"))? } else { b"theirs".to_vec() };
        ensure!(bytes == b"theirs", "{number}: {bytes:?}");
    }
    ensure!(fs::read(outside.join("bytes"))? == b"of root", "a link was followed");
    let owner = fs::metadata(outside.join("bytes"))?.uid();
    ensure!(owner == 0, "what a link led to was given to user {owner}");

    // What can not be moved stays, and drains no node; nor does it become the user's where its file system says that it is root's.
    fs::remove_dir_all(&storage)?;
    fs::create_dir(&storage)?;
    for (options, user) in [(c"uid=4711", STRANGER), (c"uid=0", 0)] {
        mount("theirs", &storage, "tmpfs", MountFlags::empty(), options)?;
        let (log, shown) = (prolog(), fs::symlink_metadata(&storage)?.uid());
        unmount(&storage, UnmountFlags::DETACH)?;
        let log = log?;
        ensure!(shown == user && log.contains("has no storage there"), "{user} {shown}: {log}");
    }

    // An earlier try was killed before it gave the directory away.
    fs::remove_dir(&storage)?;
    fs::DirBuilder::new().mode(0o700).create(&storage)?;
    ensure!(prolog()?.is_empty(), "it was root's own");
    expect_made()?;
    trial.end()
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
