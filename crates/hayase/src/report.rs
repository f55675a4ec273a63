//! The page of a job: what it was, what its nodes moved, and what of it is not in the tier.
//!
//! Here: what is told, gathered from servers, supervisors and ledgers. Rooms: [`page`] (HTML), [`plot`]
//! (pictures, SVG), [`escape`] (text in both), [`series`] (what is drawn, from what servers remember), [`rates`] (how fast
//! bytes moved).
//! The page is one file without anything from elsewhere, so it can be kept beside the job's results.

mod escape;
mod page;
mod plot;
mod rates;
mod series;

use std::path::Path;

use anyhow::Context;

use crate::job::{Job, Settings};
use crate::launch::drain::{Left, left};
use crate::launch::tree::Session;
use crate::moment;
use crate::status::{JobStatus, histories, look_at};
use crate::wiring::status::Sample;

/// What servers remember, by node; why not, where nothing is known.
type Histories = Vec<(u16, Result<Vec<Sample>, String>)>;

/// Everything that a page tells.
#[derive(Debug)]
pub(crate) struct JobReport {
    made_ms: u64,
    settings: Settings,
    status: JobStatus,
    histories: Histories,
    left: Left,
}

impl JobReport {
    /// Asks all nodes of a job; also of one whose processes are gone, as far as its ledgers are here.
    pub(crate) fn gather(job: &Job) -> Self {
        let elsewhere = job.nodes_elsewhere();
        let here: Vec<u16> =
            (0..job.settings.nodes).filter(|node| !elsewhere.contains(node)).collect();
        let left = match job.settings.tier {
            None => Left::default(),
            Some(_) => {
                let mut session = (!elsewhere.is_empty()).then(|| Session::open(job, &elsewhere));
                left(job, &here, session.as_mut())
            }
        };
        Self {
            made_ms: moment::now_ms(),
            settings: job.settings.clone(),
            status: look_at(job),
            histories: histories(job),
            left,
        }
    }

    /// Files that the tier does not have, and their bytes.
    pub(crate) fn not_durable(&self) -> (u64, u64) {
        (self.left.files, self.left.bytes)
    }
}

/// Writes the page of a job.
pub(crate) fn write(job: &Job, path: &Path) -> anyhow::Result<JobReport> {
    let report = JobReport::gather(job);
    let text = page::html(&report);
    std::fs::write(path, text).with_context(|| format!("write the report {}", path.display()))?;
    Ok(report)
}
