//! What errors of the other crates add to their messages.

use hayase_container::ContainerError;
use hayase_fuse::MountError;
use hayase_server::ServeError;
use hayase_stage::pack::PackError;
use hayase_store::{AreaError, LedgerError, MetaError, NamespaceError, PartError};
use hayase_tier::TierError;
use hayase_ucx::UcxError;
use hayase_wire::transport::TransportError;
use hayase_wire::{HandshakeError, MembersError, NodeError, SecretError};

use crate::advice::{Advice, Advise};

/// Types whose `help` is all they say; without it their cause may have some.
macro_rules! help_of {
    ($($error:ty),+ $(,)?) => {
        $(impl Advise for $error {
            fn advice(&self) -> Option<Advice> {
                self.help().map(|help| Advice::failure(Some(help.to_owned())))
            }
        })+
    };
}

help_of![
    AreaError,
    HandshakeError,
    LedgerError,
    MembersError,
    MetaError,
    MountError,
    NamespaceError,
    NodeError,
    PartError,
    SecretError,
    ServeError,
    TierError,
    TransportError,
];

impl Advise for UcxError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::failure(Some(self.help().to_owned())))
    }
}

impl Advise for ContainerError {
    fn advice(&self) -> Option<Advice> {
        let (help, is_usage) = (self.help().map(str::to_owned), names_nothing(self));
        Some(Advice { help, is_usage })
    }
}

impl Advise for PackError {
    fn advice(&self) -> Option<Advice> {
        let (help, is_usage) = (self.help().map(str::to_owned), is_wrong_key_or_place(self));
        Some(Advice { help, is_usage })
    }
}

/// The person named a path that can not be meant.
fn names_nothing(error: &ContainerError) -> bool {
    use ContainerError::{Exists, Invalid, NotContainer, NotFound};
    matches!(error, NotFound { .. } | NotContainer { .. } | Exists { .. } | Invalid { .. })
}

/// The person named the wrong key, or a place that can not be meant.
fn is_wrong_key_or_place(error: &PackError) -> bool {
    matches!(
        error,
        PackError::NoPacks { .. }
            | PackError::TargetPacked { .. }
            | PackError::TargetLoose { .. }
            | PackError::SourceSealed { .. }
            | PackError::RemovesAll { .. }
            | PackError::IndexThere { .. }
            | PackError::KeyMissing { .. }
            | PackError::KeyUnexpected { .. }
            | PackError::WrongKey { .. }
            | PackError::KeyFormat(_)
    )
}
