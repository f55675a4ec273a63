//! `hayase up`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use hayase_tier::Tier;
use serde::Serialize;

use super::headings::{
    CACHE, CONSISTENCY, JOB, MONITORING, NETWORK, NODES, NOISE, STORAGE, TESTING,
};
use super::transfer::EndpointArg;
use crate::config::{self, Environment};
use crate::count::counted;
use crate::exit::Status;
use crate::job::{
    Dead, FsyncAt, Job, JobId, KernelProfile, Kind, MmapShared, Names, Registry, Settings,
    TransportName, clean_dead,
};
use crate::launch::allocation::LauncherName;
use crate::launch::signals::{ENDING, Signals};
use crate::launch::tree::way::FANOUT_DEFAULT;
use crate::launch::{PlanError, ground, plan, start};
use crate::metrics::listener::parse_address;
use crate::number::{seconds, within};
use crate::output::{Human, Output, Page};
use crate::size::{self, SizeError};
use crate::supervisor::said::Ready;
use crate::wiring::places;

/// Hosts that a warning names; of more it says how many.
const NAMED_MAX: usize = 4;

/// How long a job that is up waits for what is still to be said of its tier.
const TIER_PATIENCE: Duration = Duration::from_secs(1);

/// How often a file that stays open for writing is flushed.
const FLUSH_OPEN_SECONDS_DEFAULT: u32 = 300;

/// The start is given up when not all nodes are up by then.
const START_SECONDS_DEFAULT: u32 = 30;

