//! The settings of a job, as `up` decided them: `job.json`, read by every process of the job.
//!
//! Here: the record, and every path, name and address that follows from it.
//! Not here: how they are chosen (`launch::plan`).

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hayase_layout::{ByteCount, Groups, NodeId, StripePolicy};
use hayase_tier::Owner;
use serde::{Deserialize, Serialize};

use super::tier_faults::TierFaults;
use crate::cpu_budget::CpuBudget;
use crate::host::is_same_host;
use crate::process::ProcessId;
use crate::processors::Processors;

/// Changes whenever an old binary would misread a new `job.json`.
pub(crate) const SETTINGS_FORMAT: u32 = 1;

/// In the environment of every program that `exec` and `run` start: the job's mark, by which `down`
/// knows the programs that it may end.
pub(crate) const MARK_VARIABLE: &str = "HAYASE_MARK";

/// Name of a job: 1 to 32 of `a-z0-9-`, beginning and ending with a letter or digit, so that it
/// can stand in a host name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct JobId(String);

/// A text that can not name a job.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid job name `{0}`: use 1 to 32 characters of a-z, 0-9 and -, without - at the ends")]
pub(crate) struct JobIdError(String);

impl FromStr for JobId {
    type Err = JobIdError;

    fn from_str(text: &str) -> Result<Self, JobIdError> {
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let is_good = (1..=32).contains(&text.len())
            && text.bytes().all(fits)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if is_good { Ok(Self(text.to_owned())) } else { Err(JobIdError(text.to_owned())) }
    }
}

impl TryFrom<String> for JobId {
    type Error = JobIdError;

    fn try_from(text: String) -> Result<Self, JobIdError> {
        text.parse()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JobId {
    /// As text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// How the nodes of a job come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(crate) enum Kind {
    /// This machine is the one node; its mounts are seen by everybody here.
    ThisMachine,
    /// Simulated nodes, each with its own network, mounts and host name.
    Namespaces {
        /// Node `i` has address `subnet + 1 + i`; a /24.
        subnet: Ipv4Addr,
    },
    /// Simulated nodes as plain processes with a loopback address each.
    Loopback {
        /// Node `i` has address `subnet + 1 + i`; a /24 in 127/8.
        subnet: Ipv4Addr,
    },
    /// Nodes that are hosts of their own: [`Settings::reach`] says which and how.
    Hosts,
}

impl Kind {
    /// One word, for people and JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ThisMachine => "this-machine",
            Self::Namespaces { .. } => "namespaces",
            Self::Loopback { .. } => "loopback",
            Self::Hosts => "hosts",
        }
    }
}

/// How other hosts are reached, once and for all commands of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub(crate) enum Way {
    /// A program that takes a host and a command: ssh, or what takes its place.
    Ssh {
        /// Program and options, as words.
        command: Vec<String>,
    },
    /// Steps of a Slurm job.
    Slurm {
        /// Its number.
        job: String,
    },
}

/// The hosts of a job whose nodes are machines of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// Host of node `i` at place `i`, as the list named it.
    pub(crate) hosts: Vec<String>,
    /// How.
    pub(crate) way: Way,
    /// Hosts that one host starts directly.
    pub(crate) fanout: u16,
    /// Where this program lies on each host.
    pub(crate) binary: PathBuf,
}

impl Default for Reach {
    fn default() -> Self {
        let way = Way::Ssh { command: vec!["ssh".to_owned()] };
        Self { hosts: Vec::new(), way, fanout: 1, binary: PathBuf::new() }
    }
}

/// Whose abilities a mount pretends to have; masks features of newer kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum KernelProfile {
    /// As in RHEL 8
    #[value(name = "4.18")]
    #[serde(rename = "4.18")]
    V4_18,
    /// As on Debian 12
    #[value(name = "6.1")]
    #[serde(rename = "6.1")]
    V6_1,
    /// Files that several nodes use may be mapped shared
    #[value(name = "6.6")]
    #[serde(rename = "6.6")]
    V6_6,
    /// Adds FUSE passthrough
    #[value(name = "6.9")]
    #[serde(rename = "6.9")]
    V6_9,
}

/// How long names may be cached on other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Names {
    /// Up to 1 s: a rename on another node is seen within that time
    #[default]
    Cached,
    /// Not at all: each lookup asks the servers
    Strict,
}

/// How servers speak to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TransportName {
    /// UCX on nodes with a working RDMA device, otherwise TCP
    #[default]
    Auto,
    /// TCP on all nodes
    Tcp,
    /// UCX even without RDMA (needs libucp.so.0 of the package libucx0); experimental
    Ucx,
}

