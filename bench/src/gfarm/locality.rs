//! Bytes on the links of the nodes, while files are written, read, copied and read again.

use super::cluster::{Cluster, HAYASE};
use super::programs::start;
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

/// MiB of the file.
const BLOCKS: u64 = 128;
/// Of the bytes that programs move: names, sizes and what keeps connections alive travel all the same.
const SHARE_MAX: f64 = 0.001;

/// One file, made on node 1.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let other = "direct";
    let cluster = Cluster::up(bench, &[other])?;
    let mut worker = start(bench, 1)?.remove(0);
    let mut table =
        Table::new("Bytes on the node's link, of the bytes moved", &["", HAYASE, "gfarm2fs"]);
    let mut shares = Vec::new();
    for kind in [HAYASE, other] {
        let name = format!("moved-{kind}");
        let mut share = |node: u16, operation| -> anyhow::Result<f64> {
            let path = cluster.mount(kind, node).join(&name);
            let work = Sequential::new(operation, path, BLOCKS);
            let task = Task::Sequential(Sequential { keep: true, cold: true, ..work });
            let before = cluster.carried(node)?;
            let amount = worker.measure(&task)?.amount;
            Ok((cluster.carried(node)? - before) as f64 / amount)
        };
        let mut found = vec![share(1, Operation::New)?, share(1, Operation::Read)?];
        cluster.await_hosts(&format!("/{name}"), &[1])?;
        found.push(share(2, Operation::Read)?);
        cluster.on(1, &["gfrep", "-q", "-N", "3", &format!("/{name}")])?;
        cluster.await_hosts(&format!("/{name}"), &[1, 2, 3])?;
        found.extend([share(2, Operation::Read)?, share(3, Operation::Read)?]);
        shares.push(found);
    }
    let rows = [
        "written on node 1",
        "read there",
        "read on node 2, which has no copy",
        "read on node 2, which has a copy now",
        "read on node 3, which has one too",
    ];
    for (row, (ours, its)) in rows.iter().zip(shares[0].iter().zip(&shares[1])) {
        table.row(vec![(*row).to_owned(), number(*ours), number(*its)]);
    }
    let goal = |name: &str, share: f64| Goal::new(name, share, "", Wanted::AtMost(SHARE_MAX));
    let found = &shares[0];
    let goals = vec![
        goal("bytes on the link, of those written and read at home", found[0].max(found[1])),
        goal("bytes on the link, of those read where a copy is", found[3].max(found[4])),
    ];
    let notes = vec![format!(
        "One file of {BLOCKS} MiB, in calls of 1 MiB; the counters of the node's link (`/proc/net/dev`), both ways. The third \
         row shows that they count."
    )];
    Ok(Outcome { goals, tables: vec![table], notes, samples: Vec::new() })
}
