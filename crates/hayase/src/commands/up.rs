//! `hayase up`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use hayase_tier::Tier;
use serde::Serialize;

use super::transfer::EndpointArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::{
    Dead, FsyncAt, Job, JobId, KernelProfile, MmapShared, Names, Registry, Settings, TransportName,
    clean_dead,
};
use crate::launch::allocation::LauncherName;
use crate::launch::signals::{ENDING, Signals};
use crate::launch::tree::way::FANOUT_DEFAULT;
use crate::launch::{PlanError, ground, plan, start};
use crate::metrics::listener::parse_address;
use crate::output::{Human, Output, Page};
use crate::size;
use crate::supervisor::said::Ready;
use crate::wiring::places;

/// How long a job that is up waits for what is still to be said of its tier.
const TIER_PATIENCE: Duration = Duration::from_secs(1);

/// How often a file that stays open for writing is flushed.
const FLUSH_OPEN_SECONDS_DEFAULT: u32 = 300;

/// In which all nodes are up, or the start is given up.
const START_SECONDS_DEFAULT: u32 = 30;

/// Start a job's file system: servers, areas and mounts
///
/// Without any of these options this machine is the job's one node. With --nodes N the machine simulates N
/// nodes: as root each has its own network, host name and mounts, at the same paths, seen with
/// `hayase exec`; otherwise (or with --no-namespaces) each is a plain process with its own loopback
/// address, and its areas are in DIR/node-<i>. With --hosts or --host-file each host is a node, and
/// so is each host of a job of Slurm, PBS or PJM inside of which this is typed. At the end (`hayase down`) all areas are removed.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct UpArgs {
    /// Name of the job: a-z, 0-9 and - [default: random]
    #[arg(long, value_name = "ID")]
    pub(crate) job: Option<JobId>,
    /// Directory on the node's own disk [default: below $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) storage: Option<PathBuf>,
    /// Simulate this many nodes on this machine
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u16>,
    /// Size of each node's share of the shared area, as 300MiB or 1.5G [default: a tenth of the free space]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) shared: Option<ByteCount>,
    /// Size of each node's local area [default: a tenth of the free space]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) local: Option<ByteCount>,
    /// Where the areas appear: DIR/shared, DIR/local [default: below /tmp/hayase-<uid>]
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: Option<PathBuf>,
    /// Directory of the job itself, seen by all nodes [default: below /tmp/hayase-<uid>]
    #[arg(long, value_name = "DIR")]
    pub(crate) job_dir: Option<PathBuf>,
    /// Deal new files out over the nodes in pieces of SIZE [default: each file on its creator's node]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) stripe: Option<ByteCount>,
    /// Nodes that one striped file uses; 0 is all of them
    #[arg(long, value_name = "N")]
    pub(crate) width: Option<u16>,
    /// Only these nodes carry storage, the others use theirs: how many, or which by number or host, as 0,4-5
    #[arg(long, value_name = "N|LIST")]
    pub(crate) storage_nodes: Option<String>,
    /// Start servers only, for programs that use the client library: no areas appear
    #[arg(long, conflicts_with_all = ["stripe", "width"])]
    pub(crate) no_mounts: bool,
    /// Run on these hosts, started over ssh, as a,b,n[01-04]
    #[arg(long, value_name = "LIST", conflicts_with = "nodes")]
    pub(crate) hosts: Option<String>,
    /// The same from a file: a host in each line, as in machine files of MPI
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "hosts"])]
    pub(crate) host_file: Option<PathBuf>,
    /// What starts the nodes [default: --hosts, else the batch system whose job this is, else this machine]
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["nodes", "hosts", "host_file"])]
    pub(crate) launcher: Option<LauncherName>,
    /// Program that runs a command on a host, with options, in place of ssh
    #[arg(long, value_name = "COMMAND", conflicts_with = "nodes")]
    pub(crate) ssh: Option<String>,
    /// Hosts that each host starts directly; the others are started by those
    #[arg(long, value_name = "N", conflicts_with = "nodes", default_value_t = FANOUT_DEFAULT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) fanout: u16,
    /// Where this program lies on the other hosts [default: the same path as here]
    #[arg(long, value_name = "PATH", conflicts_with = "nodes")]
    pub(crate) remote_hayase: Option<PathBuf>,
    /// Directory, bucket (s3://..) or directory of Gfarm (gfarm:///..) to put the cache area in front of: `cache` beside `shared` shows it
    #[arg(long, value_name = "PLACE")]
    pub(crate) tier: Option<OsString>,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArg,
    /// Where bytes of the cache area are when fsync returns [default: node]
    #[arg(long, value_name = "WHERE", requires = "tier")]
    pub(crate) fsync: Option<FsyncAt>,
    /// When the job ends, as 90m, 1:30:00 or 2030-01-31T18:00:00Z, or `none`: `status` warns of what will not be in the tier by then [default: what the batch system says]
    #[arg(long, value_name = "WHEN", requires = "tier")]
    pub(crate) deadline: Option<String>,
    /// Flush files that stay open for writing again and again, after so many seconds; 0 is not at all
    #[arg(long, value_name = "SECONDS", requires = "tier", default_value_t = FLUSH_OPEN_SECONDS_DEFAULT)]
    pub(crate) flush_open: u32,
    /// Makes the tier bad, for tests
    #[arg(long, value_name = "HOW", requires = "tier", hide = true,
          value_parser = crate::wiring::tier_faults::parse)]
    pub(crate) tier_faults: Option<crate::wiring::tier_faults::TierFaults>,
    /// Tell counters to Prometheus at http://ADDR:PORT/metrics of each node [default: nowhere; ADDR 127.0.0.1]
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_address)]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// How the servers of the nodes speak to each other [default: auto]
    #[arg(long, value_name = "WHAT")]
    pub(crate) transport: Option<TransportName>,
    /// Encrypt the data between nodes, not only the greeting and the headers
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// Keep all daemons of a node, and the kernel's workers for them, on these of its processors, as 0-1,48
    /// [default: anywhere]
    #[arg(long, value_name = "LIST")]
    pub(crate) system_cores: Option<crate::processors::Processors>,
    /// Move interrupts of network cards and disks to the system cores too, until `hayase down` (root)
    #[arg(long, requires = "system_cores")]
    pub(crate) move_interrupts: bool,
    /// Let the daemons of a node together use so many of its processors at most, as 0.5, or such a share of all
    /// of them, as 10% [default: no limit]
    #[arg(long, value_name = "CORES|PERCENT%")]
    pub(crate) cpu_budget: Option<crate::cpu_budget::CpuBudget>,
    /// Use no feature that a Linux older than this lacks
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel_profile: Option<KernelProfile>,
    /// How long other nodes may remember names
    #[arg(long, value_name = "HOW")]
    pub(crate) names: Option<Names>,
    /// Where a file may be mapped shared and writable
    #[arg(long, value_name = "WHERE")]
    pub(crate) mmap_shared: Option<MmapShared>,
    /// Give up when not all nodes are up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = START_SECONDS_DEFAULT)]
    pub(crate) timeout: u32,
    /// Keep the areas in plain directories and count, where an image per area could be made
    #[arg(long)]
    pub(crate) no_image: bool,
    /// Read and write parts through the page cache only, where large requests of other nodes could go past it
    #[arg(long)]
    pub(crate) no_direct_io: bool,
    /// Let a mount gather small writes of a file that its node alone has open, and send many at once. Experimental: a
    /// mount that pauses for some seconds may lose what it has gathered (its next calls on the file say so)
    #[arg(long)]
    pub(crate) gather: bool,
    /// Simulate nodes as plain processes even where namespaces could be made
    #[arg(long, requires = "nodes")]
    pub(crate) no_namespaces: bool,
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
    let nodes = launched.nodes.clone();
    let job = launched.let_go(output);
    show(&job, &nodes, begin, output)?;
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
        output.note(&match dead {
            Dead::Cleaned(job) => {
                format!("removed what job {job} had left; its processes had ended")
            }
            Dead::Kept(job, why) => format!("job {job} has ended: {why}"),
            Dead::Unknown(why) => why.with_help(),
        });
    }
    let plan = plan::plan(args, environment)?;
    let job = ground::prepare(plan, environment)?;
    let warning = warning_of_tier(&job.settings);
    let launched = start::start(job, environment, signals, output)?;
    if let Ok(warning) = warning.recv_timeout(TIER_PATIENCE) {
        output.note(&warning);
    }
    Ok(launched)
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

fn show(job: &Job, nodes: &[Ready], begin: Instant, output: &Output) -> anyhow::Result<()> {
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
