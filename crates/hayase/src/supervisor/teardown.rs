//! Taking one node down: programs, mounts, server, areas, files. Works from any point of the start.
//!
//! Every step is bounded in time and none is skipped because another failed; what did not go as it
//! should becomes a note for the person who asked.

use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};

use super::areas::{Hidden, hide, hide_cache, hide_local};
use super::fate::Fate;
use super::keeper::Keeper;
use super::programs;
use crate::job::{
    Kept, Kind, Marked, Removable, is_ours, ledgers, remove_leftovers, remove_own_leftovers,
};
use crate::wiring::resume::keep_node;

/// How long `serve-mount` may take to end after its mount has gone.
const MOUNT_PATIENCE: Duration = Duration::from_millis(1000);

/// How long it may take when the mount was only detached: somebody still holds it.
const DETACHED_PATIENCE: Duration = Duration::from_millis(200);

/// How long the server may take to write down what it has and end.
const SERVER_PATIENCE: Duration = Duration::from_millis(3000);

impl Keeper {
    /// Ends the programs of the job on this node and takes its areas out of sight. `asker` and its
    /// parents are spared.
    pub(super) fn unmount(&mut self, asker: Option<i32>) -> Vec<String> {
        if self.is_unmounted {
            return Vec::new();
        }
        self.is_unmounted = true;
        self.mount_restarts.cancel();
        let mut notes = programs::end(&self.settings, self.node, asker);
        let mounts_local = self.mount.is_some() && !self.settings.has_storage(self.node);
        if self.shows_local || mounts_local {
            note(&mut notes, &hide_local(&self.settings, self.node));
        }
        note(&mut notes, &hide_cache(&self.settings, self.node));
        if let Some(daemon) = &mut self.mount {
            let mount = self.settings.shared_mount(self.node);
            let hidden = hide(&mount, self.settings.is_privileged);
            note(&mut notes, &hidden);
            let is_clean = hidden == Hidden::Gone;
            let patience = if is_clean { MOUNT_PATIENCE } else { DETACHED_PATIENCE };
            // It ends by itself with its mount; when it was only detached it has to be told.
            let ended = is_clean && daemon.wait(patience);
            if !ended {
                notes.extend(daemon.stop(patience));
            }
            // It ended before the kernel's side was gone, or had mounted only after it was taken out of sight.
            if !ended {
                note(&mut notes, &hide(&mount, self.settings.is_privileged));
                if mounts_local {
                    note(&mut notes, &hide_local(&self.settings, self.node));
                }
            }
        }
        for line in &notes {
            tracing::warn!("{line}");
        }
        notes
    }

    /// Takes down whatever is up, and removes this node's files. Answers what somebody should know, and why its storage
    /// was not removed if it should have been.
    pub(super) fn tear_down(
        &mut self,
        fate: Fate,
        asker: Option<i32>,
    ) -> (Vec<String>, Option<String>) {
        let mut notes = self.unmount(asker);
        let early = self.removable(fate);
        // First, so that the server does not wait for the disk to take what is removed right after.
        if let Some(areas) = self.areas.as_ref().filter(|_| matches!(early, Some(Ok(_)))) {
            areas.discard();
        }
        if let Some(daemon) = &mut self.server {
            notes.extend(daemon.stop(SERVER_PATIENCE));
        }
        notes.extend(self.apart.end());
        // Nobody holds the names any more, which may tell more.
        let removable = match early {
            Some(Err(_)) => self.removable(fate),
            early => early,
        };
        let kept = removable.as_ref().and_then(|removable| removable.as_ref().err());
        let kept = kept.map(ToString::to_string);
        if let Some(why) = &kept {
            tracing::error!("{why}");
        }
        let keep = !matches!(removable, Some(Ok(_)));
        if keep {
            notes.extend(keep_node(&self.settings, self.node));
        }
        let is_orphaned = keep && !ledgers::can_resume(&self.settings, self.node);
        let has_left_all = self.has_left_all();
        if let Some(areas) = self.areas.take() {
            notes.extend(areas.release());
        }
        let storage = self.settings.node_storage(self.node);
        if !keep
            && has_left_all
            && is_ours(&self.settings)
            && let Err(error) = ledgers::mark_in_tier(&self.settings, self.node)
        {
            notes.push(format!("{error:#}"));
        }
        if !keep
            && let Some(marked) = Marked::find(&self.settings)
            && let Err(error) = marked.remove_node(&self.settings, self.node)
        {
            notes.push(format!("remove {}: {error}", storage.display()));
        }
        if self.settings.has_namespaces() {
            let _ = unmount(self.dir.own_node().path(), UnmountFlags::DETACH);
        }
        if is_orphaned {
            // Only the directory of the job says what the storage is.
            return (notes, kept);
        }
        let dir = self.node_dir();
        if let Err(error) = dir.remove() {
            notes.push(format!("remove {}: {error}", dir.path().display()));
        }
        if self.settings.kind == Kind::Hosts {
            remove_own_leftovers(&self.dir, &self.settings, self.node);
        } else {
            remove_leftovers(&self.dir, &self.settings);
        }
        tracing::info!("down");
        (notes, kept)
    }

    /// Whether this node's storage may be removed; `None` where it is to stay.
    fn removable(&self, fate: Fate) -> Option<Result<Removable, Kept>> {
        match fate {
            Fate::Keep => None,
            Fate::Discard => Some(Removable::discarded(&self.settings)),
            Fate::Remove => Some(Removable::check(&self.settings, [self.node])),
        }
    }

    /// Whether the tier has everything of this node; asked when its server has ended. Not so when what it
    /// does not have is thrown away.
    fn has_left_all(&self) -> bool {
        self.settings.tier.is_some()
            && ledgers::not_durable(&self.settings, self.node).is_ok_and(|left| left.is_empty())
    }
}

fn note(notes: &mut Vec<String>, hidden: &Hidden) {
    match hidden {
        Hidden::Gone => {}
        Hidden::Detached(what) | Hidden::Failed(what) => notes.push(what.clone()),
    }
}
