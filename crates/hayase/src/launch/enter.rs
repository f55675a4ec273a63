//! Running a program on a node: its namespaces, its environment, and then the program itself.
//!
//! The program takes the place of this process, so that standard streams, signals, terminal and exit
//! status are its own, and descriptors that mpiexec hands down stay open.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::preload;
use super::tree::way::exec_command;
use crate::advice::{Advice, Advise};
use crate::config::{Environment, HYDRA_ARGUMENTS};
use crate::job::{Job, Kind, MARK_VARIABLE, Reach};
use crate::system::namespaces;

/// Why no program could be run on a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnterError {
    /// No supervisor, or one that only has the same number.
    #[error("node {node} of job {job} is not up")]
    NodeDown {
        /// Which job.
        job: String,
        /// Which node.
        node: u16,
    },
    /// The kernel refused.
    #[error("enter node {node}")]
    Enter {
        /// Which.
        node: u16,
        /// Why.
        source: io::Error,
    },
    /// `--launcher` was given a host that is no node.
    #[error("`{host}` is not a node of job {job}")]
    NoSuchHost {
        /// Which job.
        job: String,
        /// What was asked for.
        host: String,
    },
    /// `--launcher` without host and command.
    #[error("--launcher needs a host and a command, as an MPI launcher passes them to ssh")]
    NoHost,
    /// The program could not be started.
    #[error("run {}", .program.display())]
    Program {
        /// As it was typed.
        program: OsString,
        /// Why.
        source: io::Error,
    },
}

impl EnterError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::NodeDown { job, .. } => Some(format!("see `hayase status --job {job}`")),
            Self::NoSuchHost { .. } => {
                Some("the file `hostfile` in the job directory lists the hosts".to_owned())
            }
            Self::Enter { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("simulated nodes with namespaces can only be entered by root".to_owned())
            }
            Self::Enter { .. } | Self::NoHost | Self::Program { .. } => None,
        }
    }

    /// The person named something that is not there.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Self::NoSuchHost { .. } | Self::NoHost)
    }

    /// As shells do it: 127 when there is no such program, 126 when it can not be run.
    pub(crate) fn program_status(&self) -> Option<u8> {
        match self {
            Self::Program { source, .. } if source.kind() == io::ErrorKind::NotFound => Some(127),
            Self::Program { .. } => Some(126),
            _ => None,
        }
    }
}

impl Advise for EnterError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice { help: self.help(), is_usage: self.is_usage() })
    }
}

/// Becomes `program` on `node`; returns only when that fails.
pub(crate) fn exec(
    job: &Job,
    node: u16,
    program: &OsStr,
    arguments: &[OsString],
    environment: &Environment,
) -> EnterError {
    let here = std::env::current_dir().ok();
    if let Some(reach) = &job.settings.reach
        && job.supervisor(node).is_none()
    {
        return elsewhere(job, reach, node, program, arguments, here.as_deref());
    }
    let down = || EnterError::NodeDown { job: job.settings.job.to_string(), node };
    let Some((_, supervisor)) = job.supervisor(node) else {
        return down();
    };
    if job.settings.has_namespaces() {
        if let Err(source) = namespaces::enter(&supervisor) {
            return if supervisor.has_ended() {
                down()
            } else {
                EnterError::Enter { node, source }
            };
        }
        // The same path may be another directory here, and a better one; or none, then it is `/`.
        if let Some(here) = here {
            let _ = std::env::set_current_dir(here);
        }
    }
    let mut command = Command::new(program);
    command.args(arguments).envs(variables(job, node, environment));
    let source = command.exec();
    EnterError::Program { program: program.to_owned(), source }
}

/// Becomes the program that runs `hayase exec` on the node's host.
fn elsewhere(
    job: &Job,
    reach: &Reach,
    node: u16,
    program: &OsStr,
    arguments: &[OsString],
    here: Option<&Path>,
) -> EnterError {
    let number = OsString::from(node.to_string());
    let dir = job.dir.path().as_os_str();
    let mut words: Vec<OsString> = vec![reach.binary.clone().into(), "exec".into()];
    words.extend(["--job".into(), dir.to_owned(), "--node".into(), number, "--here".into()]);
    words.extend(["--".into(), program.to_owned()]);
    words.extend(arguments.iter().cloned());
    let mut command = exec_command(reach, node, &words, here);
    let source = command.exec();
    EnterError::Program { program: command.get_program().to_owned(), source }
}

