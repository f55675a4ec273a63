//! Programs of one and of two client nodes, more and more of them, each with a file on a further node; and the processor
//! time of that node's server.
//!
//! Source: paper 003, figure 3, tables 5 to 7.

use super::homed;
use crate::at_once::together;
use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::plot::Plot;
use crate::report::table::Table;
use crate::rounds;
use crate::sample::Samples;
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

/// Size of each file, in blocks of 1 MiB; 1024 in the paper.
const BLOCKS: u64 = 16;
/// Programs of all client nodes.
const PROGRAMS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const MOST: usize = 32;
/// Programs, on two client nodes, with which the paper looks at the server's processor time.
const BUSY: usize = 16;
const KINDS: [(&str, Operation); 2] = [("read", Operation::Read), ("write", Operation::Overwrite)];
const CLIENTS: [usize; 2] = [1, 2];
/// Of one processor, as in the paper.
const SHARE_MAX: f64 = 1.0;
const MIB: f64 = 1_048_576.0;
const MB: f64 = 1e6;
const GB: f64 = 1e9;

/// Node 0 has the files; nodes 1 and 2 are the clients.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::nodes(3))?;
    let (samples, direct) = measure(bench, &job)?;
    job.down()?;
    let all: f64 = samples.0.iter().map(|sample| sample.measured.amount).sum();
    let goals = KINDS.map(|(what, _)| {
        let share = samples.served_share(&label(what, 2), &BUSY.to_string());
        let goal = format!("a server's processor time, remote {what} by {BUSY} programs");
        Goal::new(goal, share, "of a processor", Wanted::AtMost(SHARE_MAX))
    });
    let notes = vec![format!(
        "Node 0 has a file of {BLOCKS} MiB for each program (of 1 GiB in the paper), in 1 MiB calls from its start to \
         its end, in turns of at least {} ms; nothing synced; {:.0} % of the bytes went past \
         the page cache of node 0. Programs of two client nodes are half on the one, half on the other. Figures are medians of {} rounds (means of 10 in the paper).\nClients, servers and network \
         share the processors of one machine here.",
        milliseconds(bench),
        direct / all * 100.0,
        rounds_of(bench)
    )];
    let tables = vec![figure_3(&samples), table_6(&samples), table_7(&samples)];
    Ok(Outcome { goals: goals.into(), tables, notes, samples: samples.0 })
}

fn label(what: &str, clients: usize) -> String {
    let node = if clients == 1 { "node" } else { "nodes" };
    format!("{what}, {clients} {node}")
}

fn milliseconds(bench: &Bench) -> u64 {
    bench.block_milliseconds() * 4
}

fn rounds_of(bench: &Bench) -> usize {
    bench.rounds(6, 10)
}

/// Also the bytes that went past the page cache.
fn measure(bench: &Bench, job: &Job<'_>) -> anyhow::Result<(Samples, f64)> {
    // One client node may have them all, or each of two the half.
    let nodes = [[1; MOST].as_slice(), &[2; MOST / 2]].concat();
    let mut programs: Vec<Worker> =
        nodes.iter().map(|node| job.worker(*node)).collect::<Result<_, _>>()?;
    let files = homed::make(job, &mut programs, &job.shared().join("bench"), BLOCKS)?;
    let served = [job.nodes()[0].server];
    let mut cases: Vec<(&str, Operation, usize, usize)> = Vec::new();
    for count in PROGRAMS {
        for clients in CLIENTS.into_iter().filter(|clients| *clients <= count) {
            cases.extend(KINDS.map(|(what, operation)| (what, operation, clients, count)));
        }
    }
    let mut samples = Samples::default();
    let before = job.counter("bytes_direct")?;
    for round in 0..rounds_of(bench) {
        for (what, operation, clients, count) in &cases {
            let chosen = chosen(*clients, *count);
            let pairs = programs.iter_mut().zip(&files).enumerate();
            let pairs = pairs.filter(|(n, _)| chosen.contains(n)).map(|(_, (program, path))| {
                let work = Sequential::new(*operation, path, BLOCKS);
                let milliseconds = milliseconds(bench);
                (program, Task::Sequential(Sequential { milliseconds, cold: true, ..work }))
            });
            let place = (label(what, *clients), count.to_string());
            rounds::measure(&mut samples, (&place.0, &place.1, round), &served, || {
                together(pairs)
            })?;
        }
        // Each case comes as often late as early.
        cases.reverse();
    }
    let direct = job.counter("bytes_direct")? - before;
    Ok((samples, direct as f64))
}

