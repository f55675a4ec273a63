//! The program that the tests start on each node of a job; see `hayase_e2e::actor`.
//!
//! `hayase-actor` serves requests on stdin; `--once` serves one; `--guard CMD ARG..` runs CMD when
//! stdin ends without the line `done` (a test run that died must not leave its job behind).

use std::io::{self, BufRead};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        None => hayase_e2e::actor::serve_lines(io::stdin().lock()),
        Some("--once") => hayase_e2e::actor::serve_once(io::stdin().lock()),
        Some("--guard") => guard(&arguments[1..]),
        Some(other) => Err(io::Error::other(format!("no such option: {other}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The error goes to the log of the test run.
            let _ = io::Write::write_all(
                &mut io::stderr(),
                format!("hayase-actor: {error}\n").as_bytes(),
            );
            ExitCode::FAILURE
        }
    }
}

fn guard(command: &[String]) -> io::Result<()> {
    let mut lines = io::stdin().lock().lines();
    if matches!(lines.next(), Some(Ok(line)) if line == "done") {
        return Ok(());
    }
    let [program, arguments @ ..] = command else {
        return Err(io::Error::other("--guard needs a command"));
    };
    let status = Command::new(program).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program}: {status}"))) }
}
