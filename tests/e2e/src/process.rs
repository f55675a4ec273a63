//! Child processes that can not hang a test.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::patience::patient;

/// What a finished child left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit code; none after a signal.
    pub code: Option<i32>,
    /// All of it.
    pub stdout: String,
    /// All of it.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl Finished {
    /// Exit code 0, or an error with what was printed.
    ///
    /// # Errors
    /// When the code is another.
    pub fn success(self) -> Result<Self> {
        if self.code == Some(0) {
            return Ok(self);
        }
        bail!("ended with {:?}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr)
    }
}

/// Runs `command` to its end, or kills it when `bound` is over.
///
/// # Errors
/// When it can not be started or did not end in time.
pub fn run(command: &mut Command, bound: Duration) -> Result<Finished> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let ended = wait(&mut child, bound)?;
    if ended.is_none() {
        child.kill().context("kill a child that hangs")?;
        child.wait().context("reap a child that hung")?;
    }
    // A grandchild may hold the pipes open: what it says later is not waited for.
    let patience = Duration::from_secs(2);
    let (stdout, stderr) = (stdout.recv_timeout(patience), stderr.recv_timeout(patience));
    let (stdout, stderr) = (stdout.unwrap_or_default(), stderr.unwrap_or_default());
    match ended {
        Some(code) => Ok(Finished { code, stdout, stderr, took: start.elapsed() }),
        None => bail!("{command:?} did not end in {bound:?}\nstdout: {stdout}\nstderr: {stderr}"),
    }
}

/// Waits for a child that somebody else reads; `None` when `bound` is over, which is longer on a [busy machine](patient).
///
/// # Errors
/// When the child can not be waited for.
pub fn wait(child: &mut Child, bound: Duration) -> Result<Option<Option<i32>>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("wait for a child")? {
            return Ok(Some(status.code()));
        }
        if start.elapsed() > bound && start.elapsed() > patient(bound) {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn drain<R: Read + Send + 'static>(pipe: Option<R>) -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error is still worth telling.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}
