//! Several nodes with a link each: parts of a data set by one node and by three, in and out again, and a copy to
//! all of them.
//!
//! Four simulated nodes; the last one is the store's: the S3 server of this process listens in its network. Its
//! link gives each of the others [`LINK_BYTES`] a second and no more, and theirs give as much to anybody.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::ground::{Files, Ground};
use crate::bench::Bench;
use crate::command::run as run_command;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::Samples;
use crate::stats;

/// Those that copy; the one behind them is the store's.
const NODES: u16 = 3;
const STORE: u16 = NODES;

/// From the store to each node, and from each node to all others: bytes per second.
const LINK_BYTES: u64 = 20 << 20;

const ONE: [&str; 2] = ["1 node", "1 node again"];
const ALL: &str = "3 nodes";
const MIB: f64 = 1_048_576.0;
const PATIENCE: Duration = Duration::from_secs(60);

/// Rate of three nodes over that of one.
const SCALING_MIN: f64 = 2.4;
/// Bytes read from the store over those of the data set.
const FETCHED_MAX: f64 = 1.05;

pub(super) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let files = Files { count: bench.rounds(180, 240), bytes: 1 << 20 };
    ground.make_tree("tree", files)?;
    let job = Job::up(bench, &JobOptions { shared: "600MiB", ..JobOptions::nodes(NODES + 1) })?;
    limit_links(&job)?;
    let store = Store::start(&job)?;
    let tree = ground.path("tree");
    let mut out = job.on_node(STORE, bench.hayase());
    out.args(["stage", "out"]).arg(&tree).arg(url()).args(["--pack", "none"]);
    ground.run(store.told(out))?;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(2, 4) {
        for variant in order(round, ONE, &[ALL]) {
            let nodes = if variant == ALL { NODES } else { 1 };
            let ran = ground.run(store.stage_in(bench, &job, "shared/data", ("shard", nodes)))?;
            samples.0.push(ran.sample(("shard", variant, round), files.total()));
            let data = job.shared().join("data");
            if round == 0 {
                let mut diff = job.on_node(1, "diff");
                run_command(diff.arg("-rq").arg(&tree).arg(&data), PATIENCE)?.success("diff")?;
            }
            // Each node has what it fetched.
            let ran = ground.run(store.stage_out(bench, &job, nodes))?;
            samples.0.push(ran.sample(("shard out", variant, round), files.total()));
            let mut remove = job.on_node(0, "rm");
            run_command(remove.arg("-rf").arg(&data), PATIENCE)?.success("rm")?;
        }
    }
    let before = store.server.bytes_read();
    let ran = ground.run(store.stage_in(bench, &job, "local/data", ("copy", NODES)))?;
    let fetched = (store.server.bytes_read() - before) as f64 / files.total();
    samples.0.push(ran.sample(("copy", ALL, 0), files.total() * f64::from(NODES)));
    drop(store);
    job.down()?;
    Ok(outcome(&samples, files, fetched))
}

fn url() -> String {
    format!("s3://{BUCKET}/data")
}

/// Gives every link its limit.
fn limit_links(job: &Job<'_>) -> anyhow::Result<()> {
    let traffic_control = |node: u16, words: &str| {
        let mut tc = job.on_node(node, "tc");
        run_command(tc.args(words.split(' ')), PATIENCE)?.success("tc").map(drop)
    };
    // What is meant for nobody below has no limit.
    traffic_control(STORE, "qdisc add dev eth0 root handle 1: htb default 0")?;
    for (node, process) in (0..NODES).zip(job.nodes()) {
        let (class, address) = (node + 1, &process.address);
        let rate = format!("rate {LINK_BYTES}bps burst 128k cburst 128k quantum 60000");
        traffic_control(
            STORE,
            &format!("class add dev eth0 parent 1: classid 1:{class} htb {rate}"),
        )?;
        let to = format!("u32 match ip dst {address}/32 flowid 1:{class}");
        traffic_control(STORE, &format!("filter add dev eth0 parent 1: protocol ip prio 1 {to}"))?;
        let rate = format!("rate {LINK_BYTES}bps burst 256k latency 100ms");
        traffic_control(node, &format!("qdisc add dev eth0 root tbf {rate}"))?;
    }
    Ok(())
}

