//! Keys that a program of the user prints: `credential_process` of a profile.
//!
//! Source: AWS SDKs and tools reference guide, "Process credential provider".

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::{Credentials, json};
use crate::s3::limits::{CREDENTIAL_PROCESS_BYTES_MAX, CREDENTIAL_PROCESS_PATIENCE};

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// For what is still in the pipe, where another program keeps that open.
const AFTER_ITS_END: Duration = Duration::from_millis(100);

/// Runs `command` by a shell, as the user typed it, with these variables, and reads what it prints.
pub(super) fn run(command: &str, variables: &[(String, String)]) -> Result<Credentials, String> {
    run_within(command, variables, CREDENTIAL_PROCESS_PATIENCE)
}

fn run_within(
    command: &str,
    variables: &[(String, String)],
    patience: Duration,
) -> Result<Credentials, String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("start it: {error}"))?;
    let found = output_of(&mut child, Instant::now() + patience);
    if found.is_err() {
        end(&mut child);
    }
    let (status, text) = found?;
    match status.success() {
        true => parse(&text),
        false => Err(format!("it ended with {status}")),
    }
}

/// What it has printed when it ends, and how it ends.
fn output_of(child: &mut Child, until: Instant) -> Result<(ExitStatus, String), String> {
    let mut output = child.stdout.take().ok_or("its output is lost")?;
    let (sender, pieces) = mpsc::channel();
    // In a thread, since something that it started may keep its output open for ever.
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut buffer)
            && sender.send(buffer[..count].to_vec()).is_ok()
        {}
    });
    let mut text = Vec::new();
    let status = loop {
        let ended = child.try_wait().map_err(|error| format!("wait for it: {error}"))?;
        // What it printed before its end is in the pipe.
        let pause = if ended.is_some() { AFTER_ITS_END } else { BETWEEN_LOOKS };
        while let Ok(piece) = pieces.recv_timeout(pause) {
            text.extend_from_slice(&piece);
            if text.len() > CREDENTIAL_PROCESS_BYTES_MAX {
                return Err(format!("it printed more than {CREDENTIAL_PROCESS_BYTES_MAX} bytes"));
            }
        }
        match ended {
            Some(status) => break status,
            None if Instant::now() < until => std::thread::sleep(BETWEEN_LOOKS),
            None => return Err("it had not ended in time".to_owned()),
        }
    };
    Ok((status, String::from_utf8(text).map_err(|_| "it printed no text")?))
}

/// With all that it started in its process group.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

pub(super) fn parse(text: &str) -> Result<Credentials, String> {
    let answer: Value =
        serde_json::from_str(text).map_err(|error| format!("it printed no JSON: {error}"))?;
    match answer.get("Version").and_then(Value::as_i64) {
        Some(1) => json::keys(&answer, "SessionToken"),
        Some(other) => Err(format!("it printed version {other}, and 1 is understood")),
        None => Err("it printed no `Version`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printing(text: &str) -> Result<Credentials, String> {
        run(&format!("printf '%s' '{text}'"), &[])
    }

    #[test]
    fn a_program_prints_keys() {
        let keys = printing(
            r#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "SessionToken": "t",
                "Expiration": "2099-01-01T00:00:00Z"}"#,
        )
        .unwrap();
        assert_eq!((keys.access_key.as_str(), keys.session_token.as_deref()), ("A", Some("t")));
        assert!(keys.expires.is_some());
        let keys =
            printing(r#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s"}"#).unwrap();
        assert!(keys.expires.is_none() && keys.session_token.is_none());
    }

    #[test]
    fn a_program_may_leave_another_behind_and_has_our_variables() {
        let prints = r#"printf '{"Version": 1, "AccessKeyId": "%s", "SecretAccessKey": "s"}' "$WHO"; sleep 30 &"#;
        let variables = [("WHO".to_owned(), "ME".to_owned())];
        let begin = Instant::now();
        assert_eq!(run(prints, &variables).unwrap().access_key, "ME");
        assert!(begin.elapsed() < Duration::from_secs(25), "nobody waits for it");
    }

    #[test]
    fn a_program_that_fails_is_explained() {
        let check = |found: Result<Credentials, String>, expected: &str| {
            let why = found.unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        check(run("exit 3", &[]), "exit status: 3");
        check(printing("no"), "no JSON");
        check(printing("{}"), "no `Version`");
        check(printing(r#"{"Version": 2}"#), "version 2");
        check(printing(r#"{"Version": 1}"#), "without keys");
        check(run("head -c 200000 /dev/zero | tr '\\0' x", &[]), "more than");
        for hangs in ["sleep 60", "exec >&-; sleep 60"] {
            check(run_within(hangs, &[], Duration::from_millis(100)), "had not ended");
        }
        let ends =
            r#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "Expiration": "soon"}"#;
        check(printing(ends), "`soon` is no time");
    }
}