impl TransportName {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Where a file may be mapped shared and writable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MmapShared {
    /// On all nodes; whole pages are written back
    #[default]
    Everywhere,
    /// Only on the node that stores the file
    Home,
}

/// What `up` decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// [`SETTINGS_FORMAT`].
    pub(crate) format: u32,
    /// Its name.
    pub(crate) job: JobId,
    /// 32 hex digits made for this start; in the environment of every program started by
    /// `exec` or `run`, and in the storage, so that both are known as this job's.
    pub(crate) mark: String,
    /// Boot of the machine that ran `up`.
    pub(crate) boot_id: String,
    /// The PID namespace of the launcher on that machine; empty where it is not known.
    #[serde(default)]
    pub(crate) pid_namespace: String,
    /// The launcher, which counts as a living process of the job until the nodes have begun.
    pub(crate) launcher: ProcessId,
    /// Milliseconds since 1970.
    pub(crate) created_ms: u64,
    /// Owner.
    pub(crate) uid: u32,
    /// Group of the owner.
    pub(crate) gid: u32,
    /// Root that may mount and make loop devices.
    pub(crate) is_privileged: bool,
    /// How nodes come about.
    pub(crate) kind: Kind,
    /// How many.
    pub(crate) nodes: u16,
    /// Which of them carry storage, when not all do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) storage_nodes: Vec<u16>,
    /// Servers only: nothing is mounted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_mounts: bool,
    /// Where they are and how they are reached, when they are hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reach: Option<Reach>,
    /// Absolute; the job keeps its bytes below `storage/<job>`.
    pub(crate) storage: PathBuf,
    /// The storage is our own default, to be made when missing.
    #[serde(default)]
    pub(crate) makes_storage: bool,
    /// Absolute; the areas appear below it.
    pub(crate) mount: PathBuf,
    /// Directories that `up` made on the way to the mount points and the storage, deepest last;
    /// `down` removes those that are empty.
    pub(crate) made: Vec<PathBuf>,
    /// Where this user's jobs are registered.
    pub(crate) runtime: PathBuf,
    /// Per node.
    pub(crate) shared: ByteCount,
    /// Per node.
    pub(crate) local: ByteCount,
    /// Areas are XFS images, else plain directories that are counted.
    pub(crate) image: bool,
    /// Layout of new files in `shared`; local-first without.
    pub(crate) stripe: Option<StripePolicy>,
    /// Large requests of other nodes may go past the page cache.
    pub(crate) direct_io: bool,
    /// Mounts gather small writes of files that their node alone has open.
    pub(crate) gather: bool,
    /// How the servers speak to each other.
    #[serde(default, skip_serializing_if = "TransportName::is_auto")]
    pub(crate) transport: TransportName,
    /// Payloads between nodes are encrypted.
    pub(crate) encrypt: bool,
    /// Where the daemons of a node stay; anywhere without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) system_cores: Option<Processors>,
    /// Interrupts of network cards and disks go there too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) move_interrupts: bool,
    /// Processor time of the daemons of a node together; no limit without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_budget: Option<CpuBudget>,
    /// Features to hide.
    pub(crate) kernel_profile: Option<KernelProfile>,
    /// Names on other nodes.
    pub(crate) names: Names,
    /// Shared mappings.
    pub(crate) mmap_shared: MmapShared,
    /// How long the start of all nodes may take.
    pub(crate) timeout_ms: u64,
    /// What the cache area stands in front of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tier: Option<TierSettings>,
    /// Where each server tells its counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<SocketAddr>,
}

/// The cache area of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TierSettings {
    /// An absolute directory, or the URL of a bucket.
    pub(crate) place: String,
    /// Where its S3 server is, when `up` was told; otherwise the environment of each server says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    /// Inode number of a tier that is a directory, as `up` saw it: a host on which that file system is not mounted has
    /// another directory there, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<u64>,
    /// What fsync(2) promises.
    pub(crate) fsync: FsyncAt,
    /// Milliseconds since 1970: the end of the job.
    pub(crate) deadline_ms: Option<u64>,
    /// Seconds after which a file that stays open for writing is flushed as it stands; 0: never.
    #[serde(default)]
    pub(crate) flush_open_s: u32,
    /// Of tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) faults: Option<TierFaults>,
}

/// Where bytes must be when fsync(2) of a file in the cache area returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FsyncAt {
    /// On the storage of the node
    #[default]
    Node,
    /// In the tier
    Tier,
}

impl Settings {
    /// Host name of a node: `<job>-n<i>` when simulated, as it was listed when it is a host.
    pub(crate) fn host(&self, node: u16) -> String {
        match self.kind {
            Kind::Hosts => {
                let hosts = self.reach.as_ref().map(|reach| &reach.hosts);
                hosts.and_then(|hosts| hosts.get(usize::from(node)).cloned()).unwrap_or_default()
            }
            Kind::ThisMachine => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            Kind::Namespaces { .. } | Kind::Loopback { .. } => format!("{}-n{node}", self.job),
        }
    }