/// What programs of the job find in their environment.
fn variables(job: &Job, node: u16, environment: &Environment) -> Vec<(&'static str, OsString)> {
    let settings = &job.settings;
    let mut variables = vec![
        ("HAYASE_JOB", job.dir.path().into()),
        ("HAYASE_NODE", node.to_string().into()),
        ("HAYASE_SHARED", settings.shared_mount(node).into()),
        ("HAYASE_LOCAL", settings.local_mount(node).into()),
        (MARK_VARIABLE, OsString::from(&settings.mark)),
    ];
    if let Some(cache) = settings.cache_mount(node) {
        variables.push(("HAYASE_CACHE", cache.into()));
    }
    if let Some(preload) = preload::value(environment) {
        variables.push((preload::PRELOAD_VARIABLE, preload));
    }
    // MPICH's mpiexec then reaches all nodes of the job without a word on its command line.
    if matches!(settings.kind, Kind::Namespaces { .. })
        && !environment.has_hydra
        && let Ok(this) = std::env::current_exe()
    {
        variables.extend([
            ("HYDRA_LAUNCHER", "rsh".into()),
            ("HYDRA_LAUNCHER_EXEC", this.into()),
            ("HYDRA_LAUNCHER_EXTRA_ARGS", HYDRA_ARGUMENTS.into()),
            ("HYDRA_HOST_FILE", job.dir.hostfile().into()),
        ]);
    }
    variables
}

/// What a launcher of MPI would have given to ssh or rsh: options, a host, and words of a command
/// that a shell on that host joins and reads.
pub(crate) fn launcher_command(
    words: &[OsString],
    job: &Job,
) -> Result<(u16, OsString), EnterError> {
    let is_option = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
    let options = words.iter().take_while(is_option).count();
    let (host, command) = words[options..].split_first().ok_or(EnterError::NoHost)?;
    if command.is_empty() {
        return Err(EnterError::NoHost);
    }
    let host = host.to_string_lossy();
    let node = job.settings.node_of_host(&host).ok_or_else(|| EnterError::NoSuchHost {
        job: job.settings.job.to_string(),
        host: host.into_owned(),
    })?;
    Ok((node, command.join(OsStr::new(" "))))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::job::{JobDir, sample_settings};

    fn job() -> Job {
        let kind = Kind::Namespaces { subnet: Ipv4Addr::new(10, 70, 0, 0) };
        Job { dir: JobDir::new("/jobs/t1"), settings: sample_settings(kind, 2) }
    }

    #[test]
    fn a_launcher_of_mpi_is_understood() {
        let check = |words: &str, expected: Option<(u16, &str)>| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let found = launcher_command(&words, &job()).ok();
            assert_eq!(found, expected.map(|(node, text)| (node, text.into())), "{words:?}");
        };
        check("t1-n1 \"/usr/bin/proxy\" --id 1", Some((1, "\"/usr/bin/proxy\" --id 1")));
        check("-x -q n0 true", Some((0, "true")));
        check("n2 true", None);
        check("n1", None);
        check("-x", None);
    }

    #[test]
    fn programs_learn_where_they_are() {
        let mut environment = Environment::read();
        environment.has_hydra = false;
        let found = variables(&job(), 1, &environment);
        let value = |name| found.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        assert_eq!(value("HAYASE_JOB"), Some("/jobs/t1".into()));
        assert_eq!(value("HAYASE_NODE"), Some("1".into()));
        assert_eq!(value("HAYASE_SHARED"), Some("/m/shared".into()));
        assert_eq!(value("HAYASE_LOCAL"), Some("/m/local".into()));
        assert_eq!(value("HYDRA_HOST_FILE"), Some("/jobs/t1/hostfile".into()));
        let library = tempfile::NamedTempFile::new().unwrap();
        environment.mpiio_library = Some(library.path().to_owned());
        environment.preload = Some("/other.so".into());
        let found = variables(&job(), 1, &environment);
        let preload = found.iter().find(|(name, _)| *name == "HAYASE_MPIIO_PRELOAD");
        let expected = format!("{}:/other.so", library.path().display());
        assert_eq!(preload.map(|(_, value)| value.clone()), Some(expected.into()));
        environment.has_hydra = true;
        assert!(variables(&job(), 1, &environment).iter().all(|(n, _)| !n.starts_with("HYDRA")));
    }
}
