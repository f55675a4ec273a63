//! Figures 11 and 12: BT-IO, nested sub-arrays of meshes of a fixed size, by more and more ranks; figure 11 with us,
//! figure 12 by the MPI alone.

use super::ground::{Ground, NODES, ROUND, WAYS, Way};
use super::{Line, at, draw, judge};
use crate::bench::Bench;
use crate::mpiio::patterns::push;
use crate::report::Outcome;
use crate::sample::Samples;

const SIDE: u64 = 48;
/// Of one mesh.
const MESH: u64 = SIDE * SIDE * SIDE * 40;
/// The MPI alone writes fewer meshes of many small pieces, or it would take minutes for each run.
const STOCK_SHARE: u64 = 8;

/// Bytes of a file in a quick run and in a full one, instead of the paper's classes A, B and C.
struct Size {
    name: &'static str,
    mib: (usize, usize),
}
const SIZES: [Size; 2] =
    [Size { name: "small", mib: (16, 105) }, Size { name: "large", mib: (256, 419) }];

impl Size {
    fn meshes(&self, bench: &Bench, way: Way) -> u64 {
        let meshes = ((bench.rounds(self.mib.0, self.mib.1) as u64) << 20) / MESH;
        let is_stock = matches!(way, Way::Striping | Way::OneServer);
        if is_stock { (meshes / STOCK_SHARE).max(1) } else { meshes }
    }
}

/// Written only, as in the paper.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let sizes = SIZES.each_ref().map(|size| {
        let mib = (size.meshes(bench, Way::Ours) * MESH) >> 20;
        format!("`{}` is {mib} MiB", size.name)
    });
    let note = format!(
        "{}\nCollective calls, one for each of the meshes of {SIDE} x {SIDE} x {SIDE} points of 40 bytes; the file has the same \
         size however many ranks write it: {} (an eighth, but at least one mesh, for the MPI alone). Where the number of ranks is not a square, each has a \
         piece of every row.",
        ground.note(),
        sizes.join(", "),
    );
    let mut samples = Samples::default();
    let few: Vec<u16> = if bench.rounds(0, 1) == 0 { vec![1, 4] } else { (1..NODES).collect() };
    for size in &SIZES {
        for &ranks in &few {
            for round in 0..bench.rounds(1, 3) {
                for way in WAYS {
                    one(bench, &ground, size, (way, ranks, round), &mut samples)?;
                }
            }
        }
        for round in 0..bench.rounds(2, 5) {
            let mut ways = ROUND;
            if round % 2 == 1 {
                ways.reverse();
            }
            for way in ways {
                one(bench, &ground, size, (way, NODES, round), &mut samples)?;
            }
        }
    }
    ground.end()?;
    let places: Vec<_> = few.into_iter().chain([NODES]).map(|ranks| ranks.to_string()).collect();
    let mut outcome = Outcome { notes: vec![note], ..Outcome::default() };
    for (name, title, ways) in [
        ("figure-11", "BT-IO, a file in parts", [Way::Each, Way::Ours]),
        ("figure-12", "BT-IO, the MPI alone", [Way::Striping, Way::OneServer]),
    ] {
        let of = |way: Way, size: &Size| {
            let line = Line::of(way, size.name, &places, &samples);
            Line { name: format!("{}, {}", line.name, size.name), ..line }
        };
        let lines: Vec<Line> =
            ways.iter().flat_map(|way| SIZES.each_ref().map(|size| of(*way, size))).collect();
        outcome.tables.push(draw((name, title), "nodes", &places, &lines));
    }
    // Of the small file a rank has so little that opening and closing decide, as in the paper.
    let size = &SIZES[1];
    let name = format!("figure 11, BT-IO written on {NODES} nodes, {}: of N-N", size.name);
    judge(&mut outcome, name, &at(size.name, &NODES.to_string()), &samples);
    outcome.samples = samples.0;
    Ok(outcome)
}

fn one(
    bench: &Bench,
    ground: &Ground<'_>,
    size: &Size,
    (way, ranks, round): (Way, u16, usize),
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let line = format!("pattern=nested side={SIDE} steps={}", size.meshes(bench, way));
    let written = ground.write(way, ranks, &line)?;
    push(samples, &at(size.name, &ranks.to_string()), (way.name(), round), written.together());
    ground.remove(way)
}
