//! What starts the nodes of a new job: what was typed, else the batch system whose job this is, else nothing
//! but this machine.
//!
//! Sources: srun(1) (`SLURM_JOB_ID`, `SLURM_JOB_NODELIST`), qsub(1B) of OpenPBS (`PBS_NODEFILE`), the job
//! operation software of Fujitsu (`PJM_O_NODEINF`: a file with a line for each node of the job).

use std::io;
use std::path::{Path, PathBuf};

use super::hosts::{HostsError, parse_file, parse_list};
use super::options::{JobOptions, LauncherName};
use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::job::Way;
use crate::system::program;

/// Largest list of hosts that is read.
const LIST_BYTES_MAX: u64 = 4 << 20;

/// Where the nodes of a job are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// On this machine.
    Local,
    /// On other hosts.
    Hosts {
        /// Each once.
        hosts: Vec<String>,
        /// How they are reached.
        way: Way,
    },
}

/// Why the nodes can not be started as asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The list makes no sense.
    #[error("{from}")]
    Hosts {
        /// Where it came from.
        from: String,
        /// What is wrong.
        source: HostsError,
    },
    /// The file can not be read.
    #[error("read {from} {}", .path.display())]
    File {
        /// Who names it.
        from: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Asked for, but this is no job of it.
    #[error("--launcher {launcher}: {variable} is not set")]
    NotInside {
        /// Which.
        launcher: &'static str,
        /// What it would have set.
        variable: &'static str,
    },
    /// Slurm without srun.
    #[error("this is job {job} of Slurm, but srun is not in PATH")]
    NoSrun {
        /// Which.
        job: String,
    },
    /// `--ssh ""`.
    #[error("--ssh is empty: expected a command, for example `ssh -p 22`")]
    NoProgram,
}

impl LaunchError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        let text = match self {
            Self::NotInside { .. } => "name the hosts with --hosts or --host-file",
            Self::NoSrun { .. } => "add it to PATH, or use ssh: --hosts \"$SLURM_JOB_NODELIST\"",
            Self::Hosts { .. } => {
                "a list is `a,b,n[01-04]`; in a file each host has a line of its own"
            }
            Self::File { .. } | Self::NoProgram => return None,
        };
        Some(text.to_owned())
    }
}

impl Advise for LaunchError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(self.help()))
    }
}

/// Chooses, and says why in words for `doctor`.
pub(crate) fn choose(
    options: &JobOptions,
    environment: &Environment,
) -> Result<(Choice, String), LaunchError> {
    let batch = &environment.batch;
    if let Some(list) = &options.hosts {
        let hosts = parse_list(list).map_err(wrong("--hosts"))?;
        return over_ssh(hosts, options, "--hosts was given");
    }
    if let Some(path) = &options.host_file {
        return over_ssh(read_list("--host-file", path)?, options, "--host-file was given");
    }
    if options.nodes.is_some() {
        return Ok((Choice::Local, "--nodes was given".to_owned()));
    }
    let wanted = options.launcher;
    let not_inside = |launcher, variable| LaunchError::NotInside { launcher, variable };
    match (wanted, &batch.slurm, &batch.pbs, &batch.pjm) {
        (Some(LauncherName::Local), ..) => {
            Ok((Choice::Local, "--launcher local was given".to_owned()))
        }
        (None | Some(LauncherName::Slurm), Some((job, list)), ..) => {
            let hosts = parse_list(list).map_err(wrong("SLURM_JOB_NODELIST"))?;
            if options.ssh.is_some() {
                return over_ssh(hosts, options, &format!("job {job} of Slurm, with --ssh"));
            }
            if program::find("srun", &environment.path).is_none() {
                return Err(LaunchError::NoSrun { job: job.clone() });
            }
            let way = Way::Slurm { job: job.clone() };
            let why = format!("SLURM_JOB_ID: job {job} of Slurm has {} hosts", hosts.len());
            Ok((Choice::Hosts { hosts, way }, why))
        }
        (Some(LauncherName::Slurm), ..) => Err(not_inside("slurm", "SLURM_JOB_ID")),
        (None | Some(LauncherName::Pbs), _, Some(path), _) => {
            over_ssh(read_list("PBS_NODEFILE", path)?, options, "PBS_NODEFILE lists the hosts")
        }
        (Some(LauncherName::Pbs), ..) => Err(not_inside("pbs", "PBS_NODEFILE")),
        (None | Some(LauncherName::Pjm), _, _, Some(path)) => {
            over_ssh(read_list("PJM_O_NODEINF", path)?, options, "PJM_O_NODEINF lists the hosts")
        }
        (Some(LauncherName::Pjm), ..) => Err(not_inside("pjm", "PJM_O_NODEINF")),
        (None, ..) => {
            Ok((Choice::Local, "no list of hosts, and no job of a batch system".to_owned()))
        }
    }
}

