//! The directories of a job, made before its nodes start; taken away again when they do not.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::plan::{Plan, PlanError, reason};
use crate::config::Environment;
use crate::job::{
    Job, JobDir, JobError, Kind, Registry, Settings, expect_safe_way, is_ours, make_private,
    mark_storage, remove_leftovers, write_atomically,
};

/// How long a host may take between making the job's place in a storage and marking it.
const CLAIM_MAX: Duration = Duration::from_secs(1);
const CLAIM_PAUSE: Duration = Duration::from_millis(10);

/// Makes job directory, secret, storage and mount points. On failure nothing stays behind.
pub(crate) fn prepare(plan: Plan, environment: &Environment) -> anyhow::Result<Job> {
    let Plan { dir, mut settings } = plan;
    let registry = Registry::make(&environment.runtime)?;
    if let Some(parent) = dir.path().parent() {
        make_private(parent).map_err(JobError::io("make", parent))?;
    }
    // Hosts make the directories of their nodes themselves, here or in a copy of their own.
    let is_hosts = settings.kind == Kind::Hosts;
    if !is_hosts {
        // Written before they are made: whenever this process is killed, a later command knows what to remove.
        settings.made = to_be_made(&settings);
    }
    let nodes = if is_hosts { 0 } else { settings.nodes };
    dir.make(nodes, |making| write_first(making, &settings))?;
    match fill(&dir, &settings, &registry) {
        Ok(()) => Ok(Job { dir, settings }),
        Err(error) => {
            for node in 0..settings.nodes {
                let _ = dir.node(node).remove();
            }
            if settings.kind == Kind::Hosts {
                let job = Job { dir, settings };
                crate::job::clean_unless_needed(&job);
            } else {
                remove_leftovers(&dir, &settings);
            }
            Err(error)
        }
    }
}

/// What makes a directory a job's.
fn write_first(dir: &JobDir, settings: &Settings) -> anyhow::Result<()> {
    dir.write_secret()?;
    Ok(dir.write_settings(settings)?)
}

/// Directories of the storage and of the mount points that are missing, those above others first.
fn to_be_made(settings: &Settings) -> Vec<PathBuf> {
    let mut made = Vec::new();
    let storage = settings.makes_storage.then(|| settings.storage.clone());
    let mounts = (0..settings.nodes).flat_map(|node| settings.area_mounts(node));
    for path in storage.into_iter().chain(mounts) {
        for place in missing(&path).into_iter().rev() {
            if !made.contains(&place) {
                made.push(place);
            }
        }
    }
    made
}

fn fill(dir: &JobDir, settings: &Settings, registry: &Registry) -> anyhow::Result<()> {
    // Registered before anything else is made: whatever happens now, a later command finds it.
    registry.add(&settings.job, dir)?;
    if settings.kind == Kind::Hosts {
        return Ok(write_hosts(dir, settings)?);
    }
    if settings.makes_storage {
        make_all(&settings.storage, &mut Vec::new())
            .map_err(JobError::io("make storage", &settings.storage))?;
    }
    // Only now: what was not there before may be somebody else's.
    expect_safe_way(&settings.storage)?;
    claim_storage(settings)?;
    for place in (0..settings.nodes).flat_map(|node| settings.area_mounts(node)) {
        let made = make_all(&place, &mut Vec::new());
        made.map_err(|error| PlanError::MountPoint { path: place.clone(), why: reason(&error) })?;
        expect_safe_way(&place)?;
    }
    write_hosts(dir, settings)?;
    let own = dir.own_node();
    match settings.kind {
        Kind::Namespaces { .. } => fs::create_dir(own.path()),
        Kind::ThisMachine => std::os::unix::fs::symlink("node-0", own.path()),
        Kind::Loopback { .. } | Kind::Hosts => Ok(()),
    }
    .map_err(JobError::io("make", own.path()))?;
    Ok(())
}

/// Makes the job's place in the storage and leaves its mark there. Of two jobs of one name only
/// one gets it, also when they start at the same moment. Hosts of one job may share a storage.
pub(crate) fn claim_storage(settings: &Settings) -> anyhow::Result<()> {
    let place = settings.job_storage();
    match fs::DirBuilder::new().mode(0o700).create(&place) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if settings.kind == Kind::Hosts && is_claimed(settings) {
                return Ok(());
            }
            let path = settings.storage.clone();
            return Err(PlanError::StorageTaken { path, job: settings.job.clone() }.into());
        }
        Err(error) => return Err(JobError::io("make", place)(error).into()),
    }
    Ok(mark_storage(settings)?)
}

/// Whether another host of this job has just made the place, whose mark may still be on its way.
fn is_claimed(settings: &Settings) -> bool {
    let deadline = Instant::now() + CLAIM_MAX;
    while !settings.storage_mark().exists() && Instant::now() < deadline {
        std::thread::sleep(CLAIM_PAUSE);
    }
    is_ours(settings)
}

/// As `mkdir -p`, and notes every directory that was missing.
pub(crate) fn make_all(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    for place in missing(path).into_iter().rev() {
        fs::DirBuilder::new().mode(0o700).create(&place)?;
        made.push(place);
    }
    Ok(())
}

/// `path` and the directories above it that are not there, the lowest first.
fn missing(path: &Path) -> Vec<PathBuf> {
    path.ancestors().take_while(|place| !place.exists()).map(Path::to_owned).collect()
}

/// What simulated nodes see as `/etc/hosts`, and a list of hosts for launchers of MPI.
fn write_hosts(dir: &JobDir, settings: &Settings) -> Result<(), JobError> {
    let mut hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    if !hosts.contains("localhost") {
        hosts.push_str("127.0.0.1 localhost\n");
    }
    let mut list = String::new();
    hosts.push_str(&format!("# nodes of job {}\n", settings.job));
    for node in 0..settings.nodes {
        let host = settings.host(node);
        list.push_str(&format!("{host}\n"));
        if let Some(address) = settings.address(node) {
            hosts.push_str(&format!("{address} {host} n{node}\n"));
        }
    }
    if settings.kind != Kind::Hosts {
        write_atomically(&dir.hosts(), hosts.as_bytes())?;
    }
    write_atomically(&dir.hostfile(), list.as_bytes())
}
