//! Running a program to its end, within a time, with what it said.

use std::io::{Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::fs::MemfdFlags;

/// Between two looks whether it has ended; small against what is timed this way.
const LOOK_STEP: Duration = Duration::from_millis(1);

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its status.
    pub(crate) status: ExitStatus,
    /// What it wrote to standard output.
    pub(crate) output: String,
    /// What it wrote to standard error.
    pub(crate) complaints: String,
    /// From the start to the end.
    pub(crate) took: Duration,
}

impl Ended {
    /// Its output, if it succeeded.
    pub(crate) fn success(self, what: &str) -> anyhow::Result<String> {
        ensure!(self.status.success(), "{what}: {}: {}", self.status, self.complaints.trim());
        Ok(self.output)
    }
}

/// Runs it; kills it when `patience` is not enough.
///
/// Output goes through files in memory: daemons that it leaves running may keep them open.
pub(crate) fn run(command: &mut Command, patience: Duration) -> anyhow::Result<Ended> {
    let file = || rustix::fs::memfd_create("output", MemfdFlags::CLOEXEC).map(std::fs::File::from);
    let (mut output, mut complaints) = (file()?, file()?);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(complaints.try_clone()?);
    let name = command.get_program().to_string_lossy().into_owned();
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {name}"))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begin.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            bail!("{name} did not end within {} s", patience.as_secs());
        }
        std::thread::sleep(LOOK_STEP);
    };
    let took = begin.elapsed();
    let read = |file: &mut std::fs::File| -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Ended { status, output: read(&mut output)?, complaints: read(&mut complaints)?, took })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_end_or_are_ended() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo out; echo err >&2; exit 3"]);
        let ended = run(&mut shell, Duration::from_secs(10)).unwrap();
        assert_eq!((ended.output.as_str(), ended.complaints.as_str()), ("out\n", "err\n"));
        let error = ended.success("the shell").unwrap_err().to_string();
        assert!(error.contains("the shell") && error.contains("err"), "{error}");
        let mut sleep = Command::new("sleep");
        let error = run(sleep.arg("60"), Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("did not end"), "{error}");
    }
}
