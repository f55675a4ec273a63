//! From what was typed to what was meant: the settings of a new job, checked before anything starts.
//!
//! Here: defaults, limits, and every check that needs no change on disk. Not here: making the
//! directories ([`super::ground`]).

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hayase_layout::{ByteCount, PolicyError, STRIPE_BYTES_DEFAULT, StripePolicy, check_stripe};
use hayase_ucx::{NotLoaded, UcxTransport};
use rustix::fs::Access;

use super::allocation::{Choice, choose};
use super::options::{AREA_BYTES_MIN, JobOptions, NODES_MAX};
use super::{deadline, storage_nodes};
use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::job::{
    Job, JobDir, JobError, JobId, Kind, Reach, Registry, SETTINGS_FORMAT, Settings, TierSettings,
    TransportName, expect_safe_way, is_mapped, whole_safe_way,
};
use crate::moment;
use crate::process::{ProcessId, boot_id, pid_namespace};
use crate::processors::Missing;
use crate::system::{mounts, network};
use crate::wiring::places;

/// An area takes one part in this many of the free space, unless a size is given, but not less than
/// the second number.
const FREE_SPACE_SHARE: u64 = 10;
const DEFAULT_BYTES_MIN: ByteCount = ByteCount::mib(300);

/// Why no job can be started this way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// UCX was asked for and is not here.
    #[error("--transport ucx: {0}")]
    Ucx(NotLoaded),
    /// The storage is not there, or nothing can be written there.
    #[error("storage {}: {why}", .path.display())]
    Storage {
        /// The directory.
        path: PathBuf,
        /// In words.
        why: String,
    },
    /// A job of this name has its bytes there.
    #[error("storage {} already has a job named {job}", .path.display())]
    StorageTaken {
        /// The directory.
        path: PathBuf,
        /// Which.
        job: JobId,
    },
    /// The areas do not fit.
    #[error("not enough space in storage {}: {free} free, {needed} needed for the areas", .path.display())]
    StorageFull {
        /// The directory.
        path: PathBuf,
        /// Now.
        free: ByteCount,
        /// For all nodes on this machine.
        needed: ByteCount,
    },
    /// Below what an area can be.
    #[error("--{area} {size} is too small: at least {least} are needed")]
    TooSmall {
        /// Which.
        area: &'static str,
        /// Asked for.
        size: ByteCount,
        /// Possible.
        least: ByteCount,
    },
    /// The areas can not appear there.
    #[error("mount point {}: {why}", .path.display())]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// In words.
        why: String,
    },
    /// Too many or none.
    #[error("--nodes {0}: expected 1 to {NODES_MAX}, for example 4")]
    Nodes(u16),
    /// Out of bounds, or not whole pages.
    #[error("--stripe: {0}")]
    Stripe(PolicyError),
    /// More servers than there are.
    #[error("--width {width}: only {nodes} nodes of the job store files")]
    Width {
        /// Asked for.
        width: u16,
        /// With storage.
        nodes: u16,
    },
    /// Its name can not be written down.
    #[error("--tier {}: the name must be UTF-8", .0.display())]
    Tier(std::ffi::OsString),
    /// Another kind of storage.
    #[error("--tier {}: expected a directory, a bucket or a Gfarm directory", .0.display())]
    TierKind(std::ffi::OsString),
    /// Nothing of the job is there.
    #[error("--endpoint needs --tier")]
    EndpointAlone,
    /// Not of this machine.
    #[error("--system-cores: {0}")]
    Cores(Missing),
    /// The job directory exists.
    #[error("job directory {} exists already", .0.display())]
    JobDirExists(PathBuf),
}

impl PlanError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        let text = match self {
            Self::Storage { .. } => "name an existing directory on this node's own disk: --storage",
            Self::StorageTaken { job, .. } => {
                return Some(format!(
                    "end it with `hayase down --job {job}`, or choose another --job or --storage"
                ));
            }
            Self::StorageFull { .. } => "choose smaller --shared and --local, or another --storage",
            Self::MountPoint { .. } => "choose another --mount",
            Self::Width { .. } => "--width 0 means all nodes",
            Self::EndpointAlone => "add --tier s3://BUCKET/PREFIX, or omit --endpoint",
            Self::JobDirExists(_) => "choose another --job-dir, or remove it",
            Self::Ucx(error) => error.help(),
            Self::Stripe(error) => return error.help().map(str::to_owned),
            Self::TierKind(_) => {
                "name a directory that all nodes see, s3://BUCKET/PREFIX or gfarm:///DIR"
            }
            Self::Tier(_) | Self::Nodes(_) | Self::TooSmall { .. } | Self::Cores(_) => return None,
        };
        Some(text.to_owned())
    }
}

