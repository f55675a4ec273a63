//! Which job a command means: `--job`, else `HAYASE_JOB`, else this user's only job.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use super::{JobDir, JobError, JobId, Kind, Registry, Settings, SupervisorRecord};
use crate::config::Environment;
use crate::kept_file::KeptFileError;
use crate::process::Handle;

/// A job that was found: where it lies, and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its directory.
    pub(crate) dir: JobDir,
    /// Its settings.
    pub(crate) settings: Settings,
}

/// Finds the job that `named` (an id, or the path of a job directory) or the environment means, if it can be said of all
/// its nodes whether they run here.
pub(crate) fn find(named: Option<&OsString>, environment: &Environment) -> Result<Job, JobError> {
    find_any(named, environment)?.known()
}

/// The same for a command that does what it can where that can not be said of some nodes ([`Job::unknowable`]).
pub(crate) fn find_any(
    named: Option<&OsString>,
    environment: &Environment,
) -> Result<Job, JobError> {
    if let Some(name) = named {
        return by_name(name, &environment.runtime);
    }
    if let Some(name) = &environment.job {
        return by_name(name, &environment.runtime).map_err(|error| match error {
            JobError::NotAJob { path, .. } => JobError::NotAJob { path, from_environment: true },
            other => other,
        });
    }
    the_only_one(&Registry::open(&environment.runtime)?)
}

/// One dead job among living ones is not what anybody means. One of which nothing is known may live; one of somebody else is
/// none of this user, and says why there is none where no other is.
fn the_only_one(registry: &Registry) -> Result<Job, JobError> {
    let mut jobs = registry.jobs();
    let (mut theirs, mut damaged): (Vec<_>, Vec<_>) =
        registry.damaged().into_iter().partition(JobError::is_theirs);
    let may_live = |job: &Job| job.is_alive() || !job.unknowable(job.all_nodes()).is_empty();
    let living: Vec<_> = jobs.iter().filter(|job| may_live(job)).cloned().collect();
    if !living.is_empty() {
        jobs = living;
    }
    match (jobs.len(), damaged.len()) {
        (0, 0) => Err(theirs.pop().unwrap_or(JobError::NoneRunning)),
        (0, 1) => Err(damaged.remove(0)),
        (1, 0) => Ok(jobs.remove(0)),
        _ => {
            let known = jobs.iter().map(|job| job.settings.job.to_string());
            let unknown =
                damaged.iter().map(|error| format!("one of which nothing is known ({error})"));
            Err(JobError::Several { names: known.chain(unknown).collect() })
        }
    }
}

/// The registry is asked only for what can be the name of a job in it.
fn by_name(name: &OsStr, runtime: &Path) -> Result<Job, JobError> {
    let as_path = Path::new(name);
    let id = name.to_str().and_then(|text| text.parse::<JobId>().ok());
    let entry = match &id {
        Some(id) => Registry::open(runtime)?.known(id),
        None => None,
    };
    let path = match (entry, id) {
        (Some(entry), _) => entry,
        (None, Some(id)) if as_path.symlink_metadata().is_err() => {
            return Err(JobError::Unknown { name: id.to_string() });
        }
        _ => as_path.to_owned(),
    };
    job_at(&path)
}

/// The job in the directory to which `path` leads.
pub(crate) fn job_at(path: &Path) -> Result<Job, JobError> {
    let no_job = || JobError::NotAJob { path: path.to_owned(), from_environment: false };
    let dir = JobDir::find(path)?.ok_or_else(no_job)?;
    let settings = dir.settings()?;
    Ok(Job { dir, settings })
}

impl Job {
    /// The job, if it can be said of all its nodes whether they run here.
    pub(crate) fn known(self) -> Result<Self, JobError> {
        match self.unknowable(self.all_nodes()).pop() {
            Some((_, error)) => Err(error),
            None => Ok(self),
        }
    }

