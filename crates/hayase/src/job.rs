//! A job: its directory, its settings, and how a command finds it.
//!
//! Rooms: [`settings`] (`job.json`, and every path and name that follows from it), [`directory`]
//! (what lies in the job directory), [`hidden`] (how it appears and disappears), [`registry`] (the jobs of this user),
//! [`find`] (which job a command means), [`known`] (what is known of it), [`leftovers`] (removing what a job leaves), [`mark`] (whose a storage is), [`trust`], [`distrust`] and [`held`] (whether another user could have written what is read), [`removal`] (whether it may be), [`ledgers`] and
//! [`left_names`] (what the storage of its nodes says), [`addresses`] (where its servers listen), [`cover`] (what this
//! machine shows in place of areas of simulated nodes), [`tier_faults`] (for tests), [`error`].

pub(crate) mod addresses;
pub(crate) mod cover;
mod directory;
mod distrust;
mod error;
mod find;
mod held;
mod hidden;
mod known;
pub(crate) mod ledgers;
pub(crate) mod left_names;
mod leftovers;
mod mark;
mod registry;
mod removal;
mod settings;
pub(crate) mod tier_faults;
mod trust;

pub(crate) use directory::{
    JobDir, NodeDir, SupervisorRecord, last_lines, random, write_atomically,
};
pub(crate) use distrust::Distrust;
pub(crate) use error::JobError;
pub(crate) use find::{find, find_any, job_at};
pub(crate) use known::Job;
pub(crate) use leftovers::{
    Dead, clean, clean_dead, clean_node, clean_node_unless_needed, clean_resumed,
    clean_unless_needed, clean_unstarted_node, detach_areas, forget_kept_node, hide_others,
    remove_leftovers, remove_own_leftovers,
};
pub(crate) use mark::{Marked, found_mark, is_ours, mark_storage};
pub(crate) use registry::Registry;
pub(crate) use removal::{Kept, Removable};
#[cfg(test)]
pub(crate) use settings::tests::sample as sample_settings;
pub(crate) use settings::{
    FsyncAt, JobId, KernelProfile, Kind, MARK_VARIABLE, MmapShared, Names, Reach, SETTINGS_FORMAT,
    Settings, TierSettings, TransportName, Way,
};
pub(crate) use trust::{
    expect_own, expect_safe_way, is_mapped, make_private, remove_link, whole_safe_way,
};
