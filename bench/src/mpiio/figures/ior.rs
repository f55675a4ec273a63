//! Figure 8: IOR, blocks of 4 MiB that interleave rank by rank; written, read back, read by other ranks.

use super::ground::{EACH, Ground, NODES, ROUND, WAYS, Way};
use super::{at, draw_ways, judge};
use crate::bench::Bench;
use crate::mpiio::patterns::push;
use crate::report::Outcome;
use crate::sample::Samples;

const BLOCKS: &str = "pattern=blocks block=4194304 calls=own";
const WRITE: &str = "write";
const READ: &str = "read back";
const READ_OTHER: &str = "read by other ranks";
/// The one server gets less, for its rate does not depend on that.
const SERVER_SHARE: u64 = 2;

/// Blocks of a rank.
fn blocks(bench: &Bench, way: Way) -> u64 {
    let blocks = bench.rounds(6, 16) as u64;
    if way == Way::OneServer { blocks / SERVER_SHARE } else { blocks }
}

/// 1 to 7 ranks; most rounds for 7, of which the goals are.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let note = format!(
        "{}\n{} MiB for each rank (for one server {}).\n`{READ_OTHER}`: by one rank fewer than wrote, of which each reads every \
         so many blocks.",
        ground.note(),
        blocks(bench, Way::Ours) * 4,
        blocks(bench, Way::OneServer) * 4,
    );
    let mut samples = Samples::default();
    let few: Vec<u16> = if bench.rounds(0, 1) == 0 { vec![1, 2, 4] } else { (1..NODES).collect() };
    for &ranks in &few {
        for round in 0..bench.rounds(1, 3) {
            for way in WAYS {
                one(bench, &ground, (way, ranks, round), &mut samples)?;
            }
        }
    }
    for round in 0..bench.rounds(2, 5) {
        let mut ways = ROUND;
        if round % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            one(bench, &ground, (way, NODES, round), &mut samples)?;
        }
    }
    ground.end()?;
    let places: Vec<_> = few.into_iter().chain([NODES]).map(|ranks| ranks.to_string()).collect();
    let mut outcome = Outcome { notes: vec![note], ..Outcome::default() };
    for (name, what, ways) in [
        ("figure-8a", WRITE, &WAYS[..]),
        ("figure-8b", READ, &WAYS[..]),
        ("figure-8c", READ_OTHER, &WAYS[1..]),
    ] {
        let title = format!("IOR, {what}");
        let places = if what == READ_OTHER { &places[1..] } else { &places };
        outcome.tables.push(draw_ways((name, &title), "nodes", places, (what, ways), &samples));
    }
    let place = NODES.to_string();
    for what in [WRITE, READ] {
        let name = format!("figure 8, IOR {what} on {NODES} nodes: of N-N");
        judge(&mut outcome, name, &at(what, &place), &samples);
    }
    outcome.samples = samples.0;
    Ok(outcome)
}

fn one(
    bench: &Bench,
    ground: &Ground<'_>,
    (way, ranks, round): (Way, u16, usize),
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let steps = blocks(bench, way);
    let line = format!("{BLOCKS} steps={steps}");
    let mut keep = |what, phases: crate::mpiio::launch::Phases| {
        let variant = (way.name(), round);
        push(samples, &at(what, &ranks.to_string()), variant, phases.together());
    };
    keep(WRITE, ground.write(way, ranks, &line)?);
    keep(READ, ground.read(way, ranks, &line)?);
    if ranks > 1 && !EACH.contains(&way) {
        let fewer = ranks - 1;
        let steps = steps * u64::from(ranks) / u64::from(fewer);
        let line = format!("{BLOCKS} steps={steps}");
        keep(READ_OTHER, ground.read(way, fewer, &line)?);
    }
    ground.remove(way)
}