    /// Those of `nodes` of which it can not be said whether they run here, and why.
    pub(crate) fn unknowable(&self, nodes: impl IntoIterator<Item = u16>) -> Vec<(u16, JobError)> {
        let is_hidden = self.has_hidden_launcher();
        let why = |node| {
            let job = self.settings.job.to_string();
            let source = match self.dir.node(node).record() {
                Err(source) => source,
                // It may be starting.
                Ok(None) if is_hidden => {
                    KeptFileError::OtherProcesses { path: self.dir.settings_file() }
                }
                Ok(_) => return None,
            };
            Some((node, JobError::Unknowable { job, node, source }))
        };
        nodes.into_iter().filter_map(why).collect()
    }

    /// The same of the nodes that this host may be. A job has one node on a host, so none where that one is known.
    pub(crate) fn unknowable_here(&self) -> Vec<(u16, JobError)> {
        let is_known = self.settings.kind == Kind::Hosts && !self.nodes_here().is_empty();
        if is_known { Vec::new() } else { self.unknowable(self.all_nodes()) }
    }

    /// Their numbers.
    pub(crate) fn all_nodes(&self) -> Range<u16> {
        0..self.settings.nodes
    }

    /// The supervisor of a node, when it still runs; `None` also where that can not be said ([`Job::unknowable`]).
    pub(crate) fn supervisor(&self, node: u16) -> Option<(SupervisorRecord, Handle)> {
        let record = self.dir.node(node).record().ok()??;
        let same_boot = crate::process::is_this_boot(&record.boot_id);
        let handle = if same_boot { record.process.open() } else { None };
        Some((record, handle?))
    }

    /// The processes that make it a living job: supervisors, or the launcher before them.
    pub(crate) fn living(&self) -> Vec<Handle> {
        // A supervisor's record tells its own boot.
        let supervisors =
            (0..self.settings.nodes).filter_map(|node| Some(self.supervisor(node)?.1));
        let launcher = if self.is_of_this_boot() { self.settings.launcher.open() } else { None };
        launcher.into_iter().chain(supervisors).collect()
    }

