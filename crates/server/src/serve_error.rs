//! Why a server could not be started.

use hayase_layout::ServerId;
use hayase_store::{LedgerError, MetaError, NamespaceError, PartError, says_full};
use hayase_ucx::UcxError;
use hayase_wire::{Address, MembersError, NodeError, SecretError, TransportError};

use crate::limits::SLOTS;

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The directories of the area could not be made.
    #[error("make {} in the area", .path.display())]
    Directory {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The parts can not be reached.
    #[error("open the parts of server {server}")]
    Parts {
        /// Whose.
        server: ServerId,
        /// Why.
        source: PartError,
    },
    /// The name space can not be opened.
    #[error("open the name space of server {server}")]
    Meta {
        /// Whose.
        server: ServerId,
        /// Why.
        source: MetaError,
    },
    /// The name space is not this server's, or not readable.
    #[error("read the name space of server {server}")]
    Names {
        /// Whose.
        server: ServerId,
        /// Why.
        source: NamespaceError,
    },
    /// The ledger can not be read.
    #[error("open the ledger of server {server}")]
    Ledger {
        /// Whose.
        server: ServerId,
        /// Why.
        source: LedgerError,
    },
    /// It was there, and nobody can say without it what the tier does not have.
    #[error(
        "the ledger of server {server} is gone, and {files} files of the cache area are here: `hayase resume --salvage` \
         brings them to the tier"
    )]
    LedgerGone {
        /// Whose.
        server: ServerId,
        /// How many.
        files: usize,
    },
    /// The server's own key can not be read or made.
    #[error("read or make the key by which server {server} proves itself")]
    Key {
        /// Who.
        server: ServerId,
        /// Why.
        source: SecretError,
    },
    /// The transfer buffers could not be had.
    #[error("get {SLOTS} transfer buffers of 1 MiB")]
    Slots {
        /// Why.
        source: std::io::Error,
    },
    /// The node's socket could not be bound.
    #[error("listen on the node's socket")]
    Socket {
        /// Why.
        source: NodeError,
    },
    /// No address could be listened on.
    #[error("listen on {address}")]
    Listen {
        /// Which.
        address: Address,
        /// Why.
        source: TransportError,
    },
    /// UCX was asked for and can not be had.
    #[error("speak to the other servers over UCX (--transport ucx)")]
    Ucx {
        /// Why.
        source: UcxError,
    },
    /// Server 0 did not hear of this one for too long: what it held elsewhere was released.
    #[error("server {server} was declared lost: it has to begin again")]
    Lost {
        /// Who.
        server: ServerId,
    },
    /// The members did not meet.
    #[error("meet the other servers of the job")]
    Members {
        /// Why.
        source: MembersError,
    },
}

impl ServeError {
    /// What the user can try next, where the cause alone does not say it.
    pub fn help(&self) -> Option<&'static str> {
        let Self::Key { source, .. } = self else { return None };
        match source {
            SecretError::Exposed { .. } => Some(
                "others could read the key of this server: run `chmod 600` on it only if nobody did, otherwise end the \
                 job with `hayase down` and start another one",
            ),
            SecretError::Length { .. } => Some(
                "the key of this server is damaged, and no other one is believed: leave its node lost, and end the job \
                 with `hayase down`",
            ),
            SecretError::Read { .. } | SecretError::Write { .. } => Some(
                "see that the storage of this node is mounted, has room, and is yours to write",
            ),
            SecretError::Random => None,
        }
    }

    /// Whether names that were answered for may be gone: storage tells an error of write-back once, and what is read then
    /// looks whole. Of a server that was started before, it ends with [`crate::NAMES_LOST`].
    pub fn may_have_lost_names(&self) -> bool {
        let (Self::Meta { source, .. } | Self::Names { source: NamespaceError::Store(source), .. }) =
            self
        else {
            return false;
        };
        match source {
            MetaError::Failed { is_whole, .. } => !is_whole,
            MetaError::Io { source, .. } => {
                rustix::io::Errno::from_io_error(source) == Some(rustix::io::Errno::IO)
            }
            _ => false,
        }
    }

    /// Whether the server could start, with all that it had, if the disk that it keeps its own files on had room.
    pub(crate) fn is_full(&self) -> bool {
        if self.may_have_lost_names() {
            return false;
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if error.downcast_ref::<MetaError>().is_some_and(MetaError::is_full)
                || error.downcast_ref().is_some_and(says_full)
            {
                return true;
            }
            cause = error.source();
        }
        false
    }
}
