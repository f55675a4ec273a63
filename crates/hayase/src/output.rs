//! What a person or a program gets to see: the only code that prints.
//!
//! Data goes to standard output, everything else to standard error. With `--json` data is one JSON
//! document and errors are JSON as well. Meaning never depends on colour.
//!
//! Rooms: [`arguments`] (how to talk, as typed), [`headings`] (of options in help texts), [`human`] (pages of text), [`json`], [`progress`] (only on a
//! terminal), [`hint`] (errors with what to try next).

mod arguments;
pub(crate) mod headings;
mod hint;
mod human;
mod json;
mod progress;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use tracing::level_filters::LevelFilter;

use self::arguments::Manner;
use crate::advice::{Advice, Adviser};
use crate::exit::Status;

pub(crate) use arguments::{OutputArgs, colour_of_help};
pub(crate) use human::{Human, Page};
pub(crate) use progress::{Progress, Stand};

/// Arguments that can not be meant, or a wish for help. Errors are JSON where that was asked for, as far as can be
/// known of arguments that were not understood.
pub(crate) fn wrong_usage(error: clap::Error, command: clap::Command) -> ExitCode {
    let mut error = hint::negative_value(error, command, std::env::args_os());
    hint::name_the_job(&mut error);
    hint::name_the_need(&mut error, arguments::words());
    hint::name_a_value(&mut error);
    if error.use_stderr() && arguments::words_ask_for_json() {
        let _ = writeln!(io::stderr(), "{}", json::wrong_usage(&error.to_string()));
    } else {
        // A reader who has seen enough is no error.
        let _ = error.print();
    }
    let status = if error.use_stderr() { Status::Usage } else { Status::Done };
    status.into()
}

/// How this run talks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    manner: Manner,
    adviser: Adviser,
}

impl Output {
    /// `no_color` is the environment's wish; `adviser` knows the error types that give advice.
    pub(crate) fn new(args: OutputArgs, no_color: bool, adviser: Adviser) -> Self {
        Self { manner: args.manner(no_color), adviser }
    }

    /// The same for a process that another one listens to: JSON.
    pub(crate) fn of_worker(self) -> Self {
        Self { manner: Manner::OF_WORKER, ..self }
    }

    /// What an error adds to its message.
    pub(crate) fn advice(&self, error: &anyhow::Error) -> Advice {
        (self.adviser)(error)
    }

    /// Prints a command's result.
    pub(crate) fn show<T: Serialize + Human>(&self, result: &T) -> anyhow::Result<()> {
        if self.manner.is_json {
            return self.raw(&json::document(result)?);
        }
        let mut page = Page::new(self.manner.has_colour);
        result.write(&mut page);
        self.raw(page.text().as_bytes())
    }

    /// Prints what is looked at again and again: on a terminal the page takes the place of the one before,
    /// elsewhere `line` is added; with `--json`, an object in a line.
    pub(crate) fn live<T: Serialize + Human>(&self, result: &T, line: &str) -> anyhow::Result<()> {
        if self.manner.is_json {
            return self.line(result);
        }
        if !io::stdout().is_terminal() {
            return self.raw(format!("{line}\n").as_bytes());
        }
        let mut page = Page::new(self.manner.has_colour);
        result.write(&mut page);
        self.raw(human::redrawn(page.text()).as_bytes())
    }

    /// Prints one JSON object in one line, whatever was asked for: how daemons talk to supervisors.
    pub(crate) fn line<T: Serialize>(&self, value: &T) -> anyhow::Result<()> {
        self.raw(&json::line(value)?)
    }

    /// Prints bytes as they are. A reader who has seen enough is no error.
    pub(crate) fn raw(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// A note for people in addition to the result; neither with `-q` nor for programs (`--json`).
    pub(crate) fn note(&self, text: &str) {
        if !self.manner.is_quiet && !self.manner.is_json {
            self.problem(text);
        }
    }

    /// Something that has to be known: data is not where it was wanted.
    pub(crate) fn problem(&self, text: &str) {
        let _ = writeln!(io::stderr(), "hayase: {text}");
    }

    /// Why the command failed, and what to try next.
    pub(crate) fn fail(&self, error: &anyhow::Error) {
        let advice = self.advice(error);
        let text = match self.manner.is_json {
            true => json::failure(error, &advice),
            false => hint::failure(error, advice.help.as_deref()),
        };
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Results are printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.manner.is_json
    }

    /// Which logs are wanted; `None`: the person did not say.
    pub(crate) fn log(&self) -> Option<LevelFilter> {
        self.manner.log
    }

    /// A bar for `phase`, on a terminal only.
    pub(crate) fn progress(&self, phase: &'static str) -> Progress {
        Progress::new(phase, self.manner.shows_progress)
    }

    /// One for `total` things, which are named in the singular.
    pub(crate) fn steps(&self, phase: &'static str, total: u64, thing: &'static str) -> Progress {
        self.progress(phase).of(total, thing)
    }
}
