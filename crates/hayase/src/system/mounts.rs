//! Which mounts of this mount namespace concern a job. Not here: the table of mounts itself ([`hayase_fuse::mount_table`]).

use std::io;
use std::path::{Path, PathBuf};

use hayase_fuse::mount_table::{self, Line};

/// The source of the mounts of a job.
pub(crate) const MOUNT_NAME: &str = "hayase";

/// Whether it is a mount of a job, or a bind of one.
pub(crate) fn is_ours(mounted: &Line) -> bool {
    mounted.is_fuse() && mounted.source == MOUNT_NAME
}

/// Whether something is mounted exactly here.
///
/// # Errors
/// When the table of mounts can not be read; so with the others.
pub(crate) fn is_mount_point(path: &Path) -> io::Result<bool> {
    Ok(top_at(path)?.is_some())
}

/// What was mounted last exactly here.
pub(crate) fn top_at(path: &Path) -> io::Result<Option<Line>> {
    let path = listed(path);
    Ok(mount_table::read()?.into_iter().rfind(|mounted| mounted.point == path))
}

/// Mount points at or below `place`, outermost and oldest first.
pub(crate) fn mounted_below(place: &Path) -> io::Result<Vec<PathBuf>> {
    let place = listed(place);
    let points = mount_table::read()?.into_iter().map(|mounted| mounted.point);
    Ok(points.filter(|point| point.starts_with(&place)).collect())
}

/// As the kernel lists a mount point: without symbolic links above it. What is mounted there is not asked, since it may
/// not answer.
fn listed(path: &Path) -> PathBuf {
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_below_a_link_is_found() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        let proc = link.join("proc");
        assert!(is_mount_point(&proc).unwrap() && !is_mount_point(&link).unwrap());
        assert_eq!(top_at(&proc).unwrap().map(|mounted| mounted.kind), Some("proc".to_owned()));
        assert!(mounted_below(&proc).unwrap().contains(&PathBuf::from("/proc")));
    }

    #[test]
    fn only_fuse_mounts_of_our_name_are_ours() {
        let mut mounted = top_at(Path::new("/proc")).unwrap().unwrap();
        for (kind, source, expected) in [
            ("fuse.hayase", "hayase", true),
            ("fuse", "hayase", true),
            ("tmpfs", "hayase", false),
            ("fuse", "hayase-gfarm", false),
        ] {
            (mounted.kind, mounted.source) = (kind.to_owned(), source.into());
            assert_eq!(is_ours(&mounted), expected, "{kind} {source}");
        }
    }

    #[test]
    fn this_machine_has_proc() {
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/self")).unwrap());
        assert!(mounted_below(Path::new("/proc")).unwrap().contains(&PathBuf::from("/proc")));
    }
}
