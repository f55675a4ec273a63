//! Reading the tier of a job, as a bystander does.

use std::sync::Arc;

use anyhow::Context;
use hayase_tier::Tier;

use super::places;
use super::status::ChecksumLine;
use crate::job::Settings;

pub(crate) use hayase_server::{Verified, checksum_line};

/// The tier.
pub(crate) struct Reader(Arc<dyn Tier>);

impl Reader {
    /// Of the job of these settings.
    pub(crate) fn open(settings: &Settings) -> anyhow::Result<Self> {
        let tier = settings.tier.as_ref().context("the job has no tier")?;
        let place = places::open_tier(tier).context("open the tier")?;
        Ok(Self(place.tier))
    }

    /// Reads a version whose bytes had `checksum`, and compares; `counted` hears of bytes as they are read.
    pub(crate) fn verify(
        &self,
        line: &ChecksumLine,
        checksum: u64,
        mut counted: impl FnMut(u64),
    ) -> Verified {
        let expected = (line.identity, checksum);
        hayase_server::verify(&*self.0, &line.path, expected, &mut counted)
    }
}
