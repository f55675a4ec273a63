//! What an error adds to its message: what to try next, and whether the fault lies in what was typed.
//!
//! Here: [`Advise`], which an error type implements where it is defined. Not here: the list of all types that do
//! ([`crate::commands::error_types`]), which [`crate::output::Output`] gets when the program starts.

use std::error::Error;

use crate::exit::Status;

/// What one error adds to its message.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// What to try next.
    pub(crate) help: Option<String>,
    /// The person asked for something that can not be: exit code 2.
    pub(crate) is_usage: bool,
}

/// An error type that gives advice.
pub(crate) trait Advise: Error + 'static {
    /// `None` leaves the advice to the error's cause.
    fn advice(&self) -> Option<Advice>;
}

/// Finds the first advice in the chain of an error.
pub(crate) type Adviser = fn(&anyhow::Error) -> Advice;

impl Advice {
    /// Of wrong usage or settings.
    pub(crate) fn usage(help: Option<String>) -> Self {
        Self { help, is_usage: true }
    }

    /// Of anything else.
    pub(crate) fn failure(help: Option<String>) -> Self {
        Self { help, is_usage: false }
    }

    /// The exit code of a command that ended with the error.
    pub(crate) fn status(&self) -> Status {
        if self.is_usage { Status::Usage } else { Status::Failed }
    }
}
