//! Removing what a job leaves: by id and mark, never by a name that could be somebody else's.
//!
//! Here: directories, mounts and loop devices of a job that has ended, however it ended.
//! Not here: ending its processes (`supervisor::teardown`).

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::cover::is_covered;
use super::trust::{remove_empty, remove_link};
use super::{
    Job, JobDir, JobError, JobId, Kept, Kind, Marked, NodeDir, Registry, Removable, Settings,
    ledgers, mark,
};
use crate::cpu_budget::group;
use crate::interrupts::{self, Machine};
use crate::process::wait_ended;
use crate::system::mounts::mounted_below;
use crate::system::{loop_devices, program};

/// How long a process may take to be gone after it was killed: it may be inside a write to its disk.
const END_MAX: Duration = Duration::from_secs(10);

/// What became of a dead job.
pub(crate) enum Dead {
    /// Nothing is left of it.
    Cleaned(JobId),
    /// All is left, since something is wrong with its storage.
    Kept(JobId, Kept),
    /// All is left: its files do not tell what it was, or whether it runs.
    Unknown(JobError),
}

/// Removes mounts and files of every dead job of this user, as far as the tier has what it kept.
///
/// A job whose last processes are just being killed counts as dead, and is waited for.
/// Only mounts that this mount namespace shows: those of a simulated node went with its namespace.
pub(crate) fn clean_dead(registry: &Registry) -> Vec<Dead> {
    let unknown = registry.damaged().into_iter().map(Dead::Unknown);
    let cleaned = registry.jobs().into_iter().filter_map(|job| match job.known() {
        Ok(job) => clean_if_dead(&job),
        Err(error) => Some(Dead::Unknown(error)),
    });
    unknown.chain(cleaned).collect()
}

/// `None` when it lives, or when bytes of it exist nowhere else: they stay for `hayase resume`, or `down --discard`.
fn clean_if_dead(job: &Job) -> Option<Dead> {
    let name = job.settings.job.clone();
    let cleaned = match has_ended(job) {
        true => match Removable::check(&job.settings, 0..job.settings.nodes) {
            Ok(_) if ledgers::has_undurable(&job.settings) => return None,
            Ok(removable) => {
                clean(job, removable);
                Ok(true)
            }
            Err(kept) => Err(kept),
        },
        false => clean_killed_node(job),
    };
    match cleaned {
        Ok(was_there) => was_there.then_some(Dead::Cleaned(name)),
        Err(kept) => kept.is_wrong().then_some(Dead::Kept(name, kept)),
    }
}

/// Removes what this host's node of a Slurm job left when it was killed: its allocation is over, and a
/// host that it was on has no other word of that. True when there was something.
fn clean_killed_node(job: &Job) -> Result<bool, Kept> {
    let is_of_slurm = job.settings.reach.as_ref().is_some_and(|reach| reach.way.is_flat());
    let mut found = false;
    for node in job.nodes_here() {
        if is_of_slurm && job.supervisor(node).is_none() {
            if ledgers::keeps_for_others(&job.settings, node) {
                continue;
            }
            clean_node(job, node, Removable::check(&job.settings, [node])?);
            found = true;
        }
    }
    Ok(found)
}

/// Whether all processes of `job` have ended; waits for those that are ending.
fn has_ended(job: &Job) -> bool {
    if job.is_elsewhere() {
        return false;
    }
    let living = job.living();
    living.iter().all(|handle| handle.id.is_ending()) && wait_ended(&living, END_MAX)
}

/// Takes the mounts of other jobs out of this process's own mount namespace, which began as a copy of
/// the machine's: kept here, they would stay busy after those jobs have ended.
pub(crate) fn hide_others(ours: &Settings) {
    let others = Registry::open_or_none(&ours.runtime).jobs();
    for Job { settings, .. } in others.into_iter().filter(|job| job.settings.job != ours.job) {
        for node in 0..settings.nodes {
            settings.area_mounts(node).iter().for_each(|place| detach_below(place));
        }
        detach_below(&settings.job_storage());
    }
}

