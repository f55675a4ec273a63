//! The storage of a node's areas.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::job::Settings;

/// What was made for one node.
#[derive(Debug)]
pub(crate) struct NodeAreas {}

impl NodeAreas {
    /// Makes both areas of a node, each of its size.
    pub(crate) fn create(settings: &Settings, node: u16) -> anyhow::Result<Self> {
        for root in [settings.shared_root(node), settings.local_root(node)] {
            fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
        }
        Ok(Self {})
    }

    /// What keeps the areas to their sizes.
    pub(crate) fn limiter(&self) -> &'static str {
        "counted"
    }

    /// Unmounts; notes say what did not work.
    pub(crate) fn release(self, _keep: bool) -> Vec<String> {
        Vec::new()
    }
}

/// Frees devices whose images lie below `place`.
pub(crate) fn release_devices(_place: &Path) {}
