//! The jobs of this user on this machine: a directory with one entry per job.
//!
//! An entry is a job directory itself (the default place), or a symbolic link to one elsewhere.
//! The directory lies below `/tmp`, where anybody could have made it before its user did. So nothing of it is read, and no
//! link in it is followed, unless it belongs to this user and nobody else can write to it; it is made so that nobody else
//! can enter it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::held::Held;
use super::{Job, JobDir, JobError, JobId, expect_own, hidden};

/// Entries that are looked at; more than anybody has jobs on a machine.
const ENTRIES_MAX: usize = 4096;

/// This user's jobs.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    jobs: PathBuf,
    /// The directory that was looked at; entries are read, made and removed in it, whatever its path leads to later. What is
    /// made there after it was found missing may be somebody else's, and is not read.
    held: Option<Held>,
}

impl Registry {
    /// Below `runtime`, which need not exist yet; refuses one that somebody else could have prepared.
    pub(crate) fn open(runtime: &Path) -> Result<Self, JobError> {
        let jobs = runtime.join("jobs");
        let held = match own(runtime)? {
            Some(_) => own(&jobs)?,
            None => None,
        };
        Ok(Self { jobs, held })
    }

    /// The same for questions that can do without: where it is refused, no job is known, and a warning says why.
    pub(crate) fn open_or_none(runtime: &Path) -> Self {
        Self::open(runtime).unwrap_or_else(|error| {
            tracing::warn!("no jobs are known: {error}");
            Self { jobs: runtime.join("jobs"), held: None }
        })
    }

    /// The same, made where it is missing.
    pub(crate) fn make(runtime: &Path) -> Result<Self, JobError> {
        for path in [runtime, &runtime.join("jobs")] {
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(JobError::io("make", path)(error));
                }
                _ => {}
            }
            let found = fs::symlink_metadata(path).map_err(JobError::io("look at", path))?;
            refuse_unless_own(path, &found, 0o077)?;
        }
        Self::open(runtime)
    }

    /// The entry of a job that is known.
    pub(crate) fn known(&self, job: &JobId) -> Option<PathBuf> {
        let entry = self.entry(job);
        let is_known = |held: &Held| held.path().join(job.as_str()).exists();
        self.held.as_ref().is_some_and(is_known).then_some(entry)
    }

    /// The entry of a job, whether it exists or not.
    pub(crate) fn entry(&self, job: &JobId) -> PathBuf {
        self.jobs.join(job.as_str())
    }

    /// Registers a job whose directory lies elsewhere; nothing to do when it lies here.
    pub(crate) fn add(&self, job: &JobId, dir: &JobDir) -> Result<(), JobError> {
        let entry = self.entry(job);
        if entry == dir.path() {
            return Ok(());
        }
        let place = self.held.as_ref().map(|held| held.path().join(job.as_str()));
        let place = place.unwrap_or_else(|| entry.clone());
        std::os::unix::fs::symlink(dir.path(), place).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                JobError::Exists { job: job.to_string(), path: entry.clone() }
            }
            _ => JobError::io("register the job as", &entry)(error),
        })
    }

    /// Registers a job on the host of one of its nodes, where the launcher may have done so before; the link
    /// that was made, if one was.
    pub(crate) fn add_same(&self, job: &JobId, dir: &JobDir) -> Result<Option<PathBuf>, JobError> {
        let entry = self.entry(job);
        let same = || Some(fs::canonicalize(&entry).ok()? == fs::canonicalize(dir.path()).ok()?);
        match self.add(job, dir) {
            Ok(()) => Ok(entry.is_symlink().then_some(entry)),
            Err(JobError::Exists { .. }) if same() == Some(true) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a link of the registry in `runtime`; a job directory that lies there is removed as such.
    pub(crate) fn forget(runtime: &Path, job: &JobId) {
        match Self::open(runtime) {
            Ok(registry) => {
                // Refused where it is no link.
                let _ = registry.held.map(|held| held.remove_link(job.as_str().as_ref()));
            }
            Err(error) => tracing::warn!("the entry of job {job} stays: {error}"),
        }
    }

    /// Every entry that leads to a readable job, by name. Links that lead nowhere, and what killed commands
    /// left, are removed.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        if self.held.is_some() {
            hidden::sweep(&self.jobs);
        }
        let mut jobs: Vec<Job> = self.found().filter_map(Result::ok).collect();
        jobs.sort_by(|a, b| a.settings.job.cmp(&b.settings.job));
        jobs
    }

    /// The same, those first that live: a dead one may have had the same areas.
    pub(crate) fn living_first(&self) -> Vec<Job> {
        let mut jobs = self.jobs();
        jobs.sort_by_cached_key(|job| !job.is_alive());
        jobs
    }

    /// Why entries lead to jobs of which nothing is known.
    pub(crate) fn damaged(&self) -> Vec<JobError> {
        let is_damage = |error: &JobError| !matches!(error, JobError::NotAJob { .. });
        self.found().filter_map(Result::err).filter(is_damage).collect()
    }

    fn found(&self) -> impl Iterator<Item = Result<Job, JobError>> {
        let entries = self.held.as_ref().and_then(|held| fs::read_dir(held.path()).ok());
        let entries = entries.into_iter().flatten().flatten().take(ENTRIES_MAX);
        entries.filter_map(|entry| {
            let path = self.jobs.join(entry.file_name());
            let found = JobDir::find(&path).and_then(|dir| {
                dir.map(|dir| Ok(Job { settings: dir.settings()?, dir })).transpose()
            });
            match found {
                Ok(Some(job)) => Some(Ok(job)),
                Ok(None) => {
                    let _ = self.held.as_ref().map(|held| held.remove_link(&entry.file_name()));
                    None
                }
                Err(JobError::Foreign { path: target, why, .. }) => {
                    // A link to what is somebody else's; a job directory itself is not to be removed.
                    let entry = (why.is_of_others() && path.is_symlink()).then_some(path);
                    Some(Err(JobError::Foreign { path: target, why, entry }))
                }
                // A storage that does not answer now may be there later.
                Err(JobError::Io { .. }) => None,
                Err(error) => Some(Err(error)),
            }
        })
    }
}

