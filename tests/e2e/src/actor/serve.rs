//! The loop of an actor: lines in, lines out, a thread for each request.

use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::calls;
use super::command::{Reply, Request};
use super::table::Table;

/// Serves until `input` ends, then returns without waiting for calls that still hang.
///
/// # Errors
/// When a line is no request, or when the lines can not be read.
pub fn serve_lines(input: impl BufRead) -> io::Result<()> {
    let table = Arc::new(Table::default());
    let output = Arc::new(Mutex::new(io::stdout()));
    for line in input.lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let (table, output) = (Arc::clone(&table), Arc::clone(&output));
        std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            let reply = answer(&table, request);
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody listens any more: the end of input ends the actor.
            let _ = send(&mut *output, &reply);
        })?;
    }
    Ok(())
}

/// Serves one request and ends.
///
/// # Errors
/// As [`serve_lines`].
pub fn serve_once(mut input: impl Read) -> io::Result<()> {
    let mut text = Vec::new();
    input.read_to_end(&mut text)?;
    let request = serde_json::from_slice(&text)?;
    send(&mut io::stdout(), &answer(&Table::default(), request))
}

fn answer(table: &Table, request: Request) -> Reply {
    Reply { id: request.id, result: calls::make(table, request.command) }
}

fn send(output: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
