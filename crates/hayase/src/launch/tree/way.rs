//! The programs that start a relay on other hosts: ssh (or what takes its place), srun, or none for this host.
//!
//! Nothing secret stands in a command line or in an environment: what a relay must know comes by its
//! standard input. Sources: ssh(1), ssh_config(5), srun(1).

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::host::is_this_host;
use crate::job::{Reach, Way};
use crate::process::child::this_program;

/// Hosts that one host starts directly, when nobody says otherwise: 4,000 hosts are three hops away.
pub(crate) const FANOUT_DEFAULT: u16 = 16;

/// The hidden verb that a relay runs.
const RELAY: &str = "relay";

impl Way {
    /// All hosts are started by one program, which has a tree of its own.
    pub(crate) fn is_flat(&self) -> bool {
        matches!(self, Self::Slurm { .. })
    }

    /// For people: the program's name.
    pub(crate) fn program(&self) -> &str {
        match self {
            Self::Ssh { command } => command.first().map_or("ssh", String::as_str),
            Self::Slurm { .. } => "srun",
        }
    }
}

/// Starts a relay on `host`, or on all `hosts` at once where the way is flat.
pub(crate) fn relay_command(
    way: &Way,
    hosts: &[&str],
    binary: &Path,
    patience: Duration,
) -> Command {
    let mut command = match way {
        Way::Ssh { .. } if is_this_host(hosts[0]) => this_program(RELAY),
        Way::Ssh { command } => {
            let mut command = ssh(command, hosts[0], patience);
            command.arg(shell_line(&[binary.as_os_str(), OsStr::new(RELAY)], None));
            command
        }
        Way::Slurm { job } => {
            let mut command = srun(job, hosts);
            command.arg("--input=all").arg("--").arg(binary).arg(RELAY);
            command
        }
    };
    // Signals of the terminal are for whoever typed; the relays end with their standard input.
    command.process_group(0);
    command
}

/// Runs a command on the host of a node, with standard streams and status of its own.
pub(crate) fn exec_command(
    reach: &Reach,
    node: u16,
    words: &[OsString],
    directory: Option<&Path>,
) -> Command {
    let host = reach.hosts[usize::from(node)].as_str();
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    match &reach.way {
        Way::Ssh { command } => {
            let mut command = ssh(command, host, CONNECT_PATIENCE);
            command.arg(shell_line(&words, directory));
            command
        }
        Way::Slurm { job } => {
            let mut command = srun(job, &[host]);
            command.arg("--").arg("/bin/sh").arg("-c").arg(shell_line(&words, directory));
            command
        }
    }
}

/// For commands that have no deadline of their own.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

fn ssh(words: &[String], host: &str, patience: Duration) -> Command {
    let (program, options) = words.split_first().expect("a way has a program");
    let mut command = Command::new(program);
    // What the user wrote comes first: ssh takes the first value of each option.
    command.args(options);
    // Only ssh knows these; whatever else stands here takes a host and a command, as rsh does.
    if Path::new(program).file_name() == Some(OsStr::new("ssh")) {
        command.args(["-T", "-x", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]);
        command.args(["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"]);
        command.arg("-o").arg(format!("ConnectTimeout={}", patience.as_secs().max(1)));
    }
    command.arg(host);
    command
}

/// A step beside whatever else runs in the allocation; one task on each host, none ended because another did.
fn srun(job: &str, hosts: &[&str]) -> Command {
    let mut command = Command::new("srun");
    command.arg(format!("--jobid={job}"));
    command.arg(format!("--nodelist={}", hosts.join(",")));
    command.arg(format!("--nodes={0}", hosts.len())).arg(format!("--ntasks={}", hosts.len()));
    command.args(["--ntasks-per-node=1", "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none"]);
    command.args(["--wait=0", "--kill-on-bad-exit=0", "--no-kill", "--quiet", "--chdir=/"]);
    // What the job's script asked for its own steps is not meant for ours.
    for variable in [
        "SLURM_NTASKS_PER_NODE",
        "SLURM_NTASKS_PER_CORE",
        "SLURM_CPUS_PER_TASK",
        "SLURM_DISTRIBUTION",
        "SLURM_MEM_PER_CPU",
        "SLURM_MEM_PER_GPU",
        "SLURM_MEM_PER_NODE",
        "SLURM_EXCLUSIVE",
        "SLURM_EXACT",
        "SLURM_LABELIO",
        "SLURM_STDINMODE",
        "SLURM_STDOUTMODE",
        "SLURM_STDERRMODE",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Words for a shell on another host, which replaces itself by the program. Where `directory` exists
/// there, the program starts in it.
fn shell_line(words: &[&OsStr], directory: Option<&Path>) -> OsString {
    let mut line = OsString::new();
    if let Some(directory) = directory {
        line.push("cd ");
        line.push(quote(directory.as_os_str()));
        line.push(" 2>/dev/null; ");
    }
    line.push("exec");
    for word in words {
        line.push(" ");
        line.push(quote(word));
    }
    line
}

/// One word, whatever is in it.
pub(crate) fn quote(word: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ssh_is_asked_for_a_relay_and_nothing_else() {
        let way = Way::Ssh { command: vec!["ssh".into(), "-p".into(), "2222".into()] };
        let command =
            relay_command(&way, &["far"], Path::new("/opt/it's/hayase"), Duration::from_secs(7));
        let found = words(&command);
        assert!(found.starts_with("ssh -p 2222 -T -x -o BatchMode=yes"), "{found}");
        assert!(
            found.ends_with("ConnectTimeout=7 far exec '/opt/it'\\''s/hayase' 'relay'"),
            "{found}"
        );
        let way = Way::Ssh { command: vec!["pjrsh".into()] };
        let found = words(&relay_command(&way, &["far"], Path::new("/h"), CONNECT_PATIENCE));
        assert_eq!(found, "pjrsh far exec '/h' 'relay'");
    }

    #[test]
    fn srun_starts_one_task_on_each_host() {
        let way = Way::Slurm { job: "77".into() };
        let command = relay_command(&way, &["a", "b"], Path::new("/h"), CONNECT_PATIENCE);
        let found = words(&command);
        for part in ["--jobid=77", "--nodelist=a,b", "--nodes=2 --ntasks=2", "-- /h relay"] {
            assert!(found.contains(part), "{part}: {found}");
        }
    }

    #[test]
    fn words_reach_the_other_shell_whole() {
        let tricky = ["a b", "it's", "$HOME", "", "*", "\n", "\\"];
        let tricky: Vec<OsString> = tricky.iter().map(OsString::from).collect();
        let words: Vec<&OsStr> = ["printf", "%s|"].iter().map(OsStr::new).collect();
        let words: Vec<&OsStr> =
            words.into_iter().chain(tricky.iter().map(OsString::as_os_str)).collect();
        let line = shell_line(&words, Some(Path::new("/no/such/place")));
        let output = Command::new("/bin/sh").arg("-c").arg(line).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a b|it's|$HOME||*|\n|\\|");
    }
}
