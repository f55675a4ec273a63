//! Which job a command means: `--job`, else `HAYASE_JOB`, else this user's only job.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::{Job, JobDir, JobError, JobId, Registry};
use crate::config::Environment;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Kind;
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
