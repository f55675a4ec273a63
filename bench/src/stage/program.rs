//! A copy as a process: how long it takes, its CPU, and the most memory that it had.
//!
//! CPU time comes from `/proc/PID/stat` of the process after its end and before it is waited for (10 ms
//! steps, threads that ended included); memory from `VmHWM`, looked at while it runs.

use std::fs;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::sample::{Measured, Sample};

/// Between two looks at its memory.
const LOOK_STEP: Duration = Duration::from_millis(2);

/// Clock ticks of `/proc/PID/stat` in a second, on every Linux that this runs on.
const TICKS: f64 = 100.0;

/// What a process took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) seconds: f64,
    pub(super) cpu: f64,
    /// Bytes.
    pub(super) memory: u64,
}

impl Ran {
    /// As a sample of `amount` of something.
    pub(super) fn sample(self, (what, variant, round): (&str, &str, usize), amount: f64) -> Sample {
        Sample {
            what: what.to_owned(),
            variant: variant.to_owned(),
            round,
            measured: Measured { amount, seconds: self.seconds, own_cpu: self.cpu },
            meanwhile_cpu: 0.0,
            served_cpu: 0.0,
            memory: Some(self.memory),
            ..Sample::default()
        }
    }
}

/// There is such a program on the PATH.
pub(super) fn is_installed(program: &str) -> bool {
    answers(program, "version")
}

/// There is such a program on the PATH, and it knows this word.
pub(super) fn answers(program: &str, word: &str) -> bool {
    let run = Command::new(program).arg(word).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Runs it to its end, which must be a success within `patience`; `begun` is told its number.
pub(super) fn run(
    mut command: Command,
    patience: Duration,
    begun: impl FnOnce(u32) -> anyhow::Result<()>,
) -> anyhow::Result<Ran> {
    let mut said = fs::File::from(rustix::fs::memfd_create("said", MemfdFlags::CLOEXEC)?);
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
    let name = command.get_program().to_string_lossy().into_owned();
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {name}"))?;
    begun(child.id())?;
    let id = Pid::from_child(&child);
    let (mut memory, mut next_look) = (0, begin);
    let seconds = loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(id), options)?.is_some() {
            break begin.elapsed().as_secs_f64();
        }
        if begin.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            bail!("{name} did not end within {} s", patience.as_secs());
        }
        if Instant::now() >= next_look {
            memory = memory.max(largest_memory(child.id()).unwrap_or(0));
            next_look = Instant::now() + 10 * LOOK_STEP;
        }
        std::thread::sleep(LOOK_STEP);
    };
    let cpu = cpu_seconds(child.id()).context("read the CPU time of a process that ended")?;
    let status = child.wait()?;
    let mut text = String::new();
    said.rewind()?;
    let _ = said.read_to_string(&mut text);
    ensure!(status.success(), "{name}: {status}: {}", text.trim());
    Ok(Ran { seconds, cpu, memory })
}

fn largest_memory(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Fields 14 to 17: its own time and that of children it waited for.
fn cpu_seconds(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok());
    Some(ticks.sum::<Option<u64>>()? as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_memory_and_status_of_a_process_are_known() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let patience = Duration::from_secs(20);
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.05";
        let ran = run(shell(busy), patience, |_| Ok(())).unwrap();
        assert!(ran.cpu > 0.01 && ran.seconds >= 0.05 && ran.memory > 0, "{ran:?}");
        let failed = run(shell("echo no >&2; exit 3"), patience, |_| Ok(())).unwrap_err();
        assert!(failed.to_string().contains("no"), "{failed}");
        assert!(run(shell("sleep 9"), Duration::from_millis(50), |_| Ok(())).is_err());
    }
}
