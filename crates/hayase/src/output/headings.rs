//! Headings of options in help texts and manual pages, so that equal options are found under equal words.

pub(crate) const JOB: &str = "Job";
pub(crate) const STORAGE: &str = "Storage";
pub(crate) const NODES: &str = "Nodes";
pub(crate) const CACHE: &str = "Cache";
pub(crate) const NETWORK: &str = "Network";
pub(crate) const NOISE: &str = "Noise";
pub(crate) const MPI: &str = "MPI";
pub(crate) const CONSISTENCY: &str = "Consistency";
pub(crate) const MONITORING: &str = "Monitoring";
pub(crate) const TESTING: &str = "Testing";
pub(crate) const SELECTION: &str = "Selection";
pub(crate) const COPYING: &str = "Copying";
pub(crate) const PERFORMANCE: &str = "Performance";
pub(crate) const PACKS: &str = "Packs";
pub(crate) const KEYS: &str = "Sealed packs";
pub(crate) const STAGING: &str = "Staging";
pub(crate) const GLOBAL: &str = "Global options";
