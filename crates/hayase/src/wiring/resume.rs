//! The storage of a node without its server: its ledger and parts, and the tier.

use anyhow::Context;
use hayase_store::{Area, CountedArea, ImageArea, Parts};

use super::places::{self, Wish};
use crate::job::{Settings, ledgers};
use crate::launch::mounts::is_mount_point;

pub(crate) use hayase_server::Resumed;

/// Parts that are kept open at once.
const PARTS_OPEN_MAX: usize = 64;

/// Flushes what the ledger of `node` says is not durable; an image is mounted meanwhile.
pub(crate) fn resume_node(
    settings: &Settings,
    node: u16,
    told: impl FnMut(Resumed),
) -> anyhow::Result<()> {
    if ledgers::not_durable(settings, node)?.is_empty() {
        return Ok(());
    }
    let tier = settings.tier.as_ref().context("the job had no tier")?;
    let tier = places::open(tier.place.as_ref(), Wish::Present).context("open the tier")?.tier;
    let root = settings.shared_root(node);
    if !settings.image {
        return flush(settings, node, &CountedArea::open(&root, settings.shared)?, &tier, told);
    }
    if is_mount_point(&root) {
        anyhow::bail!("{} is mounted: a server may still use it", root.display());
    }
    let image = ImageArea::open(&root.with_extension("img"), &root)?;
    let flushed = flush(settings, node, &image, &tier, told);
    image.unmount()?;
    flushed
}

fn flush(
    settings: &Settings,
    node: u16,
    area: &dyn Area,
    tier: &std::sync::Arc<dyn hayase_tier::Tier>,
    told: impl FnMut(Resumed),
) -> anyhow::Result<()> {
    let removed = ledgers::removed(settings)?;
    let mut ledger = ledgers::open(settings, node)?;
    let parts = Parts::open(area.parts()?, PARTS_OPEN_MAX);
    Ok(hayase_server::resume(&mut ledger, &parts, tier, &removed, told)?)
}