/// Takes the mounts of a job whose processes have ended out of sight; its bytes stay.
pub(crate) fn detach_areas(settings: &Settings) {
    for node in 0..settings.nodes {
        settings.area_mounts(node).iter().for_each(|place| detach_below(place));
    }
}

/// Removes what was kept of a job, now that the tier has all of it; `dir` is where it was found.
pub(crate) fn clean_resumed(settings: &Settings, dir: &JobDir, removable: Removable) {
    // On one machine without namespaces the images of a killed job are mounted still.
    remove_job_storage(settings);
    match dir.settings() {
        Ok(_) => clean(&Job { dir: dir.clone(), settings: settings.clone() }, removable),
        Err(JobError::NotAJob { .. }) => {}
        Err(error) => tracing::warn!("the job directory stays: {}", error.with_help()),
    }
    for made in settings.made.iter().rev() {
        let _ = remove_empty(made);
    }
}

/// Removes everything of a job whose processes have ended.
pub(crate) fn clean(job: &Job, removable: Removable) {
    let settings = &job.settings;
    if settings.kind == Kind::Hosts {
        return clean_hosts(job, removable);
    }
    for node in 0..settings.nodes {
        end_killed(settings, &job.dir.node(node));
        for place in settings.area_mounts(node) {
            detach_below(&place);
        }
    }
    remove_job_storage(settings);
    for node in 0..settings.nodes {
        let _ = job.dir.node(node).remove();
    }
    remove_leftovers(&job.dir, settings);
}

/// Removes what a job has in the storage, if it is still this job's.
fn remove_job_storage(settings: &Settings) {
    let Some(marked) = Marked::find(settings) else { return };
    detach_below(&settings.job_storage());
    loop_devices::release(&settings.job_storage());
    if let Err(error) = marked.remove_all(settings) {
        tracing::warn!("remove {}: {error}", settings.job_storage().display());
    }
}

/// Takes back what a supervisor had set up that was killed.
fn end_killed(settings: &Settings, dir: &NodeDir) {
    if settings.move_interrupts {
        interrupts::give_back_left(Machine::this());
    }
    if let Some(path) = dir.group()
        && let Err(error) = group::remove(&path)
    {
        tracing::warn!("{error}");
    }
}

/// The same for a job that did not come up, unless the tier misses something of it.
pub(crate) fn clean_unless_needed(job: &Job) {
    match Removable::check(&job.settings, 0..job.settings.nodes) {
        Ok(removable) => clean(job, removable),
        Err(kept) => tracing::warn!("{kept}"),
    }
}

/// The same for this host's own node.
pub(crate) fn clean_node_unless_needed(job: &Job, node: u16) {
    match Removable::check(&job.settings, [node]) {
        Ok(removable) => clean_node(job, node, removable),
        Err(kept) => tracing::warn!("{kept}"),
    }
}

/// Removes what this host has of a job on several hosts: its own node if that is one of them, and the job
/// directory, which may be the one of all. Other hosts have cleaned up themselves.
fn clean_hosts(job: &Job, removable: Removable) {
    for node in job.nodes_here() {
        clean_node(job, node, removable);
    }
    for node in 0..job.settings.nodes {
        let _ = job.dir.node(node).remove();
    }
    Registry::forget(&job.settings.runtime, &job.settings.job);
    job.dir.remove();
}

/// Removes everything of this host's own node, whose processes have ended.
pub(crate) fn clean_node(job: &Job, node: u16, _: Removable) {
    let mut settings = job.settings.clone();
    let dir = job.dir.node(node);
    settings.made = dir.made();
    end_killed(&settings, &dir);
    for place in settings.area_mounts(node) {
        detach_below(&place);
    }
    if let Some(marked) = Marked::find(&settings) {
        let storage = settings.node_storage(node);
        detach_below(&storage);
        loop_devices::release(&storage);
        if let Err(error) = marked.remove_node(&settings, node) {
            tracing::warn!("remove {}: {error}", storage.display());
        }
    }
    let _ = dir.remove();
    remove_own_leftovers(&job.dir, &settings, node);
}