fn over_ssh(
    hosts: Vec<String>,
    options: &JobOptions,
    why: &str,
) -> Result<(Choice, String), LaunchError> {
    let typed = options.ssh.as_deref().unwrap_or("ssh");
    let command: Vec<String> = typed.split_ascii_whitespace().map(str::to_owned).collect();
    if command.is_empty() {
        return Err(LaunchError::NoProgram);
    }
    let why = format!("{why}: {} hosts, by {}", hosts.len(), command[0]);
    Ok((Choice::Hosts { hosts, way: Way::Ssh { command } }, why))
}

fn wrong(from: &str) -> impl FnOnce(HostsError) -> LaunchError {
    let from = from.to_owned();
    move |source| LaunchError::Hosts { from, source }
}

fn read_list(from: &'static str, path: &Path) -> Result<Vec<String>, LaunchError> {
    use std::io::Read;
    let read = || {
        let mut text = String::new();
        std::fs::File::open(path)?.take(LIST_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text =
        read().map_err(|source| LaunchError::File { from, path: path.to_owned(), source })?;
    parse_file(&text).map_err(wrong(&format!("{from} {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Batch;

    fn environment(batch: Batch) -> Environment {
        Environment { batch, path: "/nowhere".into(), ..Environment::read() }
    }

    fn chosen(options: &JobOptions, batch: Batch) -> String {
        match choose(options, &environment(batch)) {
            Ok((Choice::Local, why)) => format!("local: {why}"),
            Ok((Choice::Hosts { hosts, way }, why)) => {
                format!("{} by {}: {why}", hosts.join(" "), way.program())
            }
            Err(error) => format!("error: {:#}", anyhow::Error::from(error)),
        }
    }

    #[test]
    fn what_was_typed_comes_first() {
        let batch = Batch { slurm: Some(("7".into(), "n[1-2]".into())), ..Batch::default() };
        let hosts = JobOptions { hosts: Some("a,b".into()), ..JobOptions::default() };
        assert_eq!(chosen(&hosts, batch.clone()), "a b by ssh: --hosts was given: 2 hosts, by ssh");
        let nodes = JobOptions { nodes: Some(3), ..JobOptions::default() };
        assert_eq!(chosen(&nodes, batch.clone()), "local: --nodes was given");
        let local = JobOptions { launcher: Some(LauncherName::Local), ..JobOptions::default() };
        assert_eq!(chosen(&local, batch.clone()), "local: --launcher local was given");
        let ssh = JobOptions { ssh: Some("ssh -p 22".into()), ..JobOptions::default() };
        assert_eq!(
            chosen(&ssh, batch),
            "n1 n2 by ssh: job 7 of Slurm, with --ssh: 2 hosts, by ssh"
        );
    }

    #[test]
    fn batch_systems_name_their_hosts() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("hosts");
        std::fs::write(&file, "c1\nc1\nc2\nc2\n").unwrap();
        let none = JobOptions::default();
        let pbs = Batch { pbs: Some(file.clone()), ..Batch::default() };
        assert_eq!(
            chosen(&none, pbs),
            "c1 c2 by ssh: PBS_NODEFILE lists the hosts: 2 hosts, by ssh"
        );
        std::fs::write(&file, "10.0.0.1\n10.0.0.2\n").unwrap();
        let pjm = Batch { pjm: Some(file), ..Batch::default() };
        assert_eq!(
            chosen(&JobOptions { ssh: Some("pjrsh".into()), ..JobOptions::default() }, pjm),
            "10.0.0.1 10.0.0.2 by pjrsh: PJM_O_NODEINF lists the hosts: 2 hosts, by pjrsh"
        );
        let slurm = Batch { slurm: Some(("7".into(), "n[1-2]".into())), ..Batch::default() };
        assert!(chosen(&none, slurm).contains("srun is not in PATH"));
        assert!(chosen(&none, Batch::default()).starts_with("local: no list of hosts"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let of = |launcher| JobOptions { launcher: Some(launcher), ..JobOptions::default() };
        let check = |options: &JobOptions, batch: Batch, words: &str| {
            let found = chosen(options, batch);
            assert!(found.starts_with("error: ") && found.contains(words), "{found}");
        };
        check(&of(LauncherName::Slurm), Batch::default(), "SLURM_JOB_ID is not set");
        check(&of(LauncherName::Pbs), Batch::default(), "PBS_NODEFILE is not set");
        check(&of(LauncherName::Pjm), Batch::default(), "PJM_O_NODEINF is not set");
        let missing = Batch { pbs: Some("/no/such/file".into()), ..Batch::default() };
        check(&JobOptions::default(), missing, "read PBS_NODEFILE /no/such/file");
        let broken = JobOptions { hosts: Some("n[1".into()), ..JobOptions::default() };
        check(&broken, Batch::default(), "--hosts: invalid list of hosts `n[1`");
        let empty =
            JobOptions { hosts: Some("a".into()), ssh: Some(" ".into()), ..JobOptions::default() };
        check(
            &empty,
            Batch::default(),
            "--ssh is empty: expected a command, for example `ssh -p 22`",
        );
    }
}