/// A directory to which nobody else can write, if it is there.
fn own(path: &Path) -> Result<Option<Held>, JobError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => {
            let found = found.map_err(JobError::io("look at", path))?;
            refuse_unless_own(path, &found, 0o022)?;
            expect_own(path)
        }
    }
}

/// Refuses anything but a directory of this user that gives others none of `rights`.
fn refuse_unless_own(path: &Path, found: &fs::Metadata, rights: u32) -> Result<(), JobError> {
    let uid = rustix::process::geteuid().as_raw();
    if found.is_dir() && found.uid() == uid && found.mode() & rights == 0 {
        return Ok(());
    }
    Err(JobError::UnsafeRuntime { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::job::{Kind, sample_settings};

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let runtime = top.path().join("r");
        Registry::open(&runtime).unwrap();
        assert!(!runtime.exists(), "opening makes nothing");
        Registry::make(&runtime).unwrap();
        Registry::make(&runtime).unwrap();
        let jobs = runtime.join("jobs");
        let is_refused = |registry| matches!(registry, Err(JobError::UnsafeRuntime { .. }));
        for (path, mode) in [
            (&runtime, 0o750),
            (&runtime, 0o701),
            (&jobs, 0o755),
            (&runtime, 0o702),
            (&jobs, 0o720),
        ] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(is_refused(Registry::make(&runtime)), "{mode:o}");
            let can_write = mode & 0o022 != 0;
            assert_eq!(is_refused(Registry::open(&runtime)), can_write, "{mode:o}");
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let link = top.path().join("link");
        std::os::unix::fs::symlink(&runtime, &link).unwrap();
        assert!(is_refused(Registry::open(&link)));
        Registry::open(&runtime).unwrap();
    }

    /// A stranger makes it right after a command has looked.
    #[test]
    fn what_was_not_there_is_not_read() {
        let top = tempfile::tempdir().unwrap();
        let runtime = top.path().join("r");
        let registry = Registry::open(&runtime).unwrap();
        let job: JobId = "bait".parse().unwrap();
        fs::create_dir_all(&registry.jobs).unwrap();
        let dangling = registry.entry(&"dangling".parse().unwrap());
        std::os::unix::fs::symlink("/nowhere", &dangling).unwrap();
        let dir = JobDir::new(registry.entry(&job));
        dir.create(1).unwrap();
        dir.write_settings(&sample_settings(Kind::ThisMachine, 1)).unwrap();
        assert!(registry.jobs().is_empty() && registry.damaged().is_empty());
        assert!(registry.known(&job).is_none() && dangling.is_symlink());
        assert_eq!(
            Registry::open(&runtime).unwrap().jobs().len(),
            1,
            "a registry that is opened now"
        );
    }

    /// A link takes the place of a registry that was looked at.
    #[test]
    fn a_registry_that_was_opened_is_held_whatever_takes_its_place() {
        let top = tempfile::tempdir().unwrap();
        let (own, others) = (top.path().join("own"), top.path().join("others"));
        let job: JobId = "job".parse().unwrap();
        for (runtime, job) in [(&own, "own"), (&others, "bait")] {
            let registry = Registry::make(runtime).unwrap();
            let dir = JobDir::new(registry.entry(&job.parse().unwrap()));
            dir.create(1).unwrap();
            dir.write_settings(&sample_settings(Kind::ThisMachine, 1)).unwrap();
        }
        let registry = Registry::open(&own).unwrap();
        let moved = top.path().join("moved");
        fs::rename(&own, &moved).unwrap();
        std::os::unix::fs::symlink(&others, &own).unwrap();
        assert!(registry.known(&"bait".parse().unwrap()).is_none());
        assert!(registry.known(&"own".parse().unwrap()).is_some());
        registry.add(&job, &JobDir::new(top.path().join("elsewhere"))).unwrap();
        assert!(moved.join("jobs/job").is_symlink());
        assert!(!others.join("jobs/job").is_symlink());
        assert!(registry.jobs().is_empty(), "a job of others is not listed");
    }

    #[test]
    fn a_link_to_nowhere_is_removed() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("jobs")).unwrap();
        let registry = Registry::open(top.path()).unwrap();
        let job: JobId = "gone".parse().unwrap();
        registry.add(&job, &JobDir::new(top.path().join("nowhere"))).unwrap();
        assert!(matches!(
            registry.add(&job, &JobDir::new(top.path().join("other"))),
            Err(JobError::Exists { .. })
        ));
        assert!(registry.jobs().is_empty());
        assert!(!registry.entry(&job).is_symlink());
    }
}
