//! A group of tests: one job for all of them, one after the other; and what it prints.
//!
//! There is no libtest harness, since a job must be stopped after the last test. Which groups run is decided by
//! [`crate::groups`].

use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use anyhow::Context;

use crate::job::{self, Backend, Job, JobOptions, profile};
use crate::wanted::Wanted;
use crate::{Scene, TestResult};

/// Tests that share a job.
pub struct Suite {
    name: &'static str,
    options: JobOptions,
    tests: Vec<(&'static str, Test)>,
}

/// What a test speaks of.
#[derive(Clone, Copy)]
enum Test {
    /// POSIX only: an ordinary directory must pass as well.
    Posix(fn(&Scene<'_>) -> TestResult),
    /// A real job.
    Job(fn(&Scene<'_>) -> TestResult),
    /// The binary: the test starts jobs of its own.
    Alone(fn() -> TestResult),
}

impl Suite {
    /// An empty group; `options` are those of its job.
    pub fn new(name: &'static str, options: JobOptions) -> Self {
        Self { name, options, tests: Vec::new() }
    }

    /// Adds a test that any POSIX file system passes.
    #[must_use]
    pub fn posix(mut self, name: &'static str, test: fn(&Scene<'_>) -> TestResult) -> Self {
        self.tests.push((name, Test::Posix(test)));
        self
    }

    /// Adds a test that needs a real job.
    #[must_use]
    pub fn job(mut self, name: &'static str, test: fn(&Scene<'_>) -> TestResult) -> Self {
        self.tests.push((name, Test::Job(test)));
        self
    }

    /// Adds a test that starts jobs of its own.
    #[must_use]
    pub fn alone(mut self, name: &'static str, test: fn() -> TestResult) -> Self {
        self.tests.push((name, Test::Alone(test)));
        self
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether one of its tests is asked for.
    pub(crate) fn is_wanted(&self, wanted: &Wanted) -> bool {
        self.tests.iter().any(|(name, ..)| wanted.has(name))
    }

    /// As libtest lists them.
    pub(crate) fn list(&self, wanted: &Wanted) {
        let names = self.tests.iter().map(|(name, ..)| name).filter(|name| wanted.has(name));
        names.for_each(|name| print(&format!("{name}: test")));
    }

    /// Runs the tests that are asked for; true when none failed.
    pub(crate) fn run(&self, wanted: &Wanted) -> bool {
        let tests: Vec<_> = self.tests.iter().filter(|(name, ..)| wanted.has(name)).collect();
        let profile = profile().unwrap_or_else(|| "native".into());
        print(&format!("\nrunning {} tests of {} ({profile})", tests.len(), self.name));
        let start = Instant::now();
        let (alone, shared): (Vec<_>, Vec<_>) =
            tests.iter().copied().partition(|(_, test)| matches!(test, Test::Alone(_)));
        let failed = self.run_shared(&shared)
            + alone.iter().filter(|(name, test)| !run_one(None, name, *test)).count();
        let seconds = start.elapsed().as_secs_f64();
        print(&format!("{}: {failed} failed of {}, {seconds:.1} s", self.name, tests.len()));
        failed == 0
    }

    /// Tests that share a job; returns how many failed.
    fn run_shared(&self, tests: &[&(&'static str, Test)]) -> usize {
        if tests.is_empty() {
            return 0;
        }
        let start = Instant::now();
        match Job::up(self.options.clone()) {
            Ok(job) => {
                print(&format!("job is up after {:.1} s", start.elapsed().as_secs_f64()));
                let failed = tests.iter().filter(|(name, test)| !run_one(Some(&job), name, *test));
                failed.count() + usize::from(!went_down(job))
            }
            Err(error) => {
                print(&format!("FAILED {}: no job: {error:#}", self.name));
                tests.len()
            }
        }
    }
}

fn run_one(job: Option<&Job>, name: &str, test: Test) -> bool {
    let plain = job::backend().is_ok_and(|backend| backend == Backend::Plain);
    if plain && !matches!(test, Test::Posix(_)) {
        print(&format!("SKIP {name}: speaks of hayase itself, and this is a plain directory"));
        return true;
    }
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| match (test, job) {
        (Test::Alone(test), _) => test(),
        (Test::Posix(test) | Test::Job(test), Some(job)) => {
            test(&Scene::new(job, name)?)?;
            job.reset_actors()
        }
        (Test::Posix(_) | Test::Job(_), None) => anyhow::bail!("there is no job"),
    }));
    let seconds = start.elapsed().as_secs_f64();
    let error = match outcome {
        Ok(Ok(())) => {
            print(&format!("ok {name} {seconds:.2} s"));
            return true;
        }
        Ok(Err(error)) => format!("{error:#}"),
        Err(panic) => format!("panic: {}", panic_text(&*panic)),
    };
    let logs = job.map(Job::logs).unwrap_or_default();
    print(&format!("FAILED {name} {seconds:.2} s: {error}\n{logs}"));
    if let Some(job) = job {
        job.restart_actors();
    }
    false
}

fn went_down(job: Job) -> bool {
    let start = Instant::now();
    match job.down() {
        Ok(()) => {
            print(&format!("job is down after {:.1} s", start.elapsed().as_secs_f64()));
            true
        }
        Err(error) => {
            print(&format!("FAILED down: {error:#}"));
            false
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Open when other processes print to the same place.
static TURN: OnceLock<File> = OnceLock::new();

/// Notes of the test that runs: they are printed with its result.
static NOTES: Mutex<String> = Mutex::new(String::new());

/// From here on whoever prints holds the lock of this file.
pub(crate) fn print_in_turns(file: &Path) -> anyhow::Result<()> {
    let file = File::create(file).with_context(|| format!("make {}", file.display()))?;
    TURN.get_or_init(|| file);
    Ok(())
}

/// Prints a result, with all that belongs to it, in one piece.
pub fn print(text: &str) {
    let notes = std::mem::take(&mut *NOTES.lock().expect("no holder panics"));
    let mut stdout = std::io::stdout().lock();
    let turn = TURN.get().filter(|file| file.lock().is_ok());
    // A closed pipe must not end a test run before its job is down.
    let _ = stdout.write_all(format!("{notes}{text}\n").as_bytes());
    let _ = turn.map(File::unlock);
}

/// Keeps a line until the result of the test is printed.
fn keep(line: &str) {
    let mut notes = NOTES.lock().expect("no holder panics");
    notes.push_str(line);
    notes.push('\n');
}

/// A test, or a part of it, that this machine can not run.
pub fn skip(name: &str, reason: &str) {
    keep(&format!("SKIP {name}: {reason}"));
}

/// A figure that a test found and that a person may want to see.
pub fn note(text: &str) {
    keep(&format!("     note: {text}"));
}
