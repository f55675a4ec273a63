//! The runner of one group of tests: one job for all of them, one after the other.
//!
//! Test programs have no libtest harness, since a job must be stopped after the last test. The
//! command line is libtest's where it matters: names to run, `--list`, `--exact`, `--skip NAME`.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::job::{self, Backend, Job, JobOptions, profile};
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

    /// Runs what the command line asks for.
    pub fn run(self) -> ExitCode {
        let wanted = Wanted::from_arguments();
        let tests: Vec<_> = self.tests.iter().filter(|(name, ..)| wanted.has(name)).collect();
        if wanted.list {
            tests.iter().for_each(|(name, ..)| print(&format!("{name}: test")));
            return ExitCode::SUCCESS;
        }
        if tests.is_empty() {
            return ExitCode::SUCCESS;
        }
        let profile = profile().unwrap_or_else(|| "native".into());
        print(&format!("\nrunning {} tests of {} ({profile})", tests.len(), self.name));
        let start = Instant::now();
        let (alone, shared): (Vec<_>, Vec<_>) =
            tests.iter().copied().partition(|(_, test)| matches!(test, Test::Alone(_)));
        let failed = self.run_shared(&shared)
            + alone.iter().filter(|(name, test)| !run_one(None, name, *test)).count();
        let seconds = start.elapsed().as_secs_f64();
        print(&format!("{}: {failed} failed of {}, {seconds:.1} s", self.name, tests.len()));
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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

struct Wanted {
    list: bool,
    exact: bool,
    names: Vec<String>,
    skip: Vec<String>,
}

impl Wanted {
    fn from_arguments() -> Self {
        let mut wanted = Self { list: false, exact: false, names: vec![], skip: vec![] };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => wanted.list = true,
                "--exact" => wanted.exact = true,
                "--skip" => wanted.skip.extend(arguments.next()),
                // Of libtest, with a value that means nothing here.
                "--test-threads" | "--format" | "--color" => drop(arguments.next()),
                flag if flag.starts_with('-') => {}
                name => wanted.names.push(name.to_owned()),
            }
        }
        wanted
    }

    fn has(&self, test: &str) -> bool {
        let matches = |name: &String| {
            if self.exact { test == name } else { test.contains(name.as_str()) }
        };
        (self.names.is_empty() || self.names.iter().any(matches)) && !self.skip.iter().any(matches)
    }
}

/// A line of the test run's own output.
pub fn print(line: &str) {
    // A closed pipe must not end a test run before its job is down.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A test, or a part of it, that this machine can not run.
pub fn skip(name: &str, reason: &str) {
    print(&format!("SKIP {name}: {reason}"));
}

/// A figure that a test found and that a person may want to see.
pub fn note(text: &str) {
    print(&format!("     note: {text}"));
}
