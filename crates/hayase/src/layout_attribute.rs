//! The attribute by which a directory of an area says how its new files are laid out.

use std::path::Path;

use anyhow::Context;
use hayase_layout::StripePolicy;
use rustix::fs::XattrFlags;

/// `whole`, or `striped:<bytes>:<width>`.
pub(crate) const LAYOUT: &str = "user.hayase.layout";

/// Sets the layout of new files below a directory.
pub(crate) fn set(path: &Path, policy: StripePolicy) -> anyhow::Result<()> {
    let value = policy.to_string();
    rustix::fs::setxattr(path, LAYOUT, value.as_bytes(), XattrFlags::empty())
        .with_context(|| format!("set the layout of {}", path.display()))
}