impl Advise for PlanError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(self.help()))
    }
}

/// A job that could be started.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Its directory, not made yet.
    pub(crate) dir: JobDir,
    /// Its settings; `made` is filled in by [`super::ground`].
    pub(crate) settings: Settings,
}

/// Decides everything that was left open and checks everything that was not.
pub(crate) fn plan(options: &JobOptions, environment: &Environment) -> anyhow::Result<Plan> {
    let registry = Registry::open(&environment.runtime)?;
    let living = registry.jobs();
    let mark: String =
        crate::job::random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let job = choose_name(options, &registry)?;
    let (reach, nodes) = choose_nodes(options, environment)?;
    let kind = match reach {
        Some(_) => Kind::Hosts,
        None => choose_kind(options, environment, &mark, &living),
    };
    let is_here = reach.is_none();
    if let Some(cores) = options.system_cores.as_ref().filter(|_| is_here) {
        cores.require().map_err(PlanError::Cores)?;
    }
    let (storage, makes_storage) = choose_storage(options, environment, is_here)?;
    let mount = match &options.mount {
        Some(mount) => std::path::absolute(mount)?,
        None => environment.runtime.join("mnt").join(job.as_str()),
    };
    let dir = match &options.job_dir {
        Some(dir) => std::path::absolute(dir)?,
        None => registry.entry(&job),
    };
    // No kernel lets root of a user namespace mount XFS.
    let image = environment.is_privileged && !is_mapped() && !options.no_image;
    let mut settings = Settings {
        format: SETTINGS_FORMAT,
        job,
        mark,
        boot_id: boot_id()?,
        pid_namespace: pid_namespace(),
        launcher: ProcessId::current()?,
        created_ms: moment::now_ms(),
        uid: environment.uid,
        gid: environment.gid,
        is_privileged: environment.is_privileged,
        kind,
        nodes,
        storage_nodes: Vec::new(),
        no_mounts: options.no_mounts,
        reach,
        storage,
        makes_storage,
        mount,
        made: Vec::new(),
        runtime: environment.runtime.clone(),
        shared: ByteCount::ZERO,
        local: ByteCount::ZERO,
        image,
        stripe: None,
        direct_io: !options.no_direct_io,
        gather: options.gather,
        transport: choose_transport(options, is_here)?,
        encrypt: options.encrypt,
        system_cores: options.system_cores.clone(),
        move_interrupts: options.move_interrupts,
        cpu_budget: options.cpu_budget,
        kernel_profile: options.kernel_profile,
        names: options.names.unwrap_or_default(),
        mmap_shared: options.mmap_shared.unwrap_or_default(),
        timeout_ms: u64::from(options.timeout) * 1000,
        tier: choose_tier(options, environment)?,
        metrics: options.metrics,
    };
    if let Some(text) = &options.storage_nodes {
        settings.storage_nodes =
            storage_nodes::parse(text, nodes, |host| settings.node_of_host(host))?;
    }
    let with_storage = settings.groups().count();
    (settings.shared, settings.local) =
        choose_sizes(options, &settings.storage, with_storage, is_here)?;
    settings.stripe = choose_stripe(options, with_storage)?;
    check_places(&settings, &dir, &living)?;
    Ok(Plan { dir: JobDir::new(dir), settings })
}

/// How the servers speak; on this machine it is known at once whether UCX can be had.
fn choose_transport(options: &JobOptions, is_here: bool) -> Result<TransportName, PlanError> {
    let transport = options.transport.unwrap_or_default();
    if transport == TransportName::Ucx && is_here {
        UcxTransport::library_version().map_err(PlanError::Ucx)?;
    }
    Ok(transport)
}

/// The tier, which is there: a job does not find out later that it can not be reached.
fn choose_tier(
    options: &JobOptions,
    environment: &Environment,
) -> anyhow::Result<Option<TierSettings>> {
    let Some(place) = &options.tier else { return Ok(None) };
    let place = match places::is_url(place) {
        true if places::can_be_cached(place) => place.clone(),
        true => return Err(PlanError::TierKind(place.clone()).into()),
        false => std::path::absolute(place)?.into_os_string(),
    };
    places::open(&place, places::Wish::Present).context("open the tier")?;
    let root = places::root_of(&place).context("open the tier")?;
    let place = place.into_string().map_err(PlanError::Tier)?;
    let deadline_ms = deadline::choose(options.deadline.as_deref(), environment)?;
    let (fsync, flush_open_s) = (options.fsync.unwrap_or_default(), options.flush_open);
    let faults = options.tier_faults;
    let endpoint = options.endpoint.endpoint.clone();
    Ok(Some(TierSettings { place, endpoint, root, fsync, deadline_ms, flush_open_s, faults }))
}

