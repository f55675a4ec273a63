//! Figure 9: HPIO on seven nodes, small regions with gaps in memory and in the file; by their size, number and spacing.

use super::ground::{Ground, NODES, WAYS};
use super::{at, draw_ways};
use crate::bench::Bench;
use crate::mpiio::patterns::push;
use crate::report::Outcome;
use crate::sample::Samples;

/// Unless it is what changes.
const SIZE: u64 = 8;
const COUNT: u64 = 4096;
const SPACING: u64 = 128;

/// One of the three figures: what changes, and its values in a full run, of which a quick one takes every other.
struct Figure {
    name: &'static str,
    what: &'static str,
    across: &'static str,
    values: &'static [u64],
    /// Size, count and spacing.
    regions: fn(u64) -> [u64; 3],
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "figure-9a",
        what: "by size",
        across: "bytes of a region",
        values: &[8, 64, 256, 1024, 4096],
        regions: |size| [size, COUNT, SPACING],
    },
    Figure {
        name: "figure-9b",
        what: "by number",
        across: "regions of a rank",
        values: &[2048, 4096, 16_384, 32_768, 65_536],
        regions: |count| [SIZE, count, SPACING],
    },
    Figure {
        name: "figure-9c",
        what: "by spacing",
        across: "bytes between regions",
        values: &[8, 64, 128, 1024, 4096],
        regions: |spacing| [SIZE, COUNT, spacing],
    },
];

/// All ranks write; nothing is a goal.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let note = format!(
        "{}\n{NODES} ranks, collective calls. Unless it changes: {COUNT} regions of {SIZE} bytes for each rank, {SPACING} bytes \
         between two, in memory and in the file. So little is written that opening, sync and close decide.",
        ground.note()
    );
    let mut samples = Samples::default();
    let mut tables = Vec::new();
    for figure in FIGURES {
        let values = figure.values.iter().step_by(bench.rounds(2, 1));
        let places: Vec<_> = values.map(u64::to_string).collect();
        for place in &places {
            for round in 0..bench.rounds(1, 3) {
                for way in WAYS {
                    let line = line((figure.regions)(place.parse()?));
                    let written = ground.write(way, NODES, &line)?;
                    let variant = (way.name(), round);
                    push(&mut samples, &at(figure.what, place), variant, written.together());
                    ground.remove(way)?;
                }
            }
        }
        let title = format!("HPIO, regions {}", figure.what);
        let lines = (figure.what, &WAYS[..]);
        tables.push(draw_ways((figure.name, &title), figure.across, &places, lines, &samples));
    }
    ground.end()?;
    Ok(Outcome { tables, notes: vec![note], samples: samples.0, ..Outcome::default() })
}

/// Ranks that have a file each leave no gaps in it.
fn line([size, count, spacing]: [u64; 3]) -> String {
    format!("pattern=regions memory=gaps region={size} count={count} spacing={spacing}")
}
