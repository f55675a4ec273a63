//! What is mounted in this mount namespace: `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The source of the mounts of a job.
pub(crate) const MOUNT_NAME: &str = "hayase";

/// One line of it, as far as we need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Of this mount, in this boot; descriptors tell it.
    pub(crate) id: u64,
    /// Major and minor number of what is mounted.
    pub(crate) device: (u32, u32),
    /// Mount point.
    pub(crate) point: PathBuf,
    /// `xfs`, `fuse.hayase`, ...
    pub(crate) fs_type: String,
    /// Device, or whatever the file system calls its source.
    pub(crate) source: OsString,
}

impl Mounted {
    /// Whether it is a mount of a job, or a bind of one.
    pub(crate) fn is_ours(&self) -> bool {
        let is_fuse = self.fs_type == "fuse" || self.fs_type.starts_with("fuse.");
        is_fuse && self.source == MOUNT_NAME
    }
}

/// Everything that is mounted, in the order in which it was mounted.
pub(crate) fn all() -> Vec<Mounted> {
    mounts_of(Path::new("/proc/self"))
}

/// The same that a process sees, by its directory in `/proc`.
pub(crate) fn mounts_of(proc: &Path) -> Vec<Mounted> {
    let text = std::fs::read(proc.join("mountinfo")).unwrap_or_default();
    text.split(|&b| b == b'\n').filter_map(parse).collect()
}

/// Whether something is mounted exactly here.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    top_at(path).is_some()
}

/// What was mounted last exactly here.
pub(crate) fn top_at(path: &Path) -> Option<Mounted> {
    let path = listed(path);
    all().into_iter().rfind(|mounted| mounted.point == path)
}

/// Mount points at or below `place`, outermost and oldest first.
pub(crate) fn mounted_below(place: &Path) -> Vec<PathBuf> {
    let place = listed(place);
    all()
        .into_iter()
        .map(|mounted| mounted.point)
        .filter(|point| point.starts_with(&place))
        .collect()
}

/// As the kernel lists a mount point: without symbolic links above it. What is mounted there is not asked, since it may
/// not answer.
fn listed(path: &Path) -> PathBuf {
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`
fn parse(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<_> = line.split(|&b| b == b' ').collect();
    let dash = fields.iter().position(|&field| field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let device = text(fields.get(2)?);
    let (major, minor) = device.split_once(':')?;
    Some(Mounted {
        id: text(fields.first()?).parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        point: PathBuf::from(unescape(fields.get(4)?)),
        fs_type: text(fields.get(dash + 1)?),
        source: unescape(fields.get(dash + 2)?),
    })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match octal {
            Some(value) => {
                out.push(value);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
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
        assert!(is_mount_point(&proc) && !is_mount_point(&link));
        assert_eq!(top_at(&proc).map(|mounted| mounted.fs_type), Some("proc".to_owned()));
        assert!(mounted_below(&proc).contains(&PathBuf::from("/proc")));
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line =
            b"36 35 98:0 /mnt1 /a\\040b rw,noatime master:1 shared:2 - fuse.hayase hayase rw";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.point, Path::new("/a b"));
        assert_eq!((mounted.id, mounted.device), (36, (98, 0)));
        assert_eq!(mounted.fs_type, "fuse.hayase");
        assert_eq!(mounted.source, "hayase");
        assert!(mounted.is_ours());
        for line in
            ["36 35 0:98 / /a rw - tmpfs hayase rw", "36 35 0:98 / /a rw - fuse hayase-gfarm rw"]
        {
            assert!(!parse(line.as_bytes()).unwrap().is_ours(), "{line}");
        }
        assert_eq!(parse(b"rubbish"), None);
        assert_eq!(unescape(b"a\\04"), "a\\04");
    }

    #[test]
    fn this_machine_has_proc() {
        assert!(is_mount_point(Path::new("/proc")));
        assert!(!is_mount_point(Path::new("/proc/self")));
        assert!(mounted_below(Path::new("/proc")).contains(&PathBuf::from("/proc")));
    }
}
