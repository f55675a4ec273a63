//! `stage out --background`: into the cache area of a job whose tier holds the target.
//!
//! What lies in the cache area is safe on the nodes, and the ledger knows that the tier does not have it yet:
//! so the command ends at the speed of the nodes' storage, servers bring the tree to the tier behind it,
//! `status` shows how far they are, `down` waits for them, and `resume` does it after a dead job.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::advice::{Advice, Advise};
use crate::job::Job;
use crate::wiring::places;

/// Why nothing can be done behind the command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackgroundError {
    /// No cache area.
    #[error("job {job} has no tier: --background needs one")]
    NoTier { job: String },
    /// The target is elsewhere.
    #[error("`{target}` is not in the tier of the job, `{tier}`")]
    Outside { target: String, tier: String },
    /// Of a job on other hosts, or in name spaces of its own.
    #[error("the cache area of job {job} is not mounted here")]
    NotMounted { job: String },
}

impl BackgroundError {
    /// What the person can try next.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::NoTier { .. } => {
                "start the job with --tier DIR or --tier s3://BUCKET/PREFIX, or leave --background out"
                    .to_owned()
            }
            Self::Outside { .. } => {
                "choose a target below the tier, or leave --background out".to_owned()
            }
            Self::NotMounted { .. } => {
                "run the command on a node of the job: hayase exec -- hayase stage out ..".to_owned()
            }
        }
    }
}

impl Advise for BackgroundError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(Some(self.help())))
    }
}

/// Where `target` appears in the cache area.
pub(crate) fn in_cache(target: &OsStr, job: &Job) -> Result<PathBuf, BackgroundError> {
    let settings = &job.settings;
    let id = || settings.job.to_string();
    let tier = settings.tier.as_ref().ok_or_else(|| BackgroundError::NoTier { job: id() })?;
    let below = places::relative(OsStr::new(&tier.place), target).ok_or_else(|| {
        let target = target.to_string_lossy().into_owned();
        BackgroundError::Outside { target, tier: tier.place.clone() }
    })?;
    let mounts = (0..settings.nodes).filter_map(|node| settings.cache_mount(node));
    let mut mounts = mounts.filter(|mount| places::is_mounted(mount));
    let mount = mounts.next().ok_or_else(|| BackgroundError::NotMounted { job: id() })?;
    Ok(match below {
        None => mount,
        Some(name) => mount.join(name.as_os_str()),
    })
}

/// Said at the end.
pub(crate) const ON_ITS_WAY: &str = "it is safe on the nodes, and on its way to the tier: `hayase status` shows how far, `hayase flush` waits";
