//! Who has files of a mount open, in whichever mount namespace, and under whatever name it sees them.
//!
//! A mount that a namespace has a copy of, or that is bound elsewhere, is the same device. So processes are asked for the
//! mounts of their descriptors and for the devices of their mappings, not for paths. Not here: who stands in a mount
//! and keeps it busy ([`super::holders`]).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hayase_fuse::mount_table::{Line, read_of};

use super::holders::Holder;
use crate::process::{ProcessId, all};

/// Processes, but this one, that can read or write a file of what is mounted at one of `points` in some namespace.
/// Some ms for a hundred processes.
pub(crate) fn holders(points: &[PathBuf]) -> Vec<Holder> {
    let mut views = HashMap::new();
    let own = std::process::id();
    let processes: Vec<_> = all()
        .filter(|process| process.pid.unsigned_abs() != own)
        .map(|process| {
            let mounts = mounts_seen(&mut views, &process.proc());
            (process, mounts)
        })
        .collect();
    let ours = mounts_seen(&mut views, Path::new("/proc/self"));
    let seen = processes.iter().flat_map(|(_, mounts)| mounts.iter()).chain(ours.iter());
    let is_meant = |mounted: &&Line| points.contains(&mounted.point);
    let devices: HashSet<(u32, u32)> =
        seen.filter(is_meant).map(|mounted| mounted.device).collect();
    let holds = |(process, mounts): (ProcessId, Rc<Vec<Line>>)| {
        let by = holds(&process.proc(), &mounts, &devices)?;
        let command = fs::read_to_string(process.proc().join("comm")).unwrap_or_default();
        Some(Holder { process, command: command.trim().to_owned(), by })
    };
    processes.into_iter().filter(|_| !devices.is_empty()).filter_map(holds).collect()
}

/// A process that has ended meanwhile sees nothing. Read once for each namespace and root in it: after chroot(2) a process sees no mounts outside of its root.
fn mounts_seen(views: &mut HashMap<[PathBuf; 2], Rc<Vec<Line>>>, proc: &Path) -> Rc<Vec<Line>> {
    let view = ["ns/mnt", "root"].map(|link| fs::read_link(proc.join(link)).unwrap_or_default());
    let mounts = views.entry(view);
    Rc::clone(mounts.or_insert_with(|| Rc::new(read_of(proc).unwrap_or_default())))
}

fn holds(proc: &Path, mounts: &[Line], devices: &HashSet<(u32, u32)>) -> Option<&'static str> {
    let is_ours = |mounted: &&Line| devices.contains(&mounted.device);
    let ids: HashSet<u64> = mounts.iter().filter(is_ours).map(|mounted| mounted.number).collect();
    let infos = fs::read_dir(proc.join("fdinfo")).into_iter().flatten().flatten();
    for info in infos {
        let text = fs::read_to_string(info.path()).unwrap_or_default();
        if mount_id(&text).is_some_and(|id| ids.contains(&id)) {
            return Some("fd");
        }
    }
    let maps = fs::read_to_string(proc.join("maps")).unwrap_or_default();
    let is_mapped = maps.lines().filter_map(device_of_mapping).any(|dev| devices.contains(&dev));
    is_mapped.then_some("map")
}

/// A line of it is `mnt_id:`, a tab, a number.
fn mount_id(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// `start-end perms offset dev inode path`, with `dev` in hexadecimal digits.
fn device_of_mapping(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.split_ascii_whitespace().nth(3)?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some((number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        assert_eq!(mount_id("pos:\t0\nflags:\t02\nmnt_id:\t31\nino:\t7\n"), Some(31));
        let line = "7f00-7f10 r--p 00000000 08:1f 77                  /m/shared/a b";
        assert_eq!(device_of_mapping(line), Some((8, 31)));
        assert_eq!(device_of_mapping(""), None);
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Who only stands there is not meant; who stands there and has a file is, also under another name.
    #[test]
    fn files_are_found_wherever_they_are_seen() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        let (point, other) = (top.join("point"), top.join("other"));
        [&point, &other].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        if let Err(errno) = mount("files", &point, "tmpfs", MountFlags::empty(), None) {
            return println!("SKIP files_are_found: a tmpfs is not to be mounted: {errno}");
        }
        let points = [point.clone()];
        let sleep = || {
            let mut sleep = Command::new("sleep");
            sleep.arg("60").current_dir(&point);
            sleep
        };
        let stands = sleep().spawn().unwrap();
        assert!(holders(&points).is_empty());
        rustix::mount::mount_bind(&point, &other).unwrap();
        let file = fs::File::create(other.join("f")).unwrap();
        let has = sleep().stdin(Stdio::from(file)).spawn().unwrap();
        let found = holders(&points);
        assert_eq!(found.iter().map(|h| h.process.pid).collect::<Vec<_>>(), [has.id() as i32]);
        assert_eq!(found[0].by, "fd");
        [stands, has].into_iter().for_each(end);
        let unmounted = |path: &PathBuf| unmount(path, UnmountFlags::empty()).unwrap();
        [&other, &point].into_iter().for_each(unmounted);
    }
}
