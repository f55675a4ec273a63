//! Where the other crates are plugged in: each meeting point in a file of its own.
//!
//! [`advice`] (what their errors add to messages), [`areas`] (`hayase_store`), [`serve`] (`hayase_server`), [`serve_mount`], [`mount_containers`] and
//! [`mount_gfarm`] (`hayase_client` and `hayase_fuse`), [`status`] (`hayase_wire`), [`passthrough`]
//! (`hayase_fuse`), [`places`] (`hayase_tier`), [`resume`] and [`verify`] (`hayase_server`, for jobs whose
//! servers are gone, and what came to the tier).

mod advice;
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
pub(crate) mod verify;
