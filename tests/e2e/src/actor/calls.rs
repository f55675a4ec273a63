//! One command, one call: what [`Command`] says, made and answered.

mod child;
mod files;
mod maps;
mod names;

use super::command::{Answer, Command};
use super::errno;
use super::loops;
use super::table::Table;
pub(super) use files::lock;
pub(super) use names::list;

/// What a call answers, or the name of its errno.
pub(super) type Outcome = Result<Answer, String>;

/// Makes the call.
pub(super) fn make(table: &Table, command: Command) -> Outcome {
    match command {
        Command::Loop { work, until } => loops::run(table, &work, &until).map(Answer::Report),
        Command::Raise { flag } => {
            table.raise(flag);
            Ok(Answer::Done)
        }
        Command::Reset => {
            table.reset();
            Ok(Answer::Done)
        }
        Command::AsUser { uid, gid, command } => child::as_user(uid, gid, *command),
        Command::After { micros, command } => {
            std::thread::sleep(std::time::Duration::from_micros(micros));
            make(table, *command)
        }
        Command::Shell { script } => child::shell(&script),
        other => files::make(table, other)
            .or_else(|other| maps::make(table, *other))
            .or_else(|other| names::make(table, *other))
            .unwrap_or_else(|other| Err(format!("no call for {other:?}"))),
    }
}

/// A call of this room (`Ok`), or the command handed back for the next room.
type Tried = Result<Outcome, Box<Command>>;

fn done<T>(result: rustix::io::Result<T>) -> Outcome {
    result.map(|_| Answer::Done).map_err(errno::name)
}