    /// As whose the uploads of a node's server are known in the tier, after each of its starts. The mark tells
    /// the job from others of its name.
    pub(crate) fn owner_in_tier(&self, node: u16) -> Owner {
        let mark = self.mark.get(..16).unwrap_or(&self.mark);
        Owner::new(format!("{}-{mark}-{node}", self.job)).expect("a job and its mark are plain")
    }

    /// The node that `host` names: `<job>-n<i>`, `n<i>` or its address; a host by its short or long name.
    pub(crate) fn node_of_host(&self, host: &str) -> Option<u16> {
        (0..self.nodes).find(|&node| {
            host == self.host(node)
                || (self.kind == Kind::Hosts && is_same_host(host, &self.host(node)))
                || (self.kind != Kind::Hosts && host == format!("n{node}"))
                || self.address(node).is_some_and(|address| host == address.to_string())
        })
    }

    /// Where a node's server listens; hosts find that out themselves.
    pub(crate) fn address(&self, node: u16) -> Option<Ipv4Addr> {
        match self.kind {
            Kind::ThisMachine => Some(Ipv4Addr::LOCALHOST),
            Kind::Namespaces { subnet } | Kind::Loopback { subnet } => {
                Some(Ipv4Addr::from_bits(subnet.to_bits() + 1 + u32::from(node)))
            }
            Kind::Hosts => None,
        }
    }

    /// Where a node's server tells its counters, if it does: nodes that share this machine's network
    /// take one port after the other.
    pub(crate) fn metrics_address(&self, node: u16) -> Option<SocketAddr> {
        let mut address = self.metrics?;
        if matches!(self.kind, Kind::Loopback { .. }) {
            address.set_port(address.port().saturating_add(node));
        }
        Some(address)
    }

    /// Which nodes have storage, and whose storage the others use.
    pub(crate) fn groups(&self) -> Groups {
        Groups::new(self.nodes, &self.storage_nodes).unwrap_or_else(|_| Groups::all(self.nodes))
    }

    /// Whether a node has storage of its own.
    pub(crate) fn has_storage(&self, node: u16) -> bool {
        self.groups().has_storage(NodeId(node))
    }

    /// How many mounts a node's server has to do with: `shared`, and `local` where its storage is elsewhere.
    pub(crate) fn mounts_of(&self, node: u16) -> u16 {
        match (self.no_mounts, self.has_storage(node)) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    }

    /// The node whose storage a node uses first.
    pub(crate) fn storage_of(&self, node: u16) -> u16 {
        self.groups().server_of(NodeId(node)).0
    }

    /// Everything this job keeps in its storage.
    pub(crate) fn job_storage(&self) -> PathBuf {
        self.storage.join(self.job.as_str())
    }

    /// Names the job that owns [`Settings::job_storage`]: holds its mark.
    pub(crate) fn storage_mark(&self) -> PathBuf {
        self.job_storage().join("mark")
    }

    /// One node's share of it.
    pub(crate) fn node_storage(&self, node: u16) -> PathBuf {
        self.job_storage().join(format!("node-{node}"))
    }

    /// Holds `parts/` and `meta/` of the node's server.
    pub(crate) fn shared_root(&self, node: u16) -> PathBuf {
        self.node_storage(node).join("shared")
    }

    /// What `local` shows.
    pub(crate) fn local_root(&self, node: u16) -> PathBuf {
        self.node_storage(node).join("local")
    }

    fn mounts(&self, node: u16) -> PathBuf {
        match self.kind {
            Kind::Loopback { .. } => self.mount.join(format!("node-{node}")),
            Kind::ThisMachine | Kind::Namespaces { .. } | Kind::Hosts => self.mount.clone(),
        }
    }

    /// `$HAYASE_SHARED` on that node.
    pub(crate) fn shared_mount(&self, node: u16) -> PathBuf {
        self.mounts(node).join("shared")
    }

    /// `$HAYASE_LOCAL` on that node.
    pub(crate) fn local_mount(&self, node: u16) -> PathBuf {
        self.mounts(node).join("local")
    }

    /// `$HAYASE_CACHE` on that node, when the job has a tier.
    pub(crate) fn cache_mount(&self, node: u16) -> Option<PathBuf> {
        self.tier.as_ref().map(|_| self.mounts(node).join("cache"))
    }

    /// The places at which the areas of a node appear.
    pub(crate) fn area_mounts(&self, node: u16) -> Vec<PathBuf> {
        let all = [Some(self.shared_mount(node)), Some(self.local_mount(node))];
        all.into_iter().chain([self.cache_mount(node)]).flatten().collect()
    }