/// Start a job's file system: servers, areas and mounts
///
/// By default this machine is the only node of the job. With --nodes N it simulates N nodes: as root each node has
/// its own network, host name and mounts, at the same paths, and `hayase exec` runs programs there; without root (or
/// with --no-namespaces) each node is a plain process with its own loopback address, and its areas are in
/// DIR/node-<I>. With --hosts or --host-file each host is a node. Inside a job of Slurm, PBS or PJM the hosts of that
/// job are the nodes. `hayase down` ends the job and removes all areas.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Name of the job: a-z, 0-9 and - [default: random]
    #[arg(long, value_name = "ID", help_heading = JOB)]
    pub(crate) job: Option<JobId>,
    /// Directory for job metadata and logs; must be visible to all nodes [default: below /tmp/hayase-<uid>]
    #[arg(long, value_name = "DIR", help_heading = JOB)]
    pub(crate) job_dir: Option<PathBuf>,
    /// Directory for the mounts DIR/shared, DIR/local and DIR/cache [default: below /tmp/hayase-<uid>]
    #[arg(long, value_name = "DIR", help_heading = JOB)]
    pub(crate) mount: Option<PathBuf>,
    /// Start servers only, without areas, for programs that use the client library
    #[arg(long, conflicts_with_all = ["stripe", "width"], help_heading = JOB)]
    pub(crate) no_mounts: bool,
    /// Give up if not all nodes are up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = START_SECONDS_DEFAULT, value_parser = seconds(0), help_heading = JOB)]
    pub(crate) timeout: u32,

    /// Directory on the local disk of each node [default: below $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR", help_heading = STORAGE)]
    pub(crate) storage: Option<PathBuf>,
    /// Size of the shared area on each node, for example 300MiB or 1.5G [default: a tenth of the free space]
    #[arg(long, value_name = "SIZE", value_parser = area_size, help_heading = STORAGE)]
    pub(crate) shared: Option<ByteCount>,
    /// Size of the local area on each node [default: a tenth of the free space]
    #[arg(long, value_name = "SIZE", value_parser = area_size, help_heading = STORAGE)]
    pub(crate) local: Option<ByteCount>,
    /// Stripe new files over the nodes, with this stripe size [default: each file on the node that creates it]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, help_heading = STORAGE)]
    pub(crate) stripe: Option<ByteCount>,
    /// Number of nodes per striped file; 0 means all [default: 0]
    #[arg(long, value_name = "N", help_heading = STORAGE)]
    pub(crate) width: Option<u16>,
    /// Nodes that store files for all others: a number of nodes, or a list of node numbers or hosts, for example 4
    /// or 0,4-5 [default: all nodes]
    #[arg(long, value_name = "N|LIST", help_heading = STORAGE)]
    pub(crate) storage_nodes: Option<String>,
    /// Keep areas in plain directories, where the servers enforce their sizes, instead of one XFS image per area
    #[arg(long, help_heading = STORAGE)]
    pub(crate) no_image: bool,
    /// Use the page cache for all reads and writes, also for large requests of other nodes
    #[arg(long, help_heading = STORAGE)]
    pub(crate) no_direct_io: bool,

    /// Simulate this many nodes on this machine
    #[arg(long, value_name = "N", value_parser = node_count, help_heading = NODES)]
    pub(crate) nodes: Option<u16>,
    /// Simulate nodes as plain processes, even as root
    #[arg(long, requires = "nodes", help_heading = NODES)]
    pub(crate) no_namespaces: bool,
    /// Run on these hosts and start them over ssh, for example a,b,n[01-04]
    #[arg(long, value_name = "LIST", conflicts_with = "nodes", help_heading = NODES)]
    pub(crate) hosts: Option<String>,
    /// Read the hosts from FILE, one per line, as in an MPI machine file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "hosts"], help_heading = NODES)]
    pub(crate) host_file: Option<PathBuf>,
    /// How to start the nodes [default: --hosts, else the batch system of this job, else local]
    #[arg(long, value_name = "HOW", conflicts_with_all = ["nodes", "hosts", "host_file"], help_heading = NODES)]
    pub(crate) launcher: Option<LauncherName>,
    /// Command to use instead of ssh, with its options
    #[arg(long, value_name = "COMMAND", conflicts_with = "nodes", help_heading = NODES)]
    pub(crate) ssh: Option<String>,
    /// Number of hosts that each host starts directly; those start the rest
    #[arg(long, value_name = "N", conflicts_with = "nodes", default_value_t = FANOUT_DEFAULT,
          value_parser = within::<u16>(1..=u16::MAX.into()), help_heading = NODES)]
    pub(crate) fanout: u16,
    /// Path of the hayase binary on the other hosts [default: the same as here]
    #[arg(long, value_name = "PATH", conflicts_with = "nodes", help_heading = NODES)]
    pub(crate) remote_hayase: Option<PathBuf>,

    /// Shared storage behind the cache area: a directory, a bucket (s3://BUCKET/PREFIX) or a Gfarm directory
    /// (gfarm:///DIR) [default: no cache area]
    #[arg(long, value_name = "PLACE", help_heading = CACHE)]
    pub(crate) tier: Option<OsString>,
    #[command(flatten, next_help_heading = CACHE)]
    pub(crate) endpoint: EndpointArg,
    /// Where data of the cache area is when fsync(2) returns [default: node]
    #[arg(long, value_name = "WHERE", requires = "tier", help_heading = CACHE)]
    pub(crate) fsync: Option<FsyncAt>,
    /// When the job ends, for example 90m, 1:30:00 or 2030-01-31T18:00:00Z, or `none`. `hayase status` warns when
    /// dirty files cannot be flushed by then [default: the batch system's time limit]
    #[arg(long, value_name = "WHEN", requires = "tier", help_heading = CACHE)]
    pub(crate) deadline: Option<String>,
    /// Flush files that stay open for writing every SECONDS; 0 turns this off
    #[arg(long, value_name = "SECONDS", requires = "tier", default_value_t = FLUSH_OPEN_SECONDS_DEFAULT, value_parser = seconds(0),
          help_heading = CACHE)]
    pub(crate) flush_open: u32,
    /// Inject faults into the tier
    #[arg(long, value_name = "HOW", requires = "tier", hide = true,
          value_parser = crate::wiring::tier_faults::parse)]
    pub(crate) tier_faults: Option<crate::wiring::tier_faults::TierFaults>,

    /// Network transport between the servers [default: auto]
    #[arg(long, value_name = "HOW", help_heading = NETWORK)]
    pub(crate) transport: Option<TransportName>,
    /// Encrypt file data between nodes, not only handshakes and headers
    #[arg(long, help_heading = NETWORK)]
    pub(crate) encrypt: bool,

    /// Run all daemons of a node, and the kernel workers that serve them, only on these processors, for example
    /// 0-1,48 [default: on all]
    #[arg(long, value_name = "LIST", help_heading = NOISE)]
    pub(crate) system_cores: Option<crate::processors::Processors>,
    /// Move interrupts of network cards and disks to the system cores, until `hayase down` (root only)
    #[arg(long, requires = "system_cores", help_heading = NOISE)]
    pub(crate) move_interrupts: bool,
    /// Limit the CPU time of all daemons of a node together: to a number of processors, for example 0.5, or to a
    /// share of all processors, for example 10% [default: no limit]
    #[arg(long, value_name = "CORES|PERCENT%", help_heading = NOISE)]
    pub(crate) cpu_budget: Option<crate::cpu_budget::CpuBudget>,

    /// How long nodes may cache names [default: cached]
    #[arg(long, value_name = "HOW", help_heading = CONSISTENCY)]
    pub(crate) names: Option<Names>,
    /// Where files may be mapped shared and writable [default: everywhere]
    #[arg(long, value_name = "WHERE", help_heading = CONSISTENCY)]
    pub(crate) mmap_shared: Option<MmapShared>,

    /// Serve Prometheus metrics at http://ADDR:PORT/metrics on each node [default: off; ADDR: 127.0.0.1]
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_address, help_heading = MONITORING)]
    pub(crate) metrics: Option<std::net::SocketAddr>,

    /// Use only the kernel features that this version of Linux has
    #[arg(long, value_name = "VERSION", help_heading = TESTING)]
    pub(crate) kernel_profile: Option<KernelProfile>,
    /// Combine small writes to a file that only one node has open (write coalescing). Experimental: a mount that
    /// pauses for some seconds may lose writes that it has buffered; the next calls on the file report it
    #[arg(long, help_heading = TESTING)]
    pub(crate) gather: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase up --nodes 3 --storage /scratch --mount /tmp/areas
  hayase up --hosts 'n[01-16]' --storage /local/scratch --shared 500GiB --mount /tmp/areas
  hayase up --storage /local/scratch --mount /tmp/areas --tier /lustre/me/run7
  hayase up --tier s3://bucket/run7 --endpoint https://s3.example.org --deadline 90m

