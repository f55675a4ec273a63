//! MPI_File_set_view: what it costs when the same view is set again, as HDF5 does around each transfer.

use super::launch::{By, Mpi, words};
use super::patterns::push;
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, number};
use crate::report::table::Table;
use crate::sample::{Measured, Samples};

/// Microseconds for each call.
const WANTED: f64 = 1.0;
const KINDS: [&str; 2] = ["the same types again", "new types each time"];

/// One process.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mpi = Mpi::any(bench)?;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(4, 10) {
        for (variant, by) in [("stock", By::STOCK), ("hayase", By::Hayase)] {
            mpi.clean()?;
            let said =
                mpi.run(by, 1, "views", &words("pattern=views count=64"))?.numbers("views")?;
            for (kind, seconds) in KINDS.iter().zip(said) {
                let measured = Measured { amount: 1.0, seconds, own_cpu: seconds };
                push(&mut samples, kind, (variant, round), measured);
            }
        }
    }
    mpi.clean()?;
    let mut table = Table::new("MPI_File_set_view", &["us per call", "stock", "hayase"]);
    for kind in KINDS {
        let each = |variant: &str| number(1e6 / samples.rate(kind, variant));
        table.row(vec![kind.to_owned(), each("stock"), each("hayase")]);
    }
    let rates = samples.rates(KINDS[0], "hayase");
    let costs: Vec<_> = rates.into_iter().map(|rate| 1e6 / rate).collect();
    let goals = vec![Goal::cost("a view that is set again", &costs, "us", WANTED)];
    let note = "One process; a vector of 64 regions and the view of bytes in turns. Making and freeing types is \
                not counted.";
    Ok(Outcome { goals, tables: vec![table], notes: vec![note.to_owned()], samples: samples.0 })
}
