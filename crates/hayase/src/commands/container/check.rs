//! `hayase container check`.

use std::path::{Path, PathBuf};

use hayase_container::{Problem, Report, Severity, check, containers_below};
use serde::Serialize;

use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Check all blocks, checksums, records and parts of containers
///
/// Lists each problem and where it is. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// A container, or a directory to process all containers below it
    #[arg(value_name = "DIR|FILE")]
    path: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  hayase container check /lustre/me/run7/checkpoint
  hayase container check --json /lustre/me/run7

Exit codes:
  0 no damage; 1 published data cannot be read.";

#[derive(Debug, Serialize)]
struct Checked {
    containers: usize,
    sound: usize,
    problems: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    container: PathBuf,
    /// `damage`, `unpublished` or `note`.
    severity: &'static str,
    path: PathBuf,
    /// Byte of that file.
    at: Option<u64>,
    what: String,
}

pub(super) fn run(args: &CheckArgs, output: &Output) -> anyhow::Result<Status> {
    let paths = containers_below(&args.path)?;
    let progress = output.steps("Checking", paths.len() as u64, "container");
    let mut checked = Checked { containers: paths.len(), sound: 0, problems: Vec::new() };
    for path in paths {
        checked.add(&path);
        progress.step();
    }
    drop(progress);
    output.show(&checked)?;
    Ok(if checked.sound == checked.containers { Status::Done } else { Status::Failed })
}

impl Checked {
    fn add(&mut self, path: &Path) {
        match check(path) {
            Ok(report) => self.add_report(report),
            // The mark itself is damaged, or newer.
            Err(error) => self.problems.push(Found {
                container: path.to_owned(),
                severity: "damage",
                path: path.to_owned(),
                at: None,
                what: format!("{:#}", anyhow::Error::from(error)),
            }),
        }
    }

    fn add_report(&mut self, report: Report) {
        self.sound += usize::from(report.is_sound());
        let container = report.path;
        self.problems.extend(report.problems.into_iter().map(|problem| {
            let Problem { severity, path, at, what } = problem;
            let severity = match severity {
                Severity::Damage => "damage",
                Severity::Unpublished => "unpublished",
                Severity::Note => "note",
            };
            Found { container: container.clone(), severity, path, at, what }
        }));
    }
}

impl Human for Checked {
    fn write(&self, page: &mut Page) {
        for Found { severity, path, at, what, .. } in &self.problems {
            let colour = match *severity {
                "damage" => "31",
                "unpublished" => "33",
                _ => "36",
            };
            let severity = page.paint(&format!("{severity:<11}"), colour);
            let at = at.map_or(String::new(), |at| format!(" at byte {at}"));
            page.line(&format!("{severity} {}{at}: {what}", path.display()));
        }
        let Self { containers, sound, .. } = self;
        page.line(&match containers {
            0 => "no containers".to_owned(),
            _ => format!("{sound} of {containers} containers are sound"),
        });
    }
}