See also:
  hayase down, hayase run, hayase exec, hayase status";

/// A size that an area may have, as far as that is known before the job is planned.
fn area_size(text: &str) -> Result<ByteCount, String> {
    size::parse(text).map_err(|error| match error {
        SizeError::Nothing => format!("an area needs at least {}", plan::AREA_BYTES_MIN),
        error => error.to_string(),
    })
}

/// A number of simulated nodes; which ones are possible says the plan.
fn node_count(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("expected 1 to {}", plan::NODES_MAX))
}

/// What `up` tells.
#[derive(Debug, Serialize)]
struct Up<'a> {
    job: &'a JobId,
    job_dir: PathBuf,
    kind: &'static str,
    storage: PathBuf,
    shared_bytes: u64,
    local_bytes: u64,
    /// Nodes that carry the storage of all.
    storage_nodes: Vec<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    /// What a person should know of these settings.
    warnings: &'a [String],
    took_ms: u64,
    nodes: &'a [Ready],
}

/// Starts a job that outlives this command.
pub(crate) fn run(
    args: &UpArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let begin = Instant::now();
    if args.tier.is_none() && args.endpoint.endpoint.is_some() {
        return Err(PlanError::EndpointAlone.into());
    }
    let signals = Signals::block(&ENDING)?;
    let launched = launch(args, environment, &signals, output)?;
    let (nodes, warnings) = (launched.nodes.clone(), launched.warnings.clone());
    let job = launched.let_go(output);
    show(&job, &nodes, &warnings, begin, output)?;
    // One that came too late to stop the start: the job is up, and the status says so.
    while signals.next().is_some() {}
    Ok(Status::Done)
}

