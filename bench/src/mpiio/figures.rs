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

/// A line of a figure: its name, and bytes per second at each place.
struct Line {
    name: String,
    rates: Vec<f64>,
}

impl Line {
    /// Of a way, whose samples are named by `what` and the places.
    fn of(way: Way, what: &str, places: &[String], samples: &Samples) -> Self {
        let rate = |place: &String| samples.rate(&at(what, place), way.name());
        Self { name: way.name().to_owned(), rates: places.iter().map(rate).collect() }
    }
}

/// As a table and as a plot.
fn draw(
    (name, title): (&str, &str),
    across: &'static str,
    places: &[String],
    lines: &[Line],
) -> Table {
    let mut plot = Plot::new(name, title, (across, "MiB/s"), places.to_vec());
    let mut head = vec![across];
    head.extend(lines.iter().map(|line| line.name.as_str()));
    let mut table = Table::new(format!("{title} (MiB/s)"), &head);
    for (nth, place) in places.iter().enumerate() {
        let mut row = vec![place.clone()];
        row.extend(lines.iter().map(|line| number(line.rates[nth] / MIB)));
        table.row(row);
    }
    for line in lines {
        plot.line(line.name.as_str(), line.rates.iter().map(|rate| Some(rate / MIB)).collect());
    }
    table.plot = Some(plot);
    table
}

/// The same of several ways.
fn draw_ways(
    head: (&str, &str),
    across: &'static str,
    places: &[String],
    (what, ways): (&str, &[Way]),
    samples: &Samples,
) -> Table {
    let lines: Vec<Line> = ways.iter().map(|way| Line::of(*way, what, places, samples)).collect();
    draw(head, across, places, &lines)
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
