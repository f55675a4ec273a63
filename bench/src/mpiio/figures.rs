//! The figures 8, 9, 11 and 12 of the first paper (MPI-IO/Gfarm), on simulated nodes with a disk and a link each.
//!
//! Here: how a figure is drawn. Rooms: [`ground`] (the nodes, and the ways to write one file), [`ior`] (figure 8),
//! [`hpio`] (figure 9), [`bt`] (figures 11 and 12).
//! Source: paper 001, section 7.

mod bt;
mod ground;
mod hpio;
mod ior;

pub(crate) use bt::run as run_bt;
pub(crate) use hpio::run as run_hpio;
pub(crate) use ior::run as run_ior;

use self::ground::{EACH, OURS, Way};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::plot::Plot;
use crate::report::table::Table;
use crate::sample::Samples;
use crate::stats;

/// Of N-N on all nodes.
const WANTED: f64 = 0.85;
const MIB: f64 = 1_048_576.0;

/// A line for each way over places, as a table and as a plot; `what` names the samples of a place.
fn draw(
    (name, title): (&str, &str),
    across: &'static str,
    places: &[String],
    lines: &[(String, &dyn Fn(&str) -> f64)],
) -> Table {
    let mut plot = Plot::new(name, title, (across, "MiB/s"), places.to_vec());
    let mut head = vec![across];
    head.extend(lines.iter().map(|(line, _)| line.as_str()));
    let mut table = Table::new(format!("{title} (MiB/s)"), &head);
    for place in places {
        let mut row = vec![place.clone()];
        row.extend(lines.iter().map(|(_, rate)| number(rate(place) / MIB)));
        table.row(row);
    }
    for (line, rate) in lines {
        plot.line(line.as_str(), places.iter().map(|place| Some(rate(place) / MIB)).collect());
    }
    table.plot = Some(plot);
    table
}

/// The same where lines are ways and samples are named by `what` and a place.
fn draw_ways(
    (name, title): (&str, &str),
    across: &'static str,
    places: &[String],
    (what, ways): (&str, &[Way]),
    samples: &Samples,
) -> Table {
    let rates: Vec<_> = ways
        .iter()
        .map(|way| {
            let way = way.name();
            (way.to_owned(), move |place: &str| samples.rate(&at(what, place), way))
        })
        .collect();
    let lines: Vec<(String, &dyn Fn(&str) -> f64)> =
        rates.iter().map(|(line, rate)| (line.clone(), rate as &dyn Fn(&str) -> f64)).collect();
    draw((name, title), across, places, &lines)
}

/// Kind of work at a place, as samples name it.
fn at(what: &str, place: &str) -> String {
    format!("{what}, {place}")
}

/// Ours against N-N at the last place.
fn judge(outcome: &mut Outcome, name: String, what: &str, samples: &Samples) {
    let found = samples.compare(what, OURS.name(), EACH.map(Way::name));
    let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
    outcome.goals.push(Goal::new(name, figure, "", Wanted::AtLeast(WANTED)).same_as(found.same));
}
