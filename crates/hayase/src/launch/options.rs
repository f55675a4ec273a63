//! What a new job is asked to be: the options that `up` and `run` have in common.
//!
//! Here: options, and what can be said of one without the others. Not here: what is meant ([`super::plan`]).

use std::ffi::OsString;
use std::path::PathBuf;

use hayase_layout::ByteCount;

use super::tree::way::FANOUT_DEFAULT;
use crate::config::EndpointArg;
use crate::job::{FsyncAt, JobId, KernelProfile, MmapShared, Names, TransportName};
use crate::metrics::listener::parse_address;
use crate::number::{nodes_or_all, seconds, within};
use crate::output::headings::{
    CACHE, CONSISTENCY, JOB, MONITORING, NETWORK, NODES, NOISE, STORAGE, TESTING,
};
use crate::size::{self, SizeError};

/// Simulated nodes of one job: their addresses come from one /24.
pub(crate) const NODES_MAX: u16 = 200;

/// Smallest area.
pub(crate) const AREA_BYTES_MIN: ByteCount = ByteCount::mib(16);

/// How often a file that stays open for writing is flushed.
const FLUSH_OPEN_SECONDS_DEFAULT: u32 = 300;

/// The start is given up when not all nodes are up by then.
const START_SECONDS_DEFAULT: u32 = 30;

/// Names of launchers, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LauncherName {
    /// This machine only, even inside a batch job
    Local,
    /// The hosts of this Slurm job, with srun
    Slurm,
    /// The hosts of this PBS job, over ssh
    Pbs,
    /// The hosts of this PJM job, over ssh
    Pjm,
}

/// Options of a new job.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct JobOptions {
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
    #[arg(long, value_name = "N", value_parser = nodes_or_all, help_heading = STORAGE)]
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
          value_parser = crate::job::tier_faults::parse)]
    pub(crate) tier_faults: Option<crate::job::tier_faults::TierFaults>,

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

/// A size that an area may have, as far as that is known before the job is planned.
fn area_size(text: &str) -> Result<ByteCount, String> {
    size::parse(text).map_err(|error| match error {
        SizeError::Nothing => format!("an area needs at least {AREA_BYTES_MIN}"),
        error => error.to_string(),
    })
}

/// A number of simulated nodes; which ones are possible says the plan.
fn node_count(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("expected 1 to {NODES_MAX}, for example 4"))
}