/// Which of the programs work: those of node 1 come first.
fn chosen(clients: usize, count: usize) -> Vec<usize> {
    match clients {
        1 => (0..count).collect(),
        _ => (0..count / 2).chain(MOST..MOST + count / 2).collect(),
    }
}

/// Of reading on one node, on two, and of writing.
fn lines() -> impl Iterator<Item = (&'static str, usize)> {
    KINDS.into_iter().flat_map(|(what, _)| CLIENTS.map(|clients| (what, clients)))
}

fn figure_3(samples: &Samples) -> Table {
    let names: Vec<String> = lines().map(|(what, clients)| label(what, clients)).collect();
    let head: Vec<&str> =
        std::iter::once("programs").chain(names.iter().map(String::as_str)).collect();
    let title = "Throughput by the number of programs, MiB/s";
    let mut table = Table::new(format!("{title}, as in figure 3 of paper 003"), &head);
    let rate = |name: &str, count: usize| samples.rate(name, &count.to_string()) / MIB;
    for count in PROGRAMS {
        let rates = names.iter().map(|name| number(rate(name, count)));
        table.row(std::iter::once(count.to_string()).chain(rates).collect());
    }
    let places = PROGRAMS.map(|count| count.to_string()).to_vec();
    let axes = ("programs", "MiB/s");
    let mut plot = Plot::new("figure-3", "Throughput by the number of programs", axes, places);
    for name in &names {
        plot.line(name, PROGRAMS.map(|count| Some(rate(name, count))).to_vec());
    }
    table.plot = Some(plot);
    table
}

fn table_6(samples: &Samples) -> Table {
    let head = ["", "1 node", "with programs", "2 nodes", "with programs"];
    let mut table = Table::new("Most MB/s by client nodes, as in table 6 of paper 003", &head);
    for (what, _) in KINDS {
        let mut cells = vec![what.to_uppercase()];
        for clients in CLIENTS {
            let (count, rate) = most(samples, &label(what, clients));
            cells.extend([number(rate / MB), count.to_string()]);
        }
        table.row(cells);
    }
    table
}

/// The number of programs with the highest rate, and that rate.
fn most(samples: &Samples, what: &str) -> (usize, f64) {
    let rates = PROGRAMS.map(|count| (count, samples.rate(what, &count.to_string())));
    let known = rates.into_iter().filter(|(_, rate)| !rate.is_nan());
    known.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::NAN))
}

fn table_7(samples: &Samples) -> Table {
    let title =
        format!("CPU of the server, {BUSY} programs on 2 nodes, as in table 7 of paper 003");
    let mut table = Table::new(title, &["", "% of a processor", "half between", "MB/s", "s/GB"]);
    for (what, _) in KINDS {
        let (name, variant) = (label(what, 2), BUSY.to_string());
        let shares: Vec<f64> = samples
            .of(&name, &variant)
            .map(|sample| sample.meanwhile_cpu / sample.measured.seconds * 100.0)
            .collect();
        let (low, high) = stats::quartiles(&shares).unwrap_or((f64::NAN, f64::NAN));
        table.row(vec![
            what.to_uppercase(),
            number(samples.served_share(&name, &variant) * 100.0),
            format!("{}-{}", number(low), number(high)),
            number(samples.rate(&name, &variant) / MB),
            number(samples.cpu_per_amount(&name, &variant).1 * GB),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_dealt_out_evenly() {
        assert_eq!(chosen(1, 2), [0, 1]);
        assert_eq!(chosen(2, 4), [0, 1, 32, 33]);
        assert_eq!(chosen(2, MOST).len(), MOST);
        assert_eq!(chosen(2, MOST).last(), Some(&47));
    }
}
