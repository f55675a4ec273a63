//! Where the other crates are plugged in: each meeting point in a file of its own.
//!
//! [`areas`] (`hayase_store`), [`serve`] (`hayase_server`), [`serve_mount`], [`mount_containers`] and
//! [`mount_gfarm`] (`hayase_client` and `hayase_fuse`), [`status`] (`hayase_wire`), [`passthrough`]
//! (`hayase_fuse`), [`places`] (`hayase_tier`), [`resume`] and [`verify`] (`hayase_server`, for jobs whose
//! servers are gone, and what came to the tier).

pub(crate) mod areas;
pub(crate) mod mount_containers;
pub(crate) mod mount_gfarm;
pub(crate) mod mount_packs;
pub(crate) mod passthrough;
pub(crate) mod places;
pub(crate) mod resume;
pub(crate) mod serve;
pub(crate) mod serve_mount;
pub(crate) mod status;
pub(crate) mod tier_faults;
pub(crate) mod verify;

use std::error::Error;

use hayase_fuse::MountError;
use hayase_server::ServeError;
use hayase_store::{AreaError, LedgerError, MetaError, NamespaceError, PartError};
use hayase_tier::TierError;
use hayase_wire::transport::{TransportError, UcxError};
use hayase_wire::{HandshakeError, MembersError, NodeError, SecretError};

/// The help that an error of another crate carries.
pub(crate) fn advice(cause: &(dyn Error + 'static)) -> Option<String> {
    fn of<E: Error + 'static>(
        cause: &(dyn Error + 'static),
        help: impl Fn(&E) -> Option<&'static str>,
    ) -> Option<String> {
        cause.downcast_ref::<E>().and_then(help).map(str::to_owned)
    }
    cause
        .downcast_ref::<AreaError>()
        .and_then(AreaError::help)
        .or_else(|| of(cause, MetaError::help))
        .or_else(|| of(cause, NamespaceError::help))
        .or_else(|| of(cause, PartError::help))
        .or_else(|| of(cause, LedgerError::help))
        .or_else(|| of(cause, ServeError::help))
        .or_else(|| of(cause, MembersError::help))
        .or_else(|| of(cause, HandshakeError::help))
        .or_else(|| of(cause, TransportError::help))
        .or_else(|| of(cause, |error: &UcxError| Some(error.help())))
        .or_else(|| of(cause, SecretError::help))
        .or_else(|| of(cause, NodeError::help))
        .or_else(|| of(cause, MountError::help))
        .or_else(|| of(cause, TierError::help))
}