    /// Whether any process of the job still runs; of a job on other hosts only those can tell.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_elsewhere() || !self.living().is_empty()
    }

    /// Its nodes are other hosts, and this directory is not just the copy of one of them: what runs
    /// here says nothing about the job, unless its launcher ran here and ended before it let them go.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let has_failed = || {
            let launcher = self.settings.launcher;
            let has_ended = || !self.has_hidden_launcher() && !launcher.is_alive();
            self.is_of_this_boot() && !self.dir.is_kept() && has_ended()
        };
        self.settings.kind == Kind::Hosts && !self.dir.is_private() && !has_failed()
    }

    /// Its launcher ran on this machine, and may run in another container.
    fn has_hidden_launcher(&self) -> bool {
        self.is_of_this_boot() && crate::process::are_hidden(&self.settings.pid_namespace)
    }

    /// Process numbers of its launcher mean something here.
    fn is_of_this_boot(&self) -> bool {
        crate::process::is_this_boot(&self.settings.boot_id)
    }

    /// Nodes that this host is, or was in this boot, whether their supervisors still run or not.
    pub(crate) fn nodes_here(&self) -> Vec<u16> {
        let boot = crate::process::boot_id().unwrap_or_default();
        let is_here = |node: &u16| {
            let record = self.dir.node(*node).record().ok().flatten();
            record.is_some_and(|record| record.boot_id == boot)
        };
        (0..self.settings.nodes).filter(is_here).collect()
    }

    /// The node that this process is on, where all nodes have the same paths: by its namespaces, or by its host.
    pub(crate) fn node_here(&self) -> Result<Option<u16>, JobError> {
        Ok(match self.settings.kind {
            Kind::Namespaces { .. } => self.dir.own_node().record()?.map(|own| own.node),
            Kind::Hosts => self.nodes_here().first().copied(),
            Kind::ThisMachine | Kind::Loopback { .. } => None,
        })
    }

    /// Nodes that are other hosts.
    pub(crate) fn nodes_elsewhere(&self) -> Vec<u16> {
        let (nodes, here) = (0..self.settings.nodes, self.nodes_here());
        match self.settings.kind {
            Kind::Hosts => nodes.filter(|node| !here.contains(node)).collect(),
            _ => Vec::new(),
        }
    }

    /// Checks a node number that somebody typed.
    pub(crate) fn check_node(&self, node: u16) -> Result<u16, JobError> {
        if node < self.settings.nodes {
            return Ok(node);
        }
        Err(JobError::NoSuchNode {
            job: self.settings.job.to_string(),
            node,
            nodes: self.settings.nodes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::settings::tests::sample;
    use crate::process::ProcessId;

    fn environment(runtime: &Path, job: Option<&str>) -> Environment {
        let job = job.map(OsString::from);
        Environment { job, runtime: runtime.to_owned(), ..Environment::read() }
    }

    fn make_job(runtime: &Path, name: &str, is_alive: bool) {
        let mut settings = sample(Kind::ThisMachine, 1);
        settings.job = name.parse().unwrap();
        if !is_alive {
            settings.launcher = ProcessId { start: 1, ..settings.launcher };
        }
        let dir = JobDir::new(runtime.join("jobs").join(name));
        std::fs::create_dir_all(runtime.join("jobs")).unwrap();
        dir.create(1).unwrap();
        dir.write_settings(&settings).unwrap();
    }

    #[test]
    fn the_named_job_wins_then_the_environment_then_the_only_one() {
        let top = tempfile::tempdir().unwrap();
        let runtime = top.path();
        let found = |named: Option<&str>, job| {
            let named = named.map(OsString::from);
            find(named.as_ref(), &environment(runtime, job)).map(|j| j.settings.job.to_string())
        };
        assert!(matches!(found(None, None), Err(JobError::NoneRunning)));
        make_job(runtime, "a", true);
        assert_eq!(found(None, None).unwrap(), "a");
        make_job(runtime, "b", true);
        assert!(matches!(found(None, None), Err(JobError::Several { .. })));
        assert_eq!(found(None, Some("b")).unwrap(), "b");
        assert_eq!(found(Some("a"), Some("b")).unwrap(), "a");
        let path = runtime.join("jobs/b");
        assert_eq!(found(path.to_str(), None).unwrap(), "b");
    }

    #[test]
    fn a_dead_job_is_not_the_only_one_meant() {
        let top = tempfile::tempdir().unwrap();
        make_job(top.path(), "dead", false);
        let found = || find(None, &environment(top.path(), None)).unwrap().settings.job.to_string();
        assert_eq!(found(), "dead");
        make_job(top.path(), "living", true);
        assert_eq!(found(), "living");
    }

    #[test]
    fn a_job_of_which_nothing_is_known_may_be_the_one_that_is_meant() {
        let top = tempfile::tempdir().unwrap();
        let names = || match find(None, &environment(top.path(), None)) {
            Err(JobError::Several { names }) => names.join(", "),
            Err(error) => error.to_string(),
            Ok(job) => panic!("{} was taken", job.settings.job),
        };
        make_job(top.path(), "damaged", true);
        for file in ["job.json", "job.json.copy"] {
            std::fs::write(top.path().join("jobs/damaged").join(file), "{").unwrap();
        }
        assert!(names().contains("jobs/damaged/job.json is damaged"), "{}", names());
        make_job(top.path(), "known", true);
        let told = names();
        assert!(told.starts_with("known, one of which nothing is known ("), "{told}");
        assert!(told.contains("jobs/damaged/job.json is damaged"), "{told}");
        assert!(find(Some(&"known".into()), &environment(top.path(), None)).is_ok());
    }

    /// The directories of jobs that have gone lay in /tmp, where their names are everybody's again.
    #[test]
    fn an_entry_that_leads_to_what_others_have_made_since_is_none_of_the_jobs() {
        use std::os::unix::fs::{chown, lchown, symlink};
        if !rustix::process::geteuid().is_root() || crate::job::is_mapped() {
            return println!("SKIP: only root can give a directory to another user");
        }
        let (top, public) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/tmp").unwrap());
        make_job(top.path(), "living", true);
        let entry = top.path().join("jobs/gone");
        let theirs = public.path().join("x");
        symlink(theirs.join("job"), &entry).unwrap();
        let expect_out = |made: &str| {
            let found = find(None, &environment(top.path(), None));
            assert_eq!(found.expect(made).settings.job.to_string(), "living");
            let registry = Registry::open(top.path()).unwrap();
            let told: Vec<_> = registry.damaged().iter().map(JobError::with_help).collect();
            let way_out = format!("remove {} to forget it", entry.display());
            assert!(told.len() == 1 && told[0].contains(&way_out), "{made}: {told:?}");
        };
        std::fs::create_dir_all(&theirs).unwrap();
        chown(&theirs, Some(4711), None).unwrap();
        expect_out("a directory");
        std::fs::remove_dir(&theirs).unwrap();
        symlink("/nowhere", &theirs).unwrap();
        lchown(&theirs, Some(4711), None).unwrap();
        expect_out("a link to nowhere");
        std::fs::remove_file(&theirs).unwrap();
        symlink(&theirs, &theirs).unwrap();
        expect_out("a link to itself");
        std::fs::remove_dir_all(top.path().join("jobs/living")).unwrap();
        let alone = find(None, &environment(top.path(), None)).unwrap_err();
        assert!(matches!(alone, JobError::Foreign { .. }), "there is no other: {alone}");
    }

    #[test]
    fn a_job_that_may_run_is_as_one_that_runs() {
        let top = tempfile::tempdir().unwrap();
        make_job(top.path(), "living", true);
        make_job(top.path(), "perhaps", false);
        let found = || find_any(None, &environment(top.path(), None));
        assert_eq!(found().unwrap().settings.job.to_string(), "living");
        std::fs::write(top.path().join("jobs/perhaps/node-0/supervisor.json"), "{").unwrap();
        match found() {
            Err(JobError::Several { names }) => assert_eq!(names, ["living", "perhaps"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_nodes_that_this_host_may_be_stand_in_its_way() {
        let top = tempfile::tempdir().unwrap();
        let mut settings = sample(Kind::Hosts, 3);
        settings.nodes = 3;
        let dir = JobDir::new(top.path().join("j"));
        dir.create(3).unwrap();
        let record = |node: u16, boot_id: String| SupervisorRecord {
            node,
            process: ProcessId { start: 1, ..ProcessId::current().unwrap() },
            boot_id,
            pid_namespace: String::new(),
            host: format!("h{node}"),
            address: String::new(),
            namespaces: Vec::new(),
        };
        let damage = |node: u16| {
            for file in ["supervisor.json", "supervisor.json.copy"] {
                std::fs::write(dir.node(node).path().join(file), "{").unwrap();
            }
        };
        dir.node(0).write_record(&record(0, "another".to_owned())).unwrap();
        damage(2);
        let job = Job { dir: dir.clone(), settings };
        let here =
            |job: &Job| job.unknowable_here().into_iter().map(|(node, _)| node).collect::<Vec<_>>();
        assert_eq!(here(&job), [2], "this host may be node 2");
        let boot = crate::process::boot_id().unwrap();
        dir.node(1).write_record(&record(1, boot)).unwrap();
        assert!(here(&job).is_empty(), "it is node 1");
        damage(1);
        assert_eq!(here(&job), [1, 2]);
        assert!(job.clone().known().is_err() && job.unknowable([0]).is_empty());
    }

    #[test]
    fn what_is_no_job_is_refused_by_name() {
        let top = tempfile::tempdir().unwrap();
        let found = |named: &str, job: Option<&str>| {
            let named = (!named.is_empty()).then(|| OsString::from(named));
            find(named.as_ref(), &environment(top.path(), job)).unwrap_err()
        };
        assert!(matches!(found("nope", None), JobError::Unknown { .. }));
        assert!(matches!(found("/no/such/path", None), JobError::NotAJob { .. }));
        assert!(matches!(
            found(top.path().to_str().unwrap(), None),
            JobError::NotAJob { from_environment: false, .. }
        ));
        assert!(matches!(
            found("", top.path().to_str()),
            JobError::NotAJob { from_environment: true, .. }
        ));
    }
}
