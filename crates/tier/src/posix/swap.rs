//! A name that changes only while the expected version stands there: compare and swap.
//!
//! `renameat2(RENAME_EXCHANGE)` puts a new version in the place of whatever stands under a name, and moves that to the
//! name of the new one, in one step. What came out is then compared: another version than the expected one is
//! somebody else's, who renamed it there between look and switch, and goes back. For that moment the new version is seen
//! under the name.
//!
//! Invariant: a version that nobody expected is never removed. The name under which a version comes out says, before
//! it does, which two files may be removed there: the new version and the expected one. Whoever finds another file
//! under it after a kill ([`super::names::sweep`]) gives it a name that people see ([`rescue`]).
//!
//! What this can not see is a program that holds the replaced file open and writes into it later: its bytes go with
//! the file, as they do whenever a name is replaced.
//!
//! Source: rename(2), RENAME_EXCHANGE and RENAME_NOREPLACE.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::no_replace::{is_taken, rename_no_replace};
use super::{again, meta};
use crate::temporary::with_temporary_name;

/// Exchanges of one commit, each because somebody else renamed a version over the name meanwhile.
const EXCHANGES_MAX: u32 = 10_000;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swapped {
    Done,
    /// Another version stood there, or none, and still does.
    Other,
    /// This file system has no such call; nothing was changed.
    Unsupported,
}

/// The version that is expected under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds. Not the time of change, which a rename sets.
    mtime: (i64, u64),
}

impl Version {
    fn of(stat: &Stat) -> Self {
        let mtime = (stat.st_mtime, stat.st_mtime_nsec);
        Self { inode: stat.st_ino, size: stat.st_size.unsigned_abs(), mtime }
    }
}

/// A name under which a version comes out, and what may be removed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Inode of the new version; 0 where the name is to become free.
    new: u64,
    expected: Version,
}

impl Exchange {
    /// Of the inode `new` for the version `expected`.
    pub(super) fn new(new: u64, expected: &Held) -> Self {
        Self { new, expected: expected.version }
    }

    /// A name that begins with `prefix`, as those of unfinished uploads do.
    pub(super) fn name(&self, prefix: &[u8]) -> Vec<u8> {
        let Self { new, expected: Version { inode, size, mtime: (seconds, nanos) } } = self;
        let record = format!(".{new:x}.{inode:x}.{size:x}.{seconds:x}.{nanos:x}");
        [prefix, record.as_bytes()].concat()
    }

    /// `None` for the name of an upload that replaces nothing yet.
    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(name).ok()?.rsplitn(6, '.');
        let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
        let (nanos, seconds, size) = (number()?, number()?, number()?);
        let (inode, new) = (number()?, number()?);
        // The rest ends with the 16 digits of every such name.
        let random = fields.next()?.rsplit(['.', '-']).next()?;
        let is_ours = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        let expected = Version { inode, size, mtime: (seconds.cast_signed(), nanos) };
        is_ours.then_some(Self { new, expected })
    }

    /// The file that is found under the name is nobody else's.
    pub(super) fn may_remove(&self, found: &Stat) -> bool {
        found.st_ino == self.new || Version::of(found) == self.expected
    }
}

