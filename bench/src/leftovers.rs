//! What a bench left that was killed together with its guard: removed when the next bench starts in the same storage
//! directory.
//!
//! A bench owns the directory `hayase-bench-<process>` there, with its [`Journal`] in it. Where the journal is locked,
//! the bench or its guard lives and nothing is touched; nor is a directory without one. Otherwise the things of the
//! journal are removed as the guard would have, then what is mounted below the directory, loop devices of files in it,
//! and the directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::command::run;
use crate::guard::{mounts_below, remove, remove_tree, unmount};
use crate::journal::{self, Journal, Thing};

/// Of the name of a bench's directory; a process number follows.
const MARK: &str = "hayase-bench-";

const LOOPS: &str = "/sys/block";
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// The directory of a bench.
pub(crate) fn tree_of(storage: &Path, process: u32) -> PathBuf {
    storage.join(format!("{MARK}{process}"))
}

/// Clears up in a storage directory. One line for each directory that was removed, or could not be.
///
/// `hayase` ends jobs whose own program is gone.
pub(crate) fn sweep(storage: &Path, hayase: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(storage).into_iter().flatten().flatten();
    let trees = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_marked));
    trees.filter_map(|entry| clear_abandoned(&entry.path(), hayase)).collect()
}

fn is_marked(name: &str) -> bool {
    let process = name.strip_prefix(MARK);
    process.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}

/// Nothing happens, and nothing is said, where somebody may live.
fn clear_abandoned(tree: &Path, hayase: &Path) -> Option<String> {
    if !tree.join(journal::NAME).is_file() {
        return None;
    }
    let journal = Journal::seize(tree).ok()?;
    Some(match clear(tree, &journal, hayase) {
        Ok(()) => format!("removed {}, which a bench that was killed had left", tree.display()),
        Err(error) => format!("{} of a bench that was killed stays: {error:#}", tree.display()),
    })
}

fn clear(tree: &Path, journal: &Journal, hayase: &Path) -> anyhow::Result<()> {
    for thing in journal.remains()?.iter().rev() {
        match thing {
            // Goes last.
            Thing::Tree(path) if path == tree => {}
            // Its number may be another one's by now.
            Thing::Ending(_) => {}
            thing => remove(thing, Some(hayase)),
        }
        if let Thing::Job { directory, .. } = thing {
            ensure!(
                !directory.exists(),
                "`hayase down --job {}` did not end its job",
                directory.display()
            );
        }
    }
    for point in mounts_below(tree)? {
        unmount(&point);
    }
    for device in loops_below(tree) {
        detach(&device)?;
    }
    remove_tree(tree)
}

/// Loop devices whose files lie in `tree`.
fn loops_below(tree: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(LOOPS).into_iter().flatten().flatten();
    let devices = entries.filter(|entry| {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file"));
        file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(tree))
    });
    devices.map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}

fn detach(device: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("losetup");
    command.arg("--detach").arg(device);
    run(&mut command, DETACH_PATIENCE)?.success("losetup").map(drop).context("detach a loop device")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_PROGRAM: &str = "/no/such/hayase";

    fn tree(storage: &Path, process: u32) -> PathBuf {
        let tree = tree_of(storage, process);
        std::fs::create_dir_all(tree.join("bench-1/storage")).unwrap();
        std::fs::write(tree.join("bench-1/storage/file"), "x").unwrap();
        tree
    }

    #[test]
    fn only_names_with_the_mark_are_ours() {
        let check = |name: &str, expected| assert_eq!(is_marked(name), expected, "{name}");
        check("hayase-bench-17", true);
        check("hayase-bench-", false);
        check("hayase-bench-17.old", false);
        check("hayase-test.17", false);
    }

    #[test]
    fn what_nobody_holds_is_removed() {
        let storage = tempfile::tempdir().unwrap();
        // The numbers do not matter: the first process exists, and is no bench.
        let [held, unknown, left] = [1, 2, 3].map(|process| tree(storage.path(), process));
        let beside = tempfile::tempdir_in(storage.path()).unwrap();
        let journal = Journal::create(&held).unwrap();
        let dead = Journal::create(&left).unwrap();
        dead.made(Thing::Tree(left.clone())).unwrap();
        dead.made(Thing::Tree(beside.path().to_owned())).unwrap();
        dead.made(Thing::Ending(1)).unwrap();
        drop(dead);
        let told = sweep(storage.path(), Path::new(NO_PROGRAM));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("removed "), "{told:?}");
        assert!(held.exists() && unknown.exists());
        assert!(!left.exists() && !beside.path().exists());
        drop(journal);
        sweep(storage.path(), Path::new(NO_PROGRAM));
        assert!(!held.exists() && unknown.exists());
    }

    #[test]
    fn a_job_that_can_not_be_ended_keeps_its_tree() {
        let storage = tempfile::tempdir().unwrap();
        let left = tree(storage.path(), 3);
        let job = Thing::Job { directory: left.join("bench-1"), hayase: NO_PROGRAM.into() };
        Journal::create(&left).unwrap().made(job).unwrap();
        let told = sweep(storage.path(), Path::new("/bin/false"));
        assert!(told.len() == 1 && told[0].contains("did not end its job"), "{told:?}");
        assert!(left.join("bench-1/storage/file").exists());
    }

    #[test]
    fn what_is_mounted_below_is_unmounted() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP what_is_mounted_below_is_unmounted: not root");
            return;
        }
        let storage = tempfile::tempdir().unwrap();
        let left = tree(storage.path(), 3);
        drop(Journal::create(&left).unwrap());
        let (point, image) = (left.join("point"), left.join("image"));
        std::fs::create_dir(&point).unwrap();
        std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-ec", script, "sh"]).args([&point, &image]);
            run(&mut command, DETACH_PATIENCE).unwrap().success(script)
        };
        if let Err(error) = shell("mount -t tmpfs none $1; mkdir $1/in; mount -t tmpfs none $1/in")
        {
            println!("SKIP what_is_mounted_below_is_unmounted: {error:#}");
            return;
        }
        let has_loop = shell("losetup --find $2").is_ok();
        assert_eq!(loops_below(&left).len(), usize::from(has_loop));
        let told = sweep(storage.path(), Path::new(NO_PROGRAM));
        assert!(!left.exists(), "{told:?}");
        assert!(loops_below(&left).is_empty());
    }
}
