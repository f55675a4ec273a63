//! Programs of the job on this node: those that `exec` and `run` started, and their children.
//!
//! They are known by the mark in their environment, which only those two commands set. Nothing else
//! is ever ended: not a shell that has its working directory in an area, and not who asks.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::job::MARK_VARIABLE;
use crate::job::Settings;
use crate::process::{Handle, ProcessId, all, ancestry, wait_ended};
use crate::system::namespaces::mount_namespace;

/// How long a program may take to end after SIGTERM.
const TERM_PATIENCE: Duration = Duration::from_millis(500);

/// And after SIGKILL, which only a hanging system call can survive.
const KILL_PATIENCE: Duration = Duration::from_millis(1000);

/// Environments are read up to here; the mark is set last, but order is not promised.
const ENVIRONMENT_BYTES_MAX: u64 = 4 << 20;

/// Ends them all, except `asker` and its parents; notes say what was necessary.
pub(crate) fn end(settings: &Settings, node: u16, asker: Option<i32>) -> Vec<String> {
    let found = found(settings, node, asker);
    if found.is_empty() {
        return Vec::new();
    }
    let names: Vec<_> = found.iter().map(|handle| name(handle.id)).collect();
    for handle in &found {
        handle.signal(Signal::TERM);
    }
    let mut notes = vec![format!("ended programs of the job: {}", names.join(", "))];
    if !wait_ended(&found, TERM_PATIENCE) {
        let stubborn: Vec<_> = found.iter().filter(|handle| !handle.has_ended()).collect();
        for handle in &stubborn {
            handle.signal(Signal::KILL);
        }
        let names: Vec<_> = stubborn.iter().map(|handle| name(handle.id)).collect();
        notes.push(format!("killed, since SIGTERM was not enough: {}", names.join(", ")));
        wait_ended(&found, KILL_PATIENCE);
    }
    notes
}

/// Those that run, except `asker` and its parents.
pub(super) fn found(settings: &Settings, node: u16, asker: Option<i32>) -> Vec<Handle> {
    let mut spared = ancestry(std::process::id() as i32);
    spared.extend(asker.map(ancestry).unwrap_or_default());
    all()
        .filter(|process| !spared.contains(&process.pid))
        // Programs of root may run as other users. Only this user and root know the mark.
        .filter_map(ProcessId::open_any)
        .filter(|handle| belongs(handle.id, settings, node))
        .collect()
}

/// Whether its environment carries the job's mark, and it is on this node: in the node's mount
/// namespace, or with the node's number, where nodes have none (launchers of MPI copy environments,
/// so that the number alone may be another node's).
fn belongs(process: ProcessId, settings: &Settings, node: u16) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(process.proc().join("environ"))
        .and_then(|file| file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes));
    let mark = format!("{MARK_VARIABLE}={}", settings.mark);
    let number = format!("HAYASE_NODE={node}");
    let has = |wanted: &str| bytes.split(|&b| b == 0).any(|entry| entry == wanted.as_bytes());
    let is_here = || {
        settings.has_namespaces()
            && mount_namespace(&process.proc()) == mount_namespace(Path::new("/proc/self"))
    };
    read.is_ok() && has(&mark) && (has(&number) || is_here())
}

fn name(process: ProcessId) -> String {
    let command = std::fs::read_to_string(process.proc().join("comm")).unwrap_or_default();
    format!("{} ({})", process.pid, command.trim())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::job::{Kind, sample_settings};

    fn sleeper(mark: &str, node: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").env(MARK_VARIABLE, mark).env("HAYASE_NODE", node).spawn().unwrap()
    }

    #[test]
    fn only_programs_with_the_mark_of_this_job_and_node_are_ended() {
        let mut settings = sample_settings(Kind::ThisMachine, 1);
        settings.mark = format!("test-{}", std::process::id());
        let mut ours = sleeper(&settings.mark, "0");
        let mut others = [sleeper("another", "0"), sleeper(&settings.mark, "1")];
        let notes = end(&settings, 0, None);
        assert!(notes[0].contains(&ours.id().to_string()), "{notes:?}");
        assert!(ours.try_wait().unwrap().is_some());
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none());
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    #[test]
    fn who_asks_is_spared() {
        let mut settings = sample_settings(Kind::ThisMachine, 1);
        settings.mark = format!("asker-{}", std::process::id());
        let mut asker = sleeper(&settings.mark, "0");
        assert!(end(&settings, 0, Some(asker.id() as i32)).is_empty());
        asker.kill().unwrap();
        asker.wait().unwrap();
    }
}
