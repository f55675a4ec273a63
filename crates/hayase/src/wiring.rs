//! Where the other crates are plugged in: each meeting point in a file of its own.
//!
//! [`areas`] (`hayase_store`), [`serve`] (`hayase_server`), [`serve_mount`] (`hayase_client` and
//! `hayase_fuse`), [`status`] (`hayase_wire`).

pub(crate) mod areas;
pub(crate) mod passthrough;
pub(crate) mod serve;
pub(crate) mod serve_mount;
pub(crate) mod status;

/// The help that an error of another crate carries.
pub(crate) fn advice(_cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}