/// Removes what is left of a node whose processes were killed, but for its storage, which is kept as `hayase resume` takes it.
pub(crate) fn forget_kept_node(job: &Job, node: u16) {
    let mut settings = job.settings.clone();
    let dir = job.dir.node(node);
    end_killed(&settings, &dir);
    for place in settings.area_mounts(node) {
        detach_below(&place);
    }
    let made = dir.made();
    let _ = dir.remove();
    if settings.kind == Kind::Hosts {
        settings.made = made;
        remove_own_leftovers(&job.dir, &settings, node);
    } else {
        remove_leftovers(&job.dir, &settings);
    }
}

/// Removes what was made for the node of this host before it came up. Mount points stay as they are: what
/// is mounted there, or shown by a link, may have been the reason why it did not.
pub(crate) fn clean_unstarted_node(job: &Job, node: u16) {
    let mut settings = job.settings.clone();
    let dir = job.dir.node(node);
    settings.made = dir.made();
    let _ = dir.remove();
    remove_made(&job.dir, &settings);
}

/// Removes what the node of this host leaves on it, once its own directories are gone; and the job
/// directory with the last node that it was for.
pub(crate) fn remove_own_leftovers(dir: &JobDir, settings: &Settings, node: u16) {
    for place in settings.area_mounts(node) {
        // Refused where it is no link.
        let _ = remove_link(&place);
    }
    remove_made(dir, settings);
}

/// Removes directories that were made for the node of this host, as far as nothing else is in them.
fn remove_made(dir: &JobDir, settings: &Settings) {
    remove_storage(settings);
    for made in settings.made.iter().rev() {
        let _ = remove_link(made).or_else(|_| remove_empty(made));
    }
    if !(0..settings.nodes).any(|node| dir.node(node).path().exists()) {
        Registry::forget(&settings.runtime, &settings.job);
        dir.remove();
    }
}

/// Removes the job's place in the storage when nothing is left in it but its mark and notes of what is gone.
fn remove_storage(settings: &Settings) {
    mark::remove_unmarked(settings);
    // With `--keep` storage of nodes is there, and what speaks of it stays.
    let is_note = |name: &OsStr| name.to_str().is_some_and(ledgers::is_note);
    let removed = Marked::find(settings).map(|marked| marked.remove_if(settings, is_note));
    if let Some(Err(error)) = removed {
        tracing::debug!("remove {}: {error}", settings.job_storage().display());
    }
}

/// Removes what the nodes of a job share, once no node is left: the job directory, its entry in
/// the registry, and the directories that `up` made, as far as they are empty.
///
/// Each node calls it after removing its own `node-<i>`; only the last one finds work.
pub(crate) fn remove_leftovers(dir: &JobDir, settings: &Settings) {
    if (0..settings.nodes).any(|node| dir.node(node).path().exists()) {
        return;
    }
    // Seen by a node too, under the mounts of its own that have gone.
    settings
        .area_mounts(0)
        .iter()
        .filter(|place| is_covered(place))
        .for_each(|place| detach_below(place));
    for node in 0..settings.nodes {
        for place in settings.area_mounts(node) {
            // Refused where it is no link.
            let _ = remove_link(&place);
        }
    }
    remove_storage(settings);
    Registry::forget(&settings.runtime, &settings.job);
    dir.remove();
    for made in settings.made.iter().rev() {
        let _ = remove_empty(made);
    }
}

/// Detaches every mount at or below `place`, the deepest first.
fn detach_below(place: &Path) {
    let found = mounted_below(place).unwrap_or_else(|error| {
        tracing::warn!("look what is mounted below {}: {error}", place.display());
        Vec::new()
    });
    for path in found.into_iter().rev() {
        if let Err(error) = detach(&path) {
            tracing::warn!("detach {}: {error}", path.display());
        }
        // Without privilege only the helper of the FUSE package may do it.
        if !rustix::process::geteuid().is_root() {
            let _ = program::fusermount().arg("-uz").arg(&path).output();
        }
    }
}

