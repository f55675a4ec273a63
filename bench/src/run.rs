//! One bench from its first group to its last line.

use std::path::PathBuf;

use anyhow::{Context, ensure};

use crate::bench::Bench;
use crate::report::conditions::Conditions;
use crate::report::goal::Goal;
use crate::report::{Outcome, output, page, raw};

/// Measurements that share their conditions and are repeated together.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// Measures.
    pub(crate) run: fn(&Bench) -> anyhow::Result<Outcome>,
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
}

/// Runs all groups; true when all goals hold.
pub(crate) fn run(
    name: &str,
    intro: &str,
    groups: &[Group],
    arguments: &RunArguments,
) -> anyhow::Result<bool> {
    for only in &arguments.only {
        let names: Vec<_> = groups.iter().map(|group| group.name).collect();
        ensure!(names.contains(&only.as_str()), "no group `{only}`: there are {names:?}");
    }
    let storage = arguments.storage.clone().unwrap_or_else(std::env::temp_dir);
    let mut conditions = Conditions::now(&storage, arguments.quick);
    let bench =
        Bench::new(arguments.hayase.clone(), &storage, arguments.quick, arguments.precedence)?;
    let wanted = |group: &&Group| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| only == group.name)
    };
    let outcomes: Vec<(&str, Outcome)> =
        groups.iter().filter(wanted).map(|group| (group.title, run_group(&bench, group))).collect();
    drop(bench);
    conditions.end();
    for (name, value) in conditions.pairs() {
        output::line(&format!("{name}: {value}"));
    }
    let path = raw::write(name, &conditions, &outcomes).context("keep the raw samples")?;
    output::line(&format!("raw samples: {}", path.display()));
    if arguments.write_docs {
        let path = page::write(name, intro, &conditions, &outcomes).context("write the page")?;
        output::line(&format!("page: {}", path.display()));
    }
    let goals: Vec<&Goal> = outcomes.iter().flat_map(|(_, outcome)| &outcome.goals).collect();
    for goal in &goals {
        output::line(&goal.to_string());
    }
    Ok(goals.iter().all(|goal| goal.verdict().is_good()))
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
    output::line(&format!("\n{}", group.title));
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