/// Plans, prepares and starts; also what `run` does first.
pub(crate) fn launch(
    args: &UpArgs,
    environment: &Environment,
    signals: &Signals,
    output: &Output,
) -> anyhow::Result<start::Launched> {
    args.endpoint.apply();
    for dead in clean_dead(&Registry::open(&environment.runtime)?) {
        match dead {
            Dead::Cleaned(job) => {
                output.note(&format!("removed what job {job} had left; its processes had ended"));
            }
            Dead::Kept(job, why) => output.problem(&format!("job {job} has ended: {why}")),
            Dead::Unknown(why) => output.problem(&why.with_help()),
        }
    }
    let plan = plan::plan(args, environment)?;
    let mut warnings = Vec::from_iter(unreachable_tier(&plan.settings));
    warnings.iter().for_each(|warning| output.note(warning));
    let job = ground::prepare(plan, environment)?;
    let warning = warning_of_tier(&job.settings);
    let mut launched = start::start(job, environment, signals, output)?;
    let mut later = storage_warnings(launched.job.settings.kind == Kind::Hosts, &launched.nodes);
    later.extend(warning.recv_timeout(TIER_PATIENCE));
    later.iter().for_each(|warning| output.note(warning));
    warnings.append(&mut later);
    launched.warnings = warnings;
    Ok(launched)
}

/// What nodes say of the file systems that their storage is on, each once. Simulated nodes have the same storage.
fn storage_warnings(names_hosts: bool, nodes: &[Ready]) -> Vec<String> {
    let mut hosts_of: Vec<(&str, Vec<&str>)> = Vec::new();
    for node in nodes {
        let Some(warning) = node.storage_warning.as_deref() else { continue };
        match hosts_of.iter_mut().find(|(known, _)| *known == warning) {
            Some((_, hosts)) => hosts.push(&node.host),
            None => hosts_of.push((warning, vec![&node.host])),
        }
    }
    let say = |(warning, hosts): (&str, Vec<&str>)| match hosts.len() {
        _ if !names_hosts => warning.to_owned(),
        1..=NAMED_MAX => format!("on {}: {warning}", hosts.join(", ")),
        many => {
            let (named, more) = (hosts[..NAMED_MAX].join(", "), many - NAMED_MAX);
            format!("on {named} and {}: {warning}", counted(more as u64, "other host"))
        }
    };
    hosts_of.into_iter().map(say).collect()
}

/// A server on the loopback address of this machine, which is another one in each namespace.
fn unreachable_tier(settings: &Settings) -> Option<String> {
    let tier = settings.tier.as_ref()?;
    let is_apart = matches!(settings.kind, Kind::Namespaces { .. });
    if !is_apart || !places::is_bucket(OsStr::new(&tier.place)) {
        return None;
    }
    let variable = |name| config::variable_at(tier.endpoint.as_deref(), name);
    let url = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].into_iter().find_map(variable)?;
    let (_, host) = url.split_once("://")?;
    let is_loopback = ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own));
    is_loopback.then(|| {
        format!(
            "simulated nodes have networks of their own, in which {url} is not this machine: use another address of \
             it, or --no-namespaces"
        )
    })
}

