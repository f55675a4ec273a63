//! What is mounted in a mount namespace, as `/proc` shows it.
//!
//! Nothing else tells it without asking a file system, which may be ours before it answers anything, or after it has
//! broken down: statx(2) asks on kernels before 4.20, and even open(2) with `O_PATH` does where the system audits files.
//! Source: proc_pid_mountinfo(5); audit_inode() in kernel/auditsc.c of Linux.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads of which two in a row must agree.
const READS_MAX: usize = 20;

/// After two that do not.
const PAUSE: Duration = Duration::from_millis(2);

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Of this mount, in this boot; descriptors show it.
    pub number: u64,
    parent: u64,
    /// Major and minor number of what is mounted.
    pub device: (u32, u32),
    /// Mount point, without symbolic links.
    pub point: PathBuf,
    /// `xfs`, `fuse.hayase`, ...
    pub kind: String,
    /// Device, or whatever the file system calls its source.
    pub source: OsString,
    /// The user that mounted it, of a FUSE file system.
    pub user: Option<u32>,
}

impl Line {
    /// Whether a process in user space serves it.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }
}

/// Every mount that this thread sees, in the order in which the kernel lists them.
///
/// # Errors
/// When `/proc` can not be read: that says nothing about what is mounted.
pub fn read() -> io::Result<Vec<Line>> {
    read_of(Path::new("/proc/thread-self"))
}

/// The same that a process sees, by its directory in `/proc`.
///
/// Before Linux 5.8 a line can be missing when others mount or unmount meanwhile. It is read until nothing has changed.
///
/// # Errors
/// As [`read`]; also when the process has ended.
pub fn read_of(proc: &Path) -> io::Result<Vec<Line>> {
    let bytes = agreed(|| std::fs::read(proc.join("mountinfo")))?;
    Ok(bytes.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// What two reads in a row give.
fn agreed(mut read: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut before = read()?;
    for _ in 1..READS_MAX {
        let now = read()?;
        if now == before {
            return Ok(now);
        }
        before = now;
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::other("the list of mounts changes all the time"))
}

/// The mount that `path` leads to; `path` is canonical.
pub fn leads_to<'a>(lines: &'a [Line], path: &Path) -> Option<&'a Line> {
    // The root of a process may lie in a mount that is not listed.
    let is_listed = |number| lines.iter().any(|line| line.number == number);
    let parent = |line: &Line| {
        Some(line.parent).filter(|parent| *parent != line.number && is_listed(*parent))
    };
    let mut places: Vec<_> = path.ancestors().collect();
    places.reverse();
    let mut last: Option<&Line> = None;
    for place in places {
        let below = |last: Option<&Line>| {
            let number = last.map(|line| line.number);
            lines.iter().rfind(|line| line.point == place && parent(line) == number)
        };
        while let Some(over) = below(last) {
            last = Some(over);
        }
    }
    last
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`
fn parse(line: &[u8]) -> Option<Line> {
    let fields: Vec<_> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |at: usize| std::str::from_utf8(fields.get(at)?).ok();
    let (major, minor) = text(2)?.split_once(':')?;
    Some(Line {
        number: text(0)?.parse().ok()?,
        parent: text(1)?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        point: PathBuf::from(unescape(fields.get(4)?)),
        kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: unescape(fields.get(dash + 2)?),
        user: text(dash + 3).and_then(|options| {
            options.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
        }),
    })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(mut field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    while let Some((&first, rest)) = field.split_first() {
        let digits = rest.get(..3).filter(|_| first == b'\\');
        let octal = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                field = &rest[3..];
            }
            None => {
                bytes.push(first);
                field = rest;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        text.lines().filter_map(|line| parse(line.as_bytes())).collect()
    }

    fn number(text: &str, path: &str) -> Option<u64> {
        leads_to(&lines(text), Path::new(path)).map(|line| line.number)
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "36 35 0:98 / /a\\040b\\134c rw,noatime master:1 shared:2 - fuse.hayase hayase rw,user_id=7,group_id=8";
        let expected = Line {
            number: 36,
            parent: 35,
            device: (0, 98),
            point: "/a b\\c".into(),
            kind: "fuse.hayase".to_owned(),
            source: "hayase".into(),
            user: Some(7),
        };
        assert_eq!(lines(line), [expected]);
        assert!(lines(line)[0].is_fuse());
        assert!(!lines("36 35 0:98 / /a rw - fuseblk /dev/sdb1 rw")[0].is_fuse());
        assert_eq!(lines("\nrubbish\n36 35 0:98 / /a rw"), []);
        assert_eq!(unescape(b"a\\04"), "a\\04");
    }

    #[test]
    fn a_path_leads_to_the_mount_that_covers_the_others() {
        let text = "1 1 0:1 / / rw - rootfs rootfs rw\n\
                    20 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    30 20 0:30 / /a/b rw - fuse hayase rw\n\
                    31 30 0:31 / /a/b rw - tmpfs over rw\n\
                    32 20 0:32 / /a/bc rw - tmpfs tmpfs rw\n";
        assert_eq!(number(text, "/a/b/below"), Some(31));
        assert_eq!(number(text, "/a/bc"), Some(32));
        assert_eq!(number(text, "/a"), Some(20));
        // Something over a directory above hides them, and has a mount at the same path.
        let hidden = format!("{text}40 20 0:40 / /a rw - tmpfs tmpfs rw\n");
        assert_eq!(number(&hidden, "/a/b"), Some(40));
        let younger = format!("{hidden}41 40 0:41 / /a/b rw - fuse hayase rw\n");
        assert_eq!(number(&younger, "/a/b"), Some(41));
    }

    #[test]
    fn the_root_may_lie_in_a_mount_that_is_not_listed() {
        let text = "30 20 0:30 / /a rw - tmpfs tmpfs rw\n31 30 0:31 / /a rw - fuse hayase rw\n";
        assert_eq!(number(text, "/a"), Some(31));
        assert_eq!(number(text, "/"), None);
    }

    #[test]
    fn a_line_is_missing_only_if_it_is_missing_twice() {
        let mut reads = vec![b"whole".to_vec(), b"whole".to_vec(), b"torn".to_vec()];
        assert_eq!(agreed(|| Ok(reads.pop().unwrap())).unwrap(), b"whole");
        let mut count = 0_u8;
        let changes = agreed(|| {
            count += 1;
            Ok(vec![count])
        });
        changes.unwrap_err();
        assert_eq!(usize::from(count), READS_MAX);
    }

    #[test]
    fn this_system_has_a_root() {
        let lines = read().unwrap();
        assert_eq!(leads_to(&lines, Path::new("/proc/self")).unwrap().point, Path::new("/proc"));
    }
}