    /// Where the server of a node keeps its ledger: seen also when the area itself is not mounted.
    pub(crate) fn ledger(&self, node: u16) -> PathBuf {
        let beside = if self.image { self.node_storage(node) } else { self.shared_root(node) };
        beside.join(hayase_store::area::LEDGER_DIRECTORY)
    }

    /// Whether each node has namespaces of its own.
    pub(crate) fn has_namespaces(&self) -> bool {
        matches!(self.kind, Kind::Namespaces { .. })
    }

    /// The lowest node on which `path` lies in an area.
    pub(crate) fn node_of_path(&self, path: &Path) -> Option<u16> {
        (0..self.nodes)
            .find(|&node| self.area_mounts(node).iter().any(|mount| path.starts_with(mount)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Settings of a job that exists only in a test.
    pub(crate) fn sample(kind: Kind, nodes: u16) -> Settings {
        Settings {
            format: SETTINGS_FORMAT,
            job: "t1".parse().unwrap(),
            mark: "00".repeat(16),
            boot_id: crate::process::boot_id().unwrap(),
            pid_namespace: crate::process::pid_namespace(),
            launcher: ProcessId::current().unwrap(),
            created_ms: 0,
            uid: 0,
            gid: 0,
            is_privileged: false,
            kind,
            nodes,
            storage_nodes: Vec::new(),
            no_mounts: false,
            reach: None,
            storage: "/s".into(),
            makes_storage: false,
            mount: "/m".into(),
            made: Vec::new(),
            runtime: "/r".into(),
            shared: ByteCount::mib(300),
            local: ByteCount::mib(300),
            image: false,
            stripe: None,
            direct_io: true,
            gather: false,
            transport: TransportName::default(),
            encrypt: false,
            system_cores: "0".parse().ok(),
            move_interrupts: true,
            cpu_budget: "12.5%".parse().ok(),
            kernel_profile: Some(KernelProfile::V6_1),
            names: Names::Cached,
            mmap_shared: MmapShared::Everywhere,
            timeout_ms: 1000,
            tier: None,
            metrics: None,
        }
    }

    #[test]
    fn job_names_fit_in_a_host_name() {
        for good in ["a", "h4k2", "my-job-7", &"x".repeat(32)] {
            assert!(good.parse::<JobId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a/b", "..", &"x".repeat(33)] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nodes_have_hosts_addresses_and_places() {
        let spaces = sample(Kind::Namespaces { subnet: Ipv4Addr::new(10, 70, 3, 0) }, 3);
        assert_eq!(spaces.host(2), "t1-n2");
        assert_eq!(spaces.address(2), Some(Ipv4Addr::new(10, 70, 3, 3)));
        assert_eq!(spaces.shared_mount(2), Path::new("/m/shared"));
        assert_eq!(spaces.shared_root(2), Path::new("/s/t1/node-2/shared"));
        for (host, node) in
            [("t1-n1", Some(1)), ("n0", Some(0)), ("10.70.3.3", Some(2)), ("n3", None), ("x", None)]
        {
            assert_eq!(spaces.node_of_host(host), node, "{host}");
        }
        let plain = sample(Kind::Loopback { subnet: Ipv4Addr::new(127, 9, 9, 0) }, 2);
        assert_eq!(plain.shared_mount(1), Path::new("/m/node-1/shared"));
        assert_eq!(plain.node_of_path(Path::new("/m/node-1/local/x")), Some(1));
        assert_eq!(plain.node_of_path(Path::new("/elsewhere")), None);
        let mut real = sample(Kind::Hosts, 2);
        let way = Way::Ssh { command: vec!["ssh".into()] };
        let hosts = vec!["a.example".into(), "b".into()];
        real.reach = Some(Reach { hosts, way, fanout: 2, binary: "/h".into() });
        assert_eq!((real.host(1).as_str(), real.address(1)), ("b", None));
        for (host, node) in [("a", Some(0)), ("b.example", Some(1)), ("n1", None), ("", None)] {
            assert_eq!(real.node_of_host(host), node, "{host}");
        }
    }

    #[test]
    fn nodes_without_storage_use_that_of_others() {
        let mut settings = sample(Kind::ThisMachine, 4);
        assert!((0..4).all(|node| settings.has_storage(node) && settings.storage_of(node) == node));
        settings.storage_nodes = vec![1, 2];
        let used: Vec<_> = (0..4).map(|node| settings.storage_of(node)).collect();
        assert_eq!(used, [1, 1, 2, 2]);
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    }

    #[test]
    fn settings_survive_their_file() {
        for kind in [Kind::ThisMachine, Kind::Loopback { subnet: Ipv4Addr::new(127, 1, 2, 0) }] {
            let settings = sample(kind, 1);
            let text = serde_json::to_string(&settings).unwrap();
            assert!(text.contains("\"6.1\""), "{text}");
            assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
        }
    }
}