/// Tries the tier on this host while the job starts, on a thread that nobody waits for: a tier may hang. Where it can not
/// be opened here there is no warning, and servers that can not open it say so.
fn warning_of_tier(settings: &Settings) -> mpsc::Receiver<String> {
    let (say, warning) = mpsc::channel();
    if let Some(tier) = settings.tier.clone() {
        // As whom no server is known.
        let nobody = settings.owner_in_tier(settings.nodes);
        std::thread::spawn(move || {
            let opened = places::open_owned(&tier, &nobody).ok();
            opened.and_then(|place| warning_of(&*place.tier)).map(|text| say.send(text))
        });
    }
    warning
}

/// What a person should know of a tier in which others change the same files.
fn warning_of(tier: &dyn Tier) -> Option<String> {
    (!tier.capabilities().compares).then(|| {
        let place = tier.describe();
        format!(
            "the tier ({place}) can not compare and swap: a version that another program puts there at the moment when \
             the job publishes the same file is replaced; let no other program write these files meanwhile"
        )
    })
}

fn show(
    job: &Job,
    nodes: &[Ready],
    warnings: &[String],
    begin: Instant,
    output: &Output,
) -> anyhow::Result<()> {
    let settings = &job.settings;
    output.show(&Up {
        job: &settings.job,
        job_dir: job.dir.path().to_owned(),
        kind: settings.kind.word(),
        storage: settings.job_storage(),
        shared_bytes: settings.shared.get(),
        local_bytes: settings.local.get(),
        storage_nodes: settings.groups().servers().iter().map(|server| server.0).collect(),
        tier: settings.tier.as_ref().map(|tier| tier.place.clone()),
        warnings,
        took_ms: begin.elapsed().as_millis() as u64,
        nodes,
    })
}

impl Human for Up<'_> {
    fn write(&self, page: &mut Page) {
        let count = self.nodes.len();
        let nodes = if count == 1 { "node" } else { "nodes" };
        let seconds = self.took_ms as f64 / 1000.0;
        page.title(&format!("job {}: {count} {nodes} up in {seconds:.2} s", self.job));
        page.pair("job directory", &self.job_dir.display());
        page.pair("storage", &self.storage.display());
        let shared = ByteCount(self.shared_bytes);
        let of = self.storage_nodes.len();
        let each = match of == count {
            true => "on each node".to_owned(),
            false => format!("on each of {of} nodes that carry storage"),
        };
        page.pair("shared", &format!("{shared} {each}"));
        page.pair("local", &format!("{} {each}", ByteCount(self.local_bytes)));
        if let Some(tier) = &self.tier {
            page.pair("tier", tier);
        }
        page.blank();
        let row = |node: &Ready| {
            let place = node.shared.parent().unwrap_or(&node.shared).display().to_string();
            vec![node.node.to_string(), node.host.clone(), node.address.clone(), place]
        };
        page.table(&["node", "host", "address", "areas"], self.nodes.iter().map(row).collect());
        page.blank();
        if self.kind == "namespaces" {
            page.line(&format!("hayase exec --job {} --node 0 -- CMD", self.job));
        } else if let Some(node) = self.nodes.first() {
            page.line(&format!("export HAYASE_JOB={}", self.job_dir.display()));
            page.line(&format!("export HAYASE_SHARED={}", node.shared.display()));
            page.line(&format!("export HAYASE_LOCAL={}", node.local.display()));
            if let Some(cache) = &node.cache {
                page.line(&format!("export HAYASE_CACHE={}", cache.display()));
            }
        }
        page.line(&format!("hayase down --job {}", self.job));
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::{Memory, Posix};

    use super::*;

    #[test]
    fn a_tier_that_can_not_compare_and_swap_is_told_of() {
        assert_eq!(warning_of(&Memory::new()), None);
        // Nobody has tried it: nothing is promised.
        let top = tempfile::tempdir().unwrap();
        let warning = warning_of(&Posix::attach(top.path()).unwrap()).unwrap();
        assert!(warning.contains(&top.path().display().to_string()), "{warning}");
    }
}