/// Detaches what is mounted at a path as the kernel lists it. The directory above is held and has to be the listed one: a
/// link that another user has put there meanwhile could lead to a mount of somebody else.
fn detach(point: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (point.parent(), point.file_name()) else {
        return Err(io::Error::from(Errno::BUSY));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(above, flags, Mode::empty())?;
    let held_path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    if fs::read_link(&held_path)? != above {
        return Err(io::Error::other("another directory has taken its place"));
    }
    Ok(unmount(held_path.join(name), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{mark_storage, sample_settings};
    use crate::process::ProcessId;

    /// A job that has ended, with its storage.
    fn ended(top: &Path) -> Job {
        let mut settings = sample_settings(Kind::ThisMachine, 1);
        (settings.runtime, settings.storage) = (top.join("run"), top.join("storage"));
        (settings.mount, settings.move_interrupts) = (top.join("mount"), false);
        settings.launcher = ProcessId { start: 1, ..settings.launcher };
        let dir = JobDir::new(top.join("run/jobs/t1"));
        Registry::make(&top.join("run")).unwrap();
        dir.create(1).unwrap();
        dir.write_settings(&settings).unwrap();
        fs::create_dir_all(settings.node_storage(0)).unwrap();
        mark_storage(&settings).unwrap();
        Job { dir, settings }
    }

    /// What `up` says of dead jobs; nothing when it removes one.
    fn clean_all(top: &Path) -> Option<String> {
        match &clean_dead(&Registry::open(&top.join("run")).unwrap())[..] {
            [Dead::Cleaned(_)] => None,
            [Dead::Kept(_, why)] => Some(why.to_string()),
            [Dead::Unknown(why)] => Some(why.to_string()),
            _ => panic!("there is one job"),
        }
    }

    #[test]
    fn nothing_of_a_job_is_removed_while_a_file_that_says_whose_it_is_is_damaged() {
        let jobs = "run/jobs/t1";
        for (files, expected) in [
            (
                vec![format!("{jobs}/node-0/supervisor.json")],
                "cannot tell whether node 0 of job t1 runs",
            ),
            (vec!["storage/t1/mark".to_owned()], "its owner is unknown"),
            (vec![format!("{jobs}/job.json"), format!("{jobs}/job.json.copy")], "is damaged"),
        ] {
            let top = tempfile::tempdir().unwrap();
            let job = ended(top.path());
            let path = |file: &String| top.path().join(file);
            let whole: Vec<_> = files.iter().map(|file| fs::read(path(file)).ok()).collect();
            files.iter().for_each(|file| fs::write(path(file), "{").unwrap());
            let why = clean_all(top.path()).expect("it was removed");
            assert!(why.contains(expected) && why.contains(&files[0]), "{why}");
            assert!(job.settings.node_storage(0).exists() && job.dir.path().exists());
            for (file, whole) in files.iter().zip(whole) {
                match whole {
                    Some(bytes) => fs::write(path(file), bytes).unwrap(),
                    None => fs::remove_file(path(file)).unwrap(),
                }
            }
            assert_eq!(clean_all(top.path()), None);
            assert!(!job.settings.job_storage().exists() && !job.dir.path().exists());
        }
    }

    /// Another user has put a link in the way to a mount point: what it leads to stays mounted.
    #[test]
    fn a_link_in_the_way_to_a_mount_leads_to_no_other() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (way, others) = (top.join("way"), top.join("others"));
        fs::create_dir_all(others.join("shared")).unwrap();
        std::os::unix::fs::symlink(&others, &way).unwrap();
        let error = detach(&way.join("shared")).unwrap_err();
        assert!(error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()), "{error}");
        fs::remove_file(&way).unwrap();
        std::os::unix::fs::symlink(&top, &way).unwrap();
        let error = detach(&way.join("others/shared")).unwrap_err().to_string();
        assert!(error.contains("another directory has taken its place"), "{error}");
    }

    #[test]
    fn a_job_with_one_whole_copy_of_its_settings_is_known() {
        let top = tempfile::tempdir().unwrap();
        for name in ["job.json", "job.json.copy"] {
            let job = ended(top.path());
            fs::write(job.dir.path().join(name), "").unwrap();
            assert_eq!(job.dir.settings().unwrap(), job.settings);
            assert_eq!(clean_all(top.path()), None);
        }
    }
}
