//! Child processes: another user, a shell.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command as Process, Stdio};

use super::Outcome;
use crate::actor::command::{Answer, Command, Output, Reply, Request};
use crate::actor::errno;

/// Bytes of a child's output that are kept.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Runs `command` in another process of this program that belongs to another user.
pub(super) fn as_user(uid: u32, gid: u32, command: Command) -> Outcome {
    let line =
        serde_json::to_vec(&Request { id: 0, command }).map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| errno::name_of(&error))?;
    let mut child = Process::new(program)
        .arg("--once")
        .uid(uid)
        .gid(gid)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("start the child: {error}"))?;
    let mut stdin = child.stdin.take().expect("the child's stdin is a pipe");
    stdin.write_all(&line).map_err(|error| format!("tell the child: {error}"))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| format!("hear the child: {error}"))?;
    let reply: Reply = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the child ended with {}: {error}", output.status))?;
    reply.result
}

/// truncate(2) by path. No safe binding has it (an open and ftruncate(2) is another request to a
/// file system), so perl makes the call and ends with the errno.
pub(super) fn truncate(path: &str, size: u64) -> Outcome {
    const PROGRAM: &str = "truncate($ARGV[0], $ARGV[1]) or exit($!+0)";
    let status = Process::new("perl")
        .args(["-e", PROGRAM, path, &size.to_string()])
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("start perl: {error}"))?;
    match status.code() {
        Some(0) => Ok(Answer::Done),
        Some(code) => Err(errno::name(rustix::io::Errno::from_raw_os_error(code))),
        None => Err(format!("perl ended with {status}")),
    }
}

/// Runs `sh -c script`.
pub(super) fn shell(script: &str) -> Outcome {
    let output = Process::new("sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| errno::name_of(&error))?;
    Ok(Answer::Output(Output {
        code: output.status.code(),
        stdout: tail(&output.stdout),
        stderr: tail(&output.stderr),
    }))
}

fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}
