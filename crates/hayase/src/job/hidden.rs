//! A job directory appears whole, with its `job.json`, and disappears whole.
//!
//! While it is made or removed it has a hidden name in the same directory, which names the process that does it: a command
//! that is killed in the middle leaves nothing that looks like a job, and the next command finds by the name what it left.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{JobDir, JobError, expect_safe_way};
use crate::kept_file::sync_directory_of;
use crate::process::{ProcessId, boot_id};

/// Where process numbers mean what they mean here: this boot, and this PID namespace of it.
fn here() -> io::Result<String> {
    Ok(format!("{}-{}", boot_id()?, fs::metadata("/proc/self/ns/pid")?.ino()))
}

/// Where `dir` lies while this process makes or removes it: `.NAME.BOOT-NAMESPACE.PID.START`.
fn hidden(dir: &Path) -> io::Result<PathBuf> {
    let ProcessId { pid, start } = ProcessId::current()?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    Ok(dir.with_file_name(format!(".{name}.{}.{pid}.{start}", here()?)))
}

/// Whether a hidden name is of a process from `here` that has ended.
fn is_left(name: &str, here: &str) -> bool {
    let mut parts = name.rsplitn(4, '.');
    let mut next = || parts.next().unwrap_or_default();
    let (start, pid, origin, rest) = (next().parse(), next().parse(), next(), next());
    let (Ok(start), Ok(pid)) = (start, pid) else { return false };
    rest.starts_with('.') && origin == here && !ProcessId { pid, start }.is_alive()
}

/// Removes what killed commands of this user left in the directory `parent`, where others may write as well.
pub(super) fn sweep(parent: &Path) {
    let (Ok(here), Ok(Some(held))) = (here(), expect_safe_way(parent)) else { return };
    let uid = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(held.path()).into_iter().flatten().flatten() {
        let is_own = || entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == uid);
        if entry.file_name().to_str().is_some_and(|name| is_left(name, &here)) && is_own() {
            let _ = held.remove_all(&entry.file_name());
        }
    }
}

impl JobDir {
    /// Makes the directory, with those of its nodes and what `fill` puts into it; on failure nothing is there.
    pub(crate) fn make<E: From<JobError>>(
        &self,
        nodes: u16,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = || JobError::io("make", self.path());
        self.path().parent().into_iter().for_each(sweep);
        let making = Self::new(hidden(self.path()).map_err(failed())?);
        making.create(nodes)?;
        let filled = fill(&making).and_then(|()| {
            // A directory that is there already has something in it, and is not replaced: rename(2).
            fs::rename(making.path(), self.path()).map_err(failed())?;
            let synced = sync_directory_of(self.path()).inspect_err(|_| self.remove());
            Ok(synced.map_err(JobError::from)?)
        });
        if filled.is_err() {
            let _ = fs::remove_dir_all(making.path());
        }
        filled
    }

    /// Removes the directory with all that is in it. Of several nodes that do so one finds it.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.try_remove()
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!("remove {}: {error}", self.path().display());
        }
    }

    fn try_remove(&self) -> io::Result<()> {
        let (Some(above), Some(name)) = (self.path().parent(), self.path().file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let above = expect_safe_way(above).map_err(io::Error::other)?;
        let above = above.ok_or(io::ErrorKind::NotFound)?;
        let removing = hidden(self.path())?;
        let removing = removing.file_name().map(OsString::from).unwrap_or_default();
        above.rename(name, &removing)?;
        // Another may have taken its name since it was looked at.
        let is_it = match self.held() {
            Some(held) => above.directory(&removing).is_ok_and(|found| found.is(held)),
            None => true,
        };
        match is_it {
            true => above.remove_all(&removing),
            false => above.rename(&removing, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::ByteCount;
    use hayase_store::ImageArea;

    use super::*;
    use crate::job::{Kind, sample_settings};

    fn names(parent: &Path) -> Vec<String> {
        let entries = fs::read_dir(parent).unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_directory_is_there_whole_or_not_at_all() {
        let parent = tempfile::tempdir().unwrap();
        let dir = JobDir::new(parent.path().join("a.b"));
        let fill = |making: &JobDir| {
            assert!(!dir.path().exists());
            fs::write(making.path().join("job.json"), "{}")
                .map_err(JobError::io("write", making.path()))
        };
        dir.make(1, fill).unwrap();
        assert_eq!(names(parent.path()), ["a.b"]);
        assert!(dir.path().join("job.json").exists() && dir.path().join("node-0").is_dir());
        assert!(dir.make(1, |_| Ok::<(), JobError>(())).is_err(), "it is there already");
        assert_eq!(names(parent.path()), ["a.b"]);
        dir.remove();
        dir.remove();
        assert_eq!(names(parent.path()), [""; 0]);
    }

    /// Of the file system nothing is written down that was not synced.
    #[test]
    fn a_job_directory_with_its_settings_outlives_a_power_cut() {
        let top = tempfile::tempdir_in("/var/tmp").unwrap();
        let (image, root) = (top.path().join("fs.img"), top.path().join("fs"));
        let area = match ImageArea::create(&image, &root, ByteCount::mib(16)) {
            Ok(area) => area,
            Err(error) => {
                return println!("SKIP a_job_directory_outlives: no image can be mounted: {error}");
            }
        };
        let (dir, settings) = (JobDir::new(root.join("j")), sample_settings(Kind::ThisMachine, 1));
        dir.make(1, |making| making.write_settings(&settings)).unwrap();
        crate::system::discard::discard(&root).unwrap();
        area.unmount().unwrap();
        let area = ImageArea::open(&image, &root).unwrap();
        assert_eq!(dir.settings().unwrap(), settings);
        drop(dir); // it keeps what it has read from
        area.unmount().unwrap();
    }

    #[test]
    fn what_a_killed_command_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let living = hidden(&parent.path().join("j")).unwrap();
        let ProcessId { pid, start } = ProcessId::current().unwrap();
        let (here, start) = (here().unwrap(), start + 1);
        let dead = format!(".j.{here}.{pid}.{start}");
        let link = format!(".link.{here}.{pid}.{start}");
        let others = [format!(".j.other-boot.{pid}.{start}"), ".j.1.2".into(), "j".into()];
        std::os::unix::fs::symlink("j", parent.path().join(&link)).unwrap();
        fs::create_dir(&living).unwrap();
        for name in others.iter().chain([&dead]) {
            fs::create_dir_all(parent.path().join(name).join("node-0")).unwrap();
        }
        sweep(parent.path());
        let left = names(parent.path());
        assert_eq!(left.len(), 5, "{left:?}");
        assert!(!left.contains(&dead));
    }
}
