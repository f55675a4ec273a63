//! Why UCX carries nothing.

use super::table::{Code, NotLoaded, Table};

/// Why there is no worker.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UcxError {
    /// No library.
    #[error(transparent)]
    NotLoaded(#[from] NotLoaded),
    /// The library refuses.
    #[error("UCX {version}: {action}: {why}")]
    Refused {
        /// Of the library.
        version: String,
        /// What was tried.
        action: &'static str,
        /// In its words.
        why: String,
    },
}

impl UcxError {
    /// What `action` was answered.
    pub(super) fn refused(table: &Table, action: &'static str) -> impl Fn(Code) -> Self {
        move |code| Self::Refused { version: table.version(), action, why: table.words(code) }
    }

    /// What the user can try next.
    pub fn help(&self) -> &'static str {
        match self {
            Self::NotLoaded(error) => error.help(),
            Self::Refused { .. } => {
                "see which devices UCX can use (`ucx_info -d`), or use `--transport tcp`"
            }
        }
    }
}
