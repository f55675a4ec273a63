//! What can go wrong in a call on a container, as MPI's classes of errors.
//!
//! Here: one error, its class. Not here: calling the program's error handler (`crate::handlers`).
//! Source: MPI 4.1, section 14.8 (error classes).
//!
//! The code that a program gets is the class itself. What happened is said once on stderr, when it is
//! nothing that a program tries on purpose.

use std::{
    ffi::c_int,
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};

use hayase_container::{ContainerError, WriteError};
use hayase_layout::DatatypeError;

use crate::{abi::ErrorClass, real, stderr};

/// See the module.
#[derive(Debug)]
pub(crate) struct Error {
    kind: Kind,
    what: String,
}

#[derive(Debug)]
enum Kind {
    /// A mistake of the program, or something that it may try: it gets a code, and asks no more.
    Usual(ErrorClass),
    /// Somebody must hear of it.
    Unusual(ErrorClass),
    /// The same, and the library must not try it instead.
    Refused(ErrorClass),
    /// A code of the library.
    Library(c_int),
    /// A code that another process got.
    Other(c_int),
}

/// Most errors that are said by one process.
const SAID_MAX: u32 = 16;

impl Error {
    /// A mistake in the arguments, or something that is not possible here.
    pub(crate) fn usual(class: ErrorClass, what: impl Into<String>) -> Self {
        Self { kind: Kind::Usual(class), what: what.into() }
    }

    /// Something that somebody must hear of.
    pub(crate) fn unusual(class: ErrorClass, what: impl Into<String>) -> Self {
        Self { kind: Kind::Unusual(class), what: what.into() }
    }

    /// A defect of ours.
    pub(crate) fn internal(what: &'static str) -> Self {
        Self::unusual(ErrorClass::Intern, what)
    }

    pub(crate) fn argument(what: impl Into<String>) -> Self {
        Self::usual(ErrorClass::Arg, what)
    }

    pub(crate) fn datatype(what: impl Into<String>) -> Self {
        Self::usual(ErrorClass::Type, what)
    }

    pub(crate) fn count(what: impl Into<String>) -> Self {
        Self::usual(ErrorClass::Count, what)
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::unusual(ErrorClass::UnsupportedOperation, what)
    }

    /// A call of the library failed.
    pub(crate) fn library(call: &'static str, code: c_int) -> Self {
        Self { kind: Kind::Library(code), what: format!("{call} failed") }
    }

    /// Another process had it, and has said it.
    pub(crate) fn of_another(code: c_int) -> Self {
        Self { kind: Kind::Other(code), what: "another process failed".to_owned() }
    }

    /// The library does not have it.
    pub(crate) fn missing(call: &'static str) -> Self {
        Self::unsupported(format!("this MPI library has no {call}"))
    }

    /// What the program gets.
    pub(crate) fn code(&self) -> c_int {
        match self.kind {
            Kind::Usual(class) | Kind::Unusual(class) | Kind::Refused(class) => {
                real::found().abi.map_or(1, |abi| (abi.error_class)(class))
            }
            Kind::Library(code) | Kind::Other(code) => code,
        }
    }

    /// Whether the library must not do what could not be done, in its own way.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.kind, Kind::Refused(_))
    }

    /// Says it, when somebody must hear of it.
    pub(crate) fn tell(&self) {
        static SAID: AtomicU32 = AtomicU32::new(0);
        let is_unusual =
            matches!(self.kind, Kind::Unusual(_) | Kind::Refused(_) | Kind::Library(_));
        if is_unusual && SAID.fetch_add(1, Ordering::Relaxed) < SAID_MAX {
            stderr::say(&self.what);
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<ContainerError> for Error {
    fn from(error: ContainerError) -> Self {
        let class = match &error {
            ContainerError::NotFound { .. } => ErrorClass::NoSuchFile,
            ContainerError::Exists { .. } => ErrorClass::FileExists,
            ContainerError::Access { wanted, .. } => {
                let class = match *wanted {
                    "writing" => ErrorClass::ReadOnly,
                    _ => ErrorClass::Access,
                };
                return Self::usual(class, error.to_string());
            }
            ContainerError::Invalid { .. } => return Self::argument(error.to_string()),
            ContainerError::NoRoom { source, .. } => class_of(source),
            ContainerError::Io { source, .. } => class_of(source),
            ContainerError::Writers { .. } => {
                return Self { kind: Kind::Refused(ErrorClass::Io), what: chain(&error) };
            }
            _ => ErrorClass::Io,
        };
        Self::unusual(class, chain(&error))
    }
}

impl From<DatatypeError> for Error {
    fn from(error: DatatypeError) -> Self {
        Self::datatype(error.to_string())
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        error.source.into()
    }
}

fn class_of(error: &std::io::Error) -> ErrorClass {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => ErrorClass::NoSuchFile,
        ErrorKind::PermissionDenied => ErrorClass::Access,
        ErrorKind::StorageFull => ErrorClass::NoSpace,
        ErrorKind::QuotaExceeded => ErrorClass::Quota,
        ErrorKind::ReadOnlyFilesystem => ErrorClass::ReadOnly,
        _ => ErrorClass::Io,
    }
}

/// The error and what it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