/// Gives `new`, a name in `directory`, the name `name` of `target` (a directory and a name in it) if the version
/// `expected` (an identity) has that. `new` becomes the name of what is to be removed then, also on failure. Five calls
/// more than rename(2), of which one is a rename, and the removal of what came out.
pub(super) fn swap(
    (directory, new): (impl AsFd, &mut Vec<u8>),
    target: (BorrowedFd<'_>, &[u8]),
    expected: u64,
) -> rustix::io::Result<Swapped> {
    let Some(expected) = look(target.0, target.1, expected)? else { return Ok(Swapped::Other) };
    let own = fs::statat(&directory, new.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
    let exchange = Exchange::new(own, &expected);
    rename_to(&directory, new, exchange.name(new))?;
    match exchanged((&directory, new), target) {
        Ok(found) if found == expected.version => return Ok(Swapped::Done),
        Ok(_) => put_back((&directory, new), target, own)?,
        // One of the two is gone: the name, unless a sweep has taken the new version for an old one.
        Err(Errno::NOENT) => {
            fs::statat(&directory, new.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        // Not every file system has it, and not every one says so in the same way.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return Ok(Swapped::Unsupported),
        Err(errno) => return Err(errno),
    }
    Ok(Swapped::Other)
}

/// Removes `name` if the version `expected` has it; on any file system. For a moment nothing has the name.
pub(super) fn remove(
    directory: impl AsFd,
    prefix: &[u8],
    name: &[u8],
    expected: u64,
) -> rustix::io::Result<Swapped> {
    match look(&directory, name, expected)? {
        Some(expected) => remove_held(directory, prefix, name, &expected),
        None => Ok(Swapped::Other),
    }
}

/// The same of a version that was looked at before.
pub(super) fn remove_held(
    directory: impl AsFd,
    prefix: &[u8],
    name: &[u8],
    expected: &Held,
) -> rustix::io::Result<Swapped> {
    let exchange = Exchange::new(0, expected);
    // No link and unlink, which would remove what comes to the name in between; nobody else has such a name.
    let take_out = |random: &[u8]| {
        let out = exchange.name(random);
        fs::renameat(&directory, name, &directory, out.as_slice()).map(|()| out)
    };
    let out = match with_temporary_name(prefix, take_out, |_| false) {
        Ok((_, out)) => out,
        Err(Errno::NOENT) => return Ok(Swapped::Other),
        Err(errno) => return Err(errno),
    };
    let found = fs::statat(&directory, out.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
    if Version::of(&found) == expected.version {
        fs::unlinkat(&directory, out.as_slice(), AtFlags::empty())?;
        return Ok(Swapped::Done);
    }
    match rename_no_replace((&directory, &out), (&directory, name)) {
        // Somebody has made it once more meanwhile.
        Err(Errno::EXIST) => rescue(&directory, &out).map(drop)?,
        answer => answer?,
    }
    Ok(Swapped::Other)
}

/// A version as it was found, held so that no other file gets its inode number.
pub(super) struct Held {
    version: Version,
    file: OwnedFd,
}

impl Held {
    /// As it is now, whatever names it has.
    pub(super) fn stat(&self) -> rustix::io::Result<Stat> {
        fs::fstat(&self.file)
    }

    /// Whether `found` is this version.
    pub(super) fn is(&self, found: &Stat) -> bool {
        Version::of(found) == self.version
    }
}

/// `None` when `name` is no file, or has another version than `identity`.
pub(super) fn look(
    directory: impl AsFd,
    name: &[u8],
    identity: u64,
) -> rustix::io::Result<Option<Held>> {
    let file = match hold(&directory, name) {
        Err(Errno::NOENT) => return Ok(None),
        answer => answer?,
    };
    let stat = fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_expected = is_file && meta(&stat).identity == identity;
    Ok(is_expected.then(|| Held { version: Version::of(&stat), file }))
}

fn rename_to(directory: impl AsFd, from: &mut Vec<u8>, to: Vec<u8>) -> rustix::io::Result<()> {
    fs::renameat(&directory, from.as_slice(), &directory, to.as_slice())?;
    *from = to;
    Ok(())
}

/// Exchanges two names; answers what came out under the first one.
fn exchanged(
    (directory, out): (impl AsFd, &[u8]),
    (target, name): (impl AsFd, &[u8]),
) -> rustix::io::Result<Version> {
    fs::renameat_with(&directory, out, &target, name, RenameFlags::EXCHANGE)?;
    fs::statat(&directory, out, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Version::of(&stat))
}

/// Puts what came out at `out` back to `name`, which shows the file `placed` now. When another one comes out there,
/// somebody has renamed it there since, so that it is newer than what was just put back, and goes there in its turn.
/// What is left at `out` is the new version, or one that somebody else has replaced.
fn put_back(
    (directory, out): (impl AsFd, &[u8]),
    target: (BorrowedFd<'_>, &[u8]),
    mut placed: u64,
) -> rustix::io::Result<()> {
    // Held, so that no file that is made meanwhile gets the inode number of one that was placed.
    let mut held = hold(&directory, out)?;
    let mut _placed;
    for round in 0..EXCHANGES_MAX {
        match exchanged((&directory, out), target) {
            Ok(found) if found.inode != placed => {
                placed = fs::fstat(&held)?.st_ino;
                _placed = std::mem::replace(&mut held, hold(&directory, out)?);
            }
            Ok(_) if round == 0 => return Ok(()),
            Ok(_) => return fs::unlinkat(&directory, out, AtFlags::empty()),
            // Somebody removed the name meanwhile, and could not know what had it.
            Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno),
        }
    }
    rescue(&directory, out).map(drop)
}

/// As long as the answer lives, no other file has the inode number of this one.
fn hold(directory: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    again(|| fs::openat(&directory, name, flags, Mode::empty()))
}

/// Removes what a commit has left under `name`, unless it is somebody else's.
pub(super) fn discard(directory: impl AsFd, name: &[u8]) {
    let is_ours = Exchange::of_name(name).is_none_or(|exchange| {
        let found = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| exchange.may_remove(&found))
    });
    if is_ours {
        // What can not be removed now is hidden from listings and left to the sweep.
        let _ = fs::unlinkat(&directory, name, AtFlags::empty());
    }
}

/// Whether the file system of `directory` exchanges names, and gives a file a second one ([`super::renamed`]), tried on
/// two files that are removed again.
pub(super) fn is_had(directory: impl AsFd, prefix: &[u8]) -> bool {
    let make = |name: &[u8]| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        again(|| fs::openat(&directory, name, flags, Mode::from_raw_mode(0o600)))
    };
    let names = [(); 2].map(|()| with_temporary_name(prefix, make, is_taken).ok());
    let is_had = match &names {
        [Some((one, _)), Some((other, _))] => {
            let (one, other) = (one.as_slice(), other.as_slice());
            let link = || fs::linkat(&directory, one, &directory, other, AtFlags::empty());
            exchanged((&directory, one), (&directory, other)).is_ok()
                && fs::unlinkat(&directory, other, AtFlags::empty()).and_then(|()| link()).is_ok()
        }
        _ => false,
    };
    for (name, _) in names.iter().flatten() {
        let _ = fs::unlinkat(&directory, name.as_slice(), AtFlags::empty());
    }
    is_had
}

/// Gives what lies under the name `out` and is somebody else's a name that a listing shows.
pub(super) fn rescue(directory: impl AsFd, out: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let inode = fs::statat(&directory, out, AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
    let mut number = 1_u32;
    loop {
        let name = match number {
            1 => format!("rescued.hayase-conflict-{inode:x}"),
            _ => format!("rescued.hayase-conflict-{inode:x}-{number}"),
        };
        match rename_no_replace((&directory, out), (&directory, name.as_bytes())) {
            Err(Errno::EXIST) => number += 1,
            answer => {
                answer?;
                tracing::warn!(%name, "a version of somebody else was found where one was replaced: it is kept");
                return Ok(name.into_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant, SystemTime};

    use super::*;
    use crate::{Attributes, Key, Posix, Precondition, Tier, TierError};

    /// Renames of the program that knows nothing of us, unless `HAYASE_SWAP_VERSIONS` says how many.
    const USUAL: u64 = 20_000;

    fn versions() -> u64 {
        std::env::var("HAYASE_SWAP_VERSIONS").ok().map_or(USUAL, |text| text.parse().unwrap())
    }

    fn directory(path: &Path) -> OwnedFd {
        fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn stat(path: impl AsRef<Path>) -> Stat {
        fs::stat(path.as_ref()).unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let names = std::fs::read_dir(path).unwrap();
        let mut names: Vec<_> =
            names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_name_says_what_may_be_removed_there() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("f"), "twelve bytes").unwrap();
        let found = stat(top.path().join("f"));
        for prefix in
            [".hayase-partial-", ".hayase-staged-", ".hayase-partial-job-1.0123456789abcdef."]
        {
            let random = [prefix.as_bytes(), b"fedcba9876543210"].concat();
            assert_eq!(Exchange::of_name(&random), None, "an upload that replaces nothing yet");
            for mtime in [(found.st_mtime, found.st_mtime_nsec), (-1, 999_999_999)] {
                let expected = Version { mtime, ..Version::of(&found) };
                let exchange = Exchange { new: 7, expected };
                let name = exchange.name(&random);
                assert!(name.len() <= crate::key::COMPONENT_BYTES_MAX && name.starts_with(&random));
                assert_eq!(Exchange::of_name(&name), Some(exchange));
                let is_expected = mtime.0 != -1;
                assert_eq!(exchange.may_remove(&found), is_expected);
            }
            let own = Exchange {
                new: found.st_ino,
                expected: Version { inode: 1, size: 0, mtime: (0, 0) },
            };
            assert!(own.may_remove(&found));
        }
        let journal = format!(".hayase-partial-journal-{:032x}", 7);
        for other in [journal.as_str(), "a.1.2.3.4.5", ".hayase-partial-0123456789abcdef.x.1.2.3.4"]
        {
            assert_eq!(Exchange::of_name(other.as_bytes()), None, "{other}");
        }
        let most = Version { inode: u64::MAX, size: u64::MAX, mtime: (i64::MIN, 999_999_999) };
        let owner = format!(".hayase-partial-{}.{:016x}.{:016x}", "o".repeat(96), 1, 2);
        let longest = Exchange { new: u64::MAX, expected: most }.name(owner.as_bytes());
        assert!(longest.len() <= crate::key::COMPONENT_BYTES_MAX, "{}", longest.len());
        assert!(Exchange::of_name(&longest).is_some());
    }

    /// As a process leaves it that was killed between the exchange and the look.
    #[test]
    fn what_a_kill_left_is_removed_only_if_it_is_ours() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        let left = |new: u64, expected: &Stat, bytes: &str| {
            let exchange = Exchange { new, expected: Version::of(expected) };
            let name = exchange.name(b".hayase-partial-0123456789abcdef");
            let name = String::from_utf8(name).unwrap();
            std::fs::write(path("made"), bytes).unwrap();
            (name, stat(path("made")))
        };
        std::fs::write(path("f"), "new").unwrap();
        std::fs::write(path("gone"), "gone").unwrap();
        let gone = stat(path("gone"));
        let tier = Posix::attach(top.path()).unwrap();
        let later = SystemTime::now() + Duration::from_secs(60);
        // The new version, before the exchange.
        let (_, made) = left(1, &gone, "new");
        let (name, _) = left(made.st_ino, &gone, "new");
        std::fs::rename(path("made"), path(&name)).unwrap();
        assert_eq!(tier.sweep(b"", later).unwrap(), 1);
        // The version that was expected.
        let (_, made) = left(1, &gone, "expected");
        let (name, _) = left(1, &made, "expected");
        std::fs::rename(path("made"), path(&name)).unwrap();
        // Written again by `left`: the same file with another time.
        let again = std::fs::File::options().write(true).open(path(&name)).unwrap();
        let mtime = Duration::new(made.st_mtime.unsigned_abs(), made.st_mtime_nsec as u32);
        again.set_modified(SystemTime::UNIX_EPOCH + mtime).unwrap();
        assert_eq!(tier.sweep(b"", later).unwrap(), 1);
        assert_eq!(names(top.path()), ["f", "gone"]);
        // Somebody else's.
        let (name, theirs) = left(1, &gone, "theirs");
        std::fs::rename(path("made"), path(&name)).unwrap();
        assert_eq!(tier.sweep(b"", SystemTime::UNIX_EPOCH).unwrap(), 0);
        assert!(path(&name).exists(), "a process may be at it");
        assert_eq!(tier.sweep(b"", later).unwrap(), 0);
        let rescued = format!("rescued.hayase-conflict-{:x}", theirs.st_ino);
        assert_eq!(names(top.path()), ["f", "gone", &rescued]);
        assert_eq!(std::fs::read(path(&rescued)).unwrap(), b"theirs");
    }

    #[test]
    fn what_came_out_goes_back_and_what_came_meanwhile_stays() {
        let top = tempfile::tempdir().unwrap();
        let at = directory(top.path());
        let path = |name: &str| top.path().join(name);
        let write = |name: &str| std::fs::write(path(name), name).unwrap();
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        // `new` is in the place of `theirs`, which nobody expected.
        let put = || {
            write("theirs");
            write("new");
            std::fs::rename(path("new"), path("f")).unwrap();
            stat(path("f")).st_ino
        };
        let new = put();
        put_back((&at, b"theirs"), (at.as_fd(), b"f"), new).unwrap();
        assert_eq!((read("f"), read("theirs")), ("theirs".into(), "new".into()));
        // A newer one of theirs came to the name before that.
        let new = put();
        write("newer");
        std::fs::rename(path("newer"), path("f")).unwrap();
        put_back((&at, b"theirs"), (at.as_fd(), b"f"), new).unwrap();
        assert_eq!((read("f"), path("theirs").exists()), ("newer".into(), false));
        // Somebody removed the name.
        let new = put();
        std::fs::remove_file(path("f")).unwrap();
        let inode = stat(path("theirs")).st_ino;
        put_back((&at, b"theirs"), (at.as_fd(), b"f"), new).unwrap();
        assert_eq!(read(&format!("rescued.hayase-conflict-{inode:x}")), "theirs");
        assert!(!path("f").exists() && !path("theirs").exists());
    }

    /// The other program looks after each of its renames whether its version is there, or was replaced by who had seen it.
    #[test]
    fn a_program_that_renames_loses_nothing() {
        // Memory: twenty thousand renames take a disk long.
        let top = tempfile::tempdir_in("/dev/shm").unwrap();
        let tier = Posix::attach_passing(top.path()).unwrap();
        let key = Key::new("f").unwrap();
        std::fs::write(top.path().join("f"), "theirs 0").unwrap();
        let (done, replaced, refused) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let ours = || {
            while done.load(Ordering::Relaxed) == 0 {
                let reader = tier.open(&key).unwrap();
                let mut seen = vec![0; 64];
                let count = reader.read_at(0, &mut seen).unwrap();
                let version = std::str::from_utf8(&seen[..count])
                    .unwrap()
                    .rsplit(' ')
                    .next()
                    .unwrap()
                    .to_owned();
                let mut upload = tier.begin(&key, Attributes::default()).unwrap();
                upload.write_at(0, format!("ours, over {version}").as_bytes()).unwrap();
                match upload.commit(Precondition::Matches(reader.meta().identity)) {
                    Ok(_) => replaced.fetch_add(1, Ordering::Relaxed),
                    Err(TierError::Changed { .. }) => refused.fetch_add(1, Ordering::Relaxed),
                    Err(error) => panic!("{error}"),
                };
            }
        };
        let theirs = || {
            let (temporary, name) = (top.path().join("theirs"), top.path().join("f"));
            for version in 1..=versions() {
                std::fs::write(&temporary, format!("theirs {version}")).unwrap();
                std::fs::rename(&temporary, &name).unwrap();
                let fine = [format!("theirs {version}"), format!("ours, over {version}")];
                let start = Instant::now();
                while !fine.contains(&std::fs::read_to_string(&name).unwrap()) {
                    let late = start.elapsed() > Duration::from_secs(60);
                    assert!(
                        !late,
                        "version {version} is lost: {:?}",
                        std::fs::read_to_string(&name)
                    );
                }
            }
        };
        std::thread::scope(|scope| {
            let ours = scope.spawn(ours);
            let theirs = scope.spawn(theirs).join();
            done.store(1, Ordering::Relaxed);
            ours.join().unwrap();
            theirs.unwrap();
        });
        let (replaced, refused) = (replaced.into_inner(), refused.into_inner());
        assert!(replaced > 0 && refused > 0, "no race: {replaced} replaced, {refused} refused");
        assert_eq!(names(top.path()), ["f"], "nothing is left, and nothing was put aside");
    }
}