/// The hosts of the job, if it is not this machine alone, and how many nodes it has.
fn choose_nodes(
    options: &JobOptions,
    environment: &Environment,
) -> anyhow::Result<(Option<Reach>, u16)> {
    let (hosts, way) = match choose(options, environment)?.0 {
        Choice::Hosts { hosts, way } => (hosts, way),
        Choice::Local => {
            let nodes = options.nodes.unwrap_or(1);
            if !(1..=NODES_MAX).contains(&nodes) {
                return Err(PlanError::Nodes(nodes).into());
            }
            return Ok((None, nodes));
        }
    };
    let nodes = u16::try_from(hosts.len()).expect("lists of hosts are bounded");
    let binary = match &options.remote_hayase {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().context("where is this program")?,
    };
    Ok((Some(Reach { hosts, way, fanout: options.fanout.max(1), binary }), nodes))
}

fn choose_name(options: &JobOptions, registry: &Registry) -> Result<JobId, JobError> {
    if let Some(job) = &options.job {
        let entry = registry.entry(job);
        if entry.exists() {
            return Err(JobError::Exists { job: job.to_string(), path: entry });
        }
        return Ok(job.clone());
    }
    // 32 letters and digits that can not be mistaken for one another.
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let name: String = crate::job::random::<5>()?
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect();
    Ok(format!("h{name}").parse().expect("made of letters and digits"))
}

fn choose_kind(
    options: &JobOptions,
    environment: &Environment,
    mark: &str,
    living: &[Job],
) -> Kind {
    let seed = u64::from_str_radix(&mark[..8], 16).expect("a mark is hex digits");
    let taken: Vec<_> = living
        .iter()
        .filter_map(|job| match job.settings.kind {
            Kind::Namespaces { subnet } | Kind::Loopback { subnet } => Some(subnet),
            Kind::ThisMachine | Kind::Hosts => None,
        })
        .collect();
    match options.nodes {
        None => Kind::ThisMachine,
        Some(_) if environment.is_privileged && !options.no_namespaces => {
            Kind::Namespaces { subnet: network::free_subnet(10, seed, &taken) }
        }
        Some(_) => Kind::Loopback { subnet: network::free_subnet(127, seed, &taken) },
    }
}

/// The storage, and whether it is a default that may be made. Storage of other hosts is checked there.
fn choose_storage(
    options: &JobOptions,
    environment: &Environment,
    is_here: bool,
) -> anyhow::Result<(PathBuf, bool)> {
    let Some(given) = &options.storage else {
        let storage = match &environment.tmpdir {
            Some(tmpdir) => tmpdir.join(format!("hayase-{}-storage", environment.uid)),
            None => environment.runtime.join("storage"),
        };
        return Ok((std::path::absolute(storage)?, true));
    };
    if !is_here {
        return Ok((std::path::absolute(given)?, false));
    }
    // As it was typed: without links nobody could see any more whose they were. (A link of another user in a directory
    // where everybody can make one led root's jobs to any directory of root.)
    let found = whole_safe_way(given)?;
    check_storage(given)?;
    Ok((found.map_or_else(|| std::fs::canonicalize(given), Ok)?, false))
}

/// A directory that this user can write.
pub(crate) fn check_storage(given: &Path) -> Result<(), PlanError> {
    let wrong = |why: String| PlanError::Storage { path: given.to_owned(), why };
    let found = std::fs::metadata(given).map_err(|error| wrong(reason(&error)))?;
    if !found.is_dir() {
        return Err(wrong("it is not a directory".to_owned()));
    }
    check_writable(given).map_err(|error| wrong(reason(&error)))
}

