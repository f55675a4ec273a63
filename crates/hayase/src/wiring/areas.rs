//! The storage of a node's areas: images where we may mount, else plain directories.
//!
//! The supervisor makes the images, before the server opens what is in one of them and after it has
//! ended; so the images outlive the server and their mounts go with the supervisor's namespace.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use hayase_layout::ByteCount;
use hayase_store::{Area, AreaError, CountedArea, ImageArea, MountedArea};
use serde::{Deserialize, Serialize};

use crate::job::{JobDir, Settings};
use crate::system::discard::discard;

/// Room in an area, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Room {
    /// Used and free.
    pub(crate) total: u64,
    /// Left to write.
    pub(crate) free: u64,
}

/// What was made for one node.
#[derive(Debug)]
pub(crate) struct NodeAreas {
    /// Of `shared` and `local`; none when the areas are plain directories, or those of another node.
    images: Vec<ImageArea>,
    limiter: &'static str,
}

impl NodeAreas {
    /// Makes both areas of a node, each of its size; on failure neither stays.
    pub(crate) fn create(settings: &Settings, node: u16) -> anyhow::Result<Self> {
        if !settings.has_storage(node) {
            return Ok(Self { images: Vec::new(), limiter: "none" });
        }
        let storage = settings.node_storage(node);
        fs::create_dir_all(&storage).with_context(|| format!("make {}", storage.display()))?;
        let (shared, local) = (settings.shared_root(node), settings.local_root(node));
        if !settings.image {
            for root in [shared, local] {
                fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
            }
            return Ok(Self { images: Vec::new(), limiter: "counted" });
        }
        // Both at once: making a file system waits for the disk more than for the processor.
        let make = |root: PathBuf, size: ByteCount| {
            ImageArea::create(&root.with_extension("img"), &root, size)
        };
        let (shared, local) = std::thread::scope(|scope| {
            let other = scope.spawn(|| make(local, settings.local));
            (make(shared, settings.shared), other.join().expect("making an area does not panic"))
        });
        Ok(Self { images: vec![shared?, local?], limiter: "image" })
    }

    /// What keeps the areas to their sizes.
    pub(crate) fn limiter(&self) -> &'static str {
        self.limiter
    }

    /// Room in `local`, where it is an image.
    pub(crate) fn local_room(&self) -> Option<Room> {
        let usage = self.images.get(1)?.usage().ok()?;
        Some(Room { total: usage.total, free: usage.free })
    }

    /// Gives up what is in the images: nothing of it is written down any more.
    pub(crate) fn discard(&self) {
        for image in &self.images {
            if let Err(error) = discard(image.root()) {
                tracing::warn!("discard {}: {error}", image.root().display());
            }
        }
    }

    /// Unmounts; notes say what did not work.
    pub(crate) fn release(self) -> Vec<String> {
        let unmounted = self.images.into_iter().map(ImageArea::unmount);
        unmounted.filter_map(Result::err).map(|error| busy(&error)).collect()
    }
}

fn busy(error: &AreaError) -> String {
    let cause = std::error::Error::source(error).map(|e| format!(": {e}")).unwrap_or_default();
    format!("{error}{cause}; detached, its space is free when whoever holds it lets go")
}

/// The area of `shared` as the node's server sees it; without storage there is room for what it must
/// remember, and for no part.
pub(crate) fn open_shared(
    dir: &JobDir,
    settings: &Settings,
    node: u16,
) -> Result<Box<dyn Area>, AreaError> {
    let root = settings.shared_root(node);
    Ok(if !settings.has_storage(node) {
        Box::new(CountedArea::open(&dir.node(node).server_state(), ByteCount::ZERO)?)
    } else if settings.image {
        Box::new(MountedArea::open(&root)?)
    } else {
        Box::new(CountedArea::open(&root, settings.shared)?)
    })
}
