//! One bench from its first group to its last line.

use std::path::PathBuf;

use anyhow::{Context, ensure};

use crate::against::{Against, PAIRS_FULL, PAIRS_LEAST};
use crate::bench::{Bench, Manner};
use crate::build::Build;
use crate::report::conditions::Conditions;
use crate::report::goal::Goal;
use crate::report::summary::Summary;
use crate::report::{Outcome, output, page, raw, subjects};

/// Measurements that share their conditions and are repeated together.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// How two builds are compared by it.
    pub(crate) compared: Compared,
    /// Measures.
    pub(crate) run: fn(&Bench) -> anyhow::Result<Outcome>,
}

/// What two builds are compared by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compared {
    /// Samples: amounts of work, and what they took. Variants of these names are yardsticks, not the product.
    Work(&'static [&'static str]),
    /// The figures of the goals: the samples are readings (memory, wake-ups), not work.
    Figures,
    /// Nothing: what is measured is linked into the bench itself.
    Linked,
}

/// How a bench is run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// The same goals in 5 minutes: fewer rounds, shorter blocks
    #[arg(long)]
    quick: bool,
    /// Write the page in docs/results
    #[arg(long)]
    write_docs: bool,
    /// Let what is measured, A and B alike, go before other programs of a busy machine (real-time)
    #[arg(long)]
    precedence: bool,
    /// Only these groups of goals
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    only: Vec<String>,
    /// A directory on a local disk, for images [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    storage: Option<PathBuf>,
    /// The product [default: beside this program]
    #[arg(long, value_name = "PROGRAM")]
    hayase: Option<PathBuf>,
    /// Compare with another build, measured in turn with this one
    ///
    /// DIR holds its `hayase` and `libhayase_mpiio.so`, or is a checkout with them in target/release. Groups that
    /// measure the client library or a server's ring also need its `hayase-bench`. Where a document or an issue says
    /// "before" or "today" without a commit, it means commit 5057efb.
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// How many times its cost before a cost may be
    #[arg(long, value_name = "RATIO", default_value_t = 1.05, requires = "against")]
    within: f64,
    /// How often each of the two builds runs a group [default: 12, or 6 with --quick]
    #[arg(long, value_name = "COUNT", requires = "against")]
    pairs: Option<usize>,
}

impl RunArguments {
    /// Each of two builds runs every group often: with short rounds.
    fn manner(&self) -> Manner {
        Manner { quick: self.quick || self.against.is_some(), precedence: self.precedence }
    }

    fn against(&self, this: &Bench, before: Option<Build>) -> anyhow::Result<Option<Against>> {
        let Some(before) = before else { return Ok(None) };
        if before.hayase() == this.hayase() {
            this.warn("this build is compared with itself");
        }
        let pairs = self.pairs.unwrap_or(if self.quick { PAIRS_LEAST } else { PAIRS_FULL });
        Against::new(this.of_build(before), self.within, pairs).map(Some)
    }

    fn wants(&self, group: &Group) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == group.name)
    }
}

/// Runs all groups; true when all goals hold.
pub(crate) fn run(
    name: &str,
    summary: &Summary,
    intro: &str,
    groups: &[Group],
    arguments: &RunArguments,
) -> anyhow::Result<bool> {
    for only in &arguments.only {
        let names: Vec<_> = groups.iter().map(|group| group.name).collect();
        ensure!(names.contains(&only.as_str()), "no group `{only}`: there are {names:?}");
    }
    let before = arguments.against.as_deref().map(Build::before).transpose()?;
    let name =
        if before.is_some() { format!("{name}{}", subjects::AGAINST) } else { name.to_owned() };
    let storage = arguments.storage.clone().unwrap_or_else(std::env::temp_dir);
    let mut conditions = Conditions::now(&storage, arguments.quick, before.as_ref());
    let outcomes = measure(&storage, groups, arguments, before)?;
    conditions.end();
    report(&name, summary, intro, &conditions, &outcomes, arguments.write_docs)?;
    let goals: Vec<&Goal> = outcomes.iter().flat_map(|(_, outcome)| &outcome.goals).collect();
    for goal in &goals {
        output::line(&goal.to_string());
    }
    Ok(goals.iter().all(|goal| goal.verdict().is_good()))
}

/// All groups that are wanted, by this build, or by this and `before`.
fn measure<'a>(
    storage: &std::path::Path,
    groups: &'a [Group],
    arguments: &RunArguments,
    before: Option<Build>,
) -> anyhow::Result<Vec<(&'a str, Outcome)>> {
    let bench = Bench::new(arguments.hayase.clone(), storage, arguments.manner())?;
    let against = arguments.against(&bench, before)?;
    let outcome = |group: &'a Group| {
        output::line(&format!("\n{}", group.title));
        let outcome = match &against {
            Some(against) => {
                let outcome = against.run_group(&bench, group);
                show(&outcome);
                outcome
            }
            None => run_group(&bench, group),
        };
        (group.title, outcome)
    };
    Ok(groups.iter().filter(|group| arguments.wants(group)).map(outcome).collect())
}

/// The conditions, where the samples are, and the page.
fn report(
    name: &str,
    summary: &Summary,
    intro: &str,
    conditions: &Conditions,
    outcomes: &[(&str, Outcome)],
    write_docs: bool,
) -> anyhow::Result<()> {
    for (name, value) in conditions.pairs() {
        output::line(&format!("{name}: {value}"));
    }
    let path = raw::write(name, conditions, outcomes).context("keep the raw samples")?;
    output::line(&format!("raw samples: {}", path.display()));
    if write_docs {
        let path =
            page::write(name, summary, intro, conditions, outcomes).context("write the page")?;
        output::line(&format!("page: {}", path.display()));
    }
    Ok(())
}

/// Once, and once more when it was noisy. An error is a goal that fell short: the other groups go on.
fn run_group(bench: &Bench, group: &Group) -> Outcome {
    let measure = || {
        (group.run)(bench).unwrap_or_else(|error| {
            bench.warn(&format!("{}: {error:#}", group.title));
            let goals = vec![Goal::failed(group.title, &error)];
            Outcome { goals, ..Outcome::default() }
        })
    };
    let mut outcome = measure();
    show(&outcome);
    if outcome.is_noisy() {
        output::line("A against A was not within 0.9 to 1.1: once more");
        let again = measure();
        show(&again);
        outcome = outcome.repeated(again);
    }
    outcome
}

fn show(outcome: &Outcome) {
    for note in &outcome.notes {
        output::line(note);
    }
    for table in &outcome.tables {
        output::line(&table.to_text());
    }
}