fn choose_sizes(
    options: &JobOptions,
    storage: &Path,
    nodes: u16,
    is_here: bool,
) -> anyhow::Result<(ByteCount, ByteCount)> {
    let least = AREA_BYTES_MIN;
    let free = free_space(storage)?;
    let nodes_here = if is_here { nodes } else { 1 };
    let share = free.get() / FREE_SPACE_SHARE / u64::from(nodes_here);
    let default = ByteCount::mib((share >> 20).max(DEFAULT_BYTES_MIN.get() >> 20));
    let choose = |area, given: Option<ByteCount>| match given {
        Some(size) if size < least => Err(PlanError::TooSmall { area, size, least }),
        Some(size) => Ok(size),
        None => Ok(default),
    };
    let (shared, local) = (choose("shared", options.shared)?, choose("local", options.local)?);
    // Other hosts look at their own disks.
    if is_here {
        check_room(storage, shared, local, nodes)?;
    }
    Ok((shared, local))
}

/// Room for the areas of `nodes` nodes.
pub(crate) fn check_room(
    storage: &Path,
    shared: ByteCount,
    local: ByteCount,
    nodes: u16,
) -> anyhow::Result<()> {
    let free = free_space(storage)?;
    let needed = shared.get().saturating_add(local.get()).saturating_mul(u64::from(nodes));
    if needed > free.get() {
        let path = storage.to_owned();
        if holds_nothing(storage)? {
            return Err(
                PlanError::Storage { path, why: "its file system stores no files".into() }.into()
            );
        }
        return Err(PlanError::StorageFull { path, free, needed: ByteCount(needed) }.into());
    }
    Ok(())
}

fn choose_stripe(options: &JobOptions, nodes: u16) -> Result<Option<StripePolicy>, PlanError> {
    if options.stripe.is_none() && options.width.is_none() {
        return Ok(None);
    }
    let stripe = options.stripe.unwrap_or(STRIPE_BYTES_DEFAULT);
    check_stripe(stripe).map_err(PlanError::Stripe)?;
    let width = options.width.unwrap_or(0);
    if width > nodes {
        return Err(PlanError::Width { width, nodes });
    }
    Ok(Some(StripePolicy { stripe, width }))
}

/// What is there already and would be in the way.
fn check_places(settings: &Settings, dir: &Path, living: &[Job]) -> anyhow::Result<()> {
    expect_safe_way(dir)?;
    if dir.exists() {
        return Err(PlanError::JobDirExists(dir.to_owned()).into());
    }
    if settings.kind == Kind::Hosts {
        return Ok(());
    }
    expect_safe_way(&settings.storage)?;
    expect_safe_way(&settings.mount)?;
    if settings.job_storage().exists() {
        let path = settings.storage.clone();
        return Err(PlanError::StorageTaken { path, job: settings.job.clone() }.into());
    }
    // Removing a directory detaches what other namespaces have mounted on it, so even jobs with
    // namespaces of their own must not share mount points.
    if let Some(other) = living.iter().find(|job| job.settings.mount == settings.mount) {
        let name = &other.settings.job;
        let why = match other.is_alive() {
            true => format!("job {name} has its areas there"),
            false => format!(
                "job {name}, which has ended, left its areas there (`hayase down --job {name}` takes them away)"
            ),
        };
        return Err(PlanError::MountPoint { path: settings.mount.clone(), why }.into());
    }
    for node in 0..settings.nodes {
        check_mount_point(&settings.shared_mount(node))?;
        check_mount_point(&settings.local_mount(node))?;
    }
    Ok(())
}

/// A mount point must be an empty directory with nothing mounted on it, or not there yet.
pub(crate) fn check_mount_point(path: &Path) -> Result<(), PlanError> {
    let wrong = |why: String| Err(PlanError::MountPoint { path: path.to_owned(), why });
    match mounts::is_mount_point(path) {
        Ok(false) => {}
        Ok(true) => return wrong("something is mounted there already".to_owned()),
        Err(error) => return wrong(format!("what is mounted there can not be read: {error}")),
    }
    match std::fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            Some(_) => wrong("it is not empty, and mounting would hide what is in it".to_owned()),
            None => check_writable(path).or_else(|error| wrong(reason(&error))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => Ok(()),
        Err(error) => wrong(reason(&error)),
    }
}

fn check_writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Free for this user, in the file system that holds (or will hold) `path`.
fn free_space(path: &Path) -> io::Result<ByteCount> {
    let there = path.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    let found = rustix::fs::statvfs(there)?;
    Ok(ByteCount(found.f_bavail.saturating_mul(found.f_frsize)))
}

/// A file system such as proc, which has no blocks at all.
fn holds_nothing(path: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statvfs(path)?.f_blocks == 0)
}

/// An I/O error in lower case and without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}