/// The S3 server, in the network of the last node.
struct Store {
    server: Server,
    endpoint: String,
}

impl Store {
    fn start(job: &Job<'_>) -> anyhow::Result<Self> {
        let node = job.nodes().get(usize::from(STORE)).context("the job has too few nodes")?;
        let network = std::fs::File::open(format!("/proc/{}/ns/net", node.server))?;
        // A socket stays in the network that it was made in: of this thread.
        let start = move || -> anyhow::Result<Server> {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            let listen = SocketAddr::from(([0, 0, 0, 0], 0));
            Server::start(&Options { listen, threads: 2, ..Options::default() })
        };
        let server = std::thread::spawn(start).join();
        let server =
            server.map_err(|_| anyhow!("the thread that starts the server panicked"))??;
        let endpoint = format!("http://{}:{}", node.address, server.address().port());
        Ok(Self { server, endpoint })
    }

    /// A command that knows of the server.
    fn told(&self, mut command: Command) -> Command {
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env_remove("AWS_PROFILE");
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command
    }

    /// Of what was staged in, over what an earlier round left.
    fn stage_out(&self, bench: &Bench, job: &Job<'_>, nodes: u16) -> Command {
        let mut command = Command::new(bench.hayase());
        let target = format!("s3://{BUCKET}/out");
        command.args(["stage", "out", "shared/data", &target, "--pack", "none"]);
        command.args(["--overwrite", "always", "--spread", "shard"]);
        command.args(["--from-nodes", &nodes.to_string(), "--job"]).arg(job.directory());
        self.told(command)
    }

    fn stage_in(
        &self,
        bench: &Bench,
        job: &Job<'_>,
        target: &str,
        (spread, nodes): (&str, u16),
    ) -> Command {
        let mut command = Command::new(bench.hayase());
        command.args(["stage", "in", &url(), target, "--spread", spread]);
        command.args(["--to-nodes", &nodes.to_string(), "--job"]).arg(job.directory());
        self.told(command)
    }
}

fn outcome(samples: &Samples, files: Files, fetched: f64) -> Outcome {
    let title = format!("{} files of 1 MiB, {} MiB/s to each node", files.count, LINK_BYTES >> 20);
    let mut table = Table::new(title, &["", "MiB/s", "of one node"]);
    let one = samples.rate("shard", ONE[0]);
    for (name, what, variant) in [
        ("shard, 1 node", "shard", ONE[0]),
        ("shard, 3 nodes", "shard", ALL),
        ("shard out, 1 node", "shard out", ONE[0]),
        ("shard out, 3 nodes", "shard out", ALL),
        ("copy, 3 nodes, all that arrived", "copy", ALL),
    ] {
        let rate = samples.rate(what, variant);
        table.row(vec![name.to_owned(), number(rate / MIB), number(rate / one)]);
    }
    let scaling = |what: &str| {
        let compared = samples.compare(what, ALL, ONE);
        let figure = stats::median(&compared.ratios).unwrap_or(f64::NAN);
        let name = format!("{what}: rate of 3 nodes, of 1");
        Goal::new(name, figure, "", Wanted::AtLeast(SCALING_MIN)).same_as(compared.same)
    };
    let goals = vec![
        scaling("shard"),
        scaling("shard out"),
        Goal::new(
            "copy to 3 nodes: bytes read from the store, of the data set".to_owned(),
            fetched,
            "",
            Wanted::AtMost(FETCHED_MAX),
        ),
    ];
    Outcome { goals, tables: vec![table], notes: Vec::new(), samples: samples.0.clone() }
}
