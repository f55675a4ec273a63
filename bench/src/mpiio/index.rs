//! Lookups in the index of very many writers, simulated: no MPI, no files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use hayase_layout::index::Scratch;
use hayase_layout::{
    ByteCount, Epoch, Extent, GlobalOffset, Index, LocalOffset, NodeId, Rank, Record, Run,
    Selection, ServerId, StreamExtent, StreamOffset, View, ViewId, Writer, WriterId, WriterLog,
};

use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::number;
use crate::report::table::Table;

const WRITERS: [u32; 4] = [4, 64, 1024, 10_000];
const BLOCK: u64 = 4096;
/// Of each writer.
const BLOCKS: u64 = 1000;

/// Costs are shown, none is a goal.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let head = [
        "writers",
        "building ms",
        "4 KiB at a random place us",
        "1 MiB in order us",
        "us per piece of it",
    ];
    let mut table =
        Table::new("Index of cyclic blocks of 4 KiB, one record for each writer", &head);
    for writers in WRITERS {
        let logs: Vec<_> = (0..writers).map(|rank| log(rank, writers)).collect::<Result<_, _>>()?;
        let begin = Instant::now();
        let index = Index::new(&logs, &[])?;
        let building = begin.elapsed().as_secs_f64();
        let size = u64::from(writers) * BLOCKS * BLOCK;
        ensure!(index.size() == ByteCount(size), "an index of {writers} writers");
        let times = bench.rounds(20_000, 100_000) as u64;
        let small = looked_up(&index, times, BLOCK, |nth| {
            nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (size - BLOCK)
        })?;
        let large = (1 << 20).min(size / 2);
        let steps = size / large;
        let in_order = looked_up(&index, times / 100, large, |nth| nth % steps * large)?;
        table.row(vec![
            writers.to_string(),
            number(building * 1e3),
            number(small * 1e6),
            number(in_order * 1e6),
            number(in_order * 1e6 / (large / BLOCK) as f64),
        ]);
    }
    let note =
        "Views are given to the index as they are read from the indexes of writers; one thread.";
    Ok(Outcome { tables: vec![table], notes: vec![note.to_owned()], ..Outcome::default() })
}

/// Seconds for one lookup of `len` bytes.
fn looked_up(index: &Index, times: u64, len: u64, at: impl Fn(u64) -> u64) -> anyhow::Result<f64> {
    let (mut scratch, mut found) = (Scratch::default(), Vec::new());
    let begin = Instant::now();
    for nth in 0..times {
        let extent = Extent::new(GlobalOffset(at(nth)), ByteCount(len))?;
        index.look_up(extent, &mut scratch, &mut found);
        ensure!(!found.is_empty(), "nothing is at {extent}");
    }
    Ok(begin.elapsed().as_secs_f64() / times as f64)
}

fn log(rank: u32, writers: u32) -> anyhow::Result<WriterLog> {
    let block =
        Run::contiguous(Extent::new(GlobalOffset(u64::from(rank) * BLOCK), ByteCount(BLOCK))?)?;
    let tile = ByteCount(u64::from(writers) * BLOCK);
    let view = View::new(GlobalOffset(0), tile, &[block])?;
    let window = StreamExtent::new(StreamOffset(0), ByteCount(BLOCKS * BLOCK))?;
    let selection = Selection::View { view: ViewId(0), window };
    let id = WriterId { node: NodeId(0), process: rank, opening: 0 };
    Ok(WriterLog {
        writer: Writer { id, rank: Rank(rank), server: ServerId(0) },
        part: id,
        views: BTreeMap::from([(ViewId(0), Arc::new(view))]),
        records: vec![Record { selection, place: LocalOffset(0), epoch: Epoch(1) }],
    })
}
