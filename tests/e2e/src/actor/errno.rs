//! Names for numbers: errors by their errno name, flags of an open by words.

use rustix::fs::OFlags;
use rustix::io::Errno;

/// `ENOENT` and the like; `E<number>` for what no test speaks of.
pub fn name(errno: Errno) -> String {
    let known = NAMES.iter().find(|(value, _)| *value == errno);
    known.map_or_else(|| format!("E{}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}

/// The same for an error of the standard library.
pub fn name_of(error: &std::io::Error) -> String {
    Errno::from_io_error(error).map_or_else(|| format!("({error})"), name)
}

/// Words joined by `+`: one of `r w rw path`, then any of the rest.
///
/// # Errors
/// Names the word that is none of them.
pub fn open_flags(words: &str) -> Result<OFlags, String> {
    words.split('+').try_fold(OFlags::CLOEXEC, |flags, word| {
        let flag = match word {
            "r" => OFlags::RDONLY,
            "w" => OFlags::WRONLY,
            "rw" => OFlags::RDWR,
            "path" => OFlags::PATH,
            "creat" => OFlags::CREATE,
            "excl" => OFlags::EXCL,
            "trunc" => OFlags::TRUNC,
            "append" => OFlags::APPEND,
            "direct" => OFlags::DIRECT,
            "sync" => OFlags::SYNC,
            "nofollow" => OFlags::NOFOLLOW,
            "directory" => OFlags::DIRECTORY,
            _ => return Err(format!("no flag of open(2): {word}")),
        };
        Ok(flags | flag)
    })
}

const NAMES: &[(Errno, &str)] = &[
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::INTR, "EINTR"),
    (Errno::IO, "EIO"),
    (Errno::NXIO, "ENXIO"),
    (Errno::BADF, "EBADF"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::XDEV, "EXDEV"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::TXTBSY, "ETXTBSY"),
    (Errno::FBIG, "EFBIG"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::ROFS, "EROFS"),
    (Errno::MLINK, "EMLINK"),
    (Errno::RANGE, "ERANGE"),
    (Errno::DEADLK, "EDEADLK"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NOLCK, "ENOLCK"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::LOOP, "ELOOP"),
    (Errno::NODATA, "ENODATA"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::CONNREFUSED, "ECONNREFUSED"),
    (Errno::CONNABORTED, "ECONNABORTED"),
    (Errno::NOTCONN, "ENOTCONN"),
    (Errno::TIMEDOUT, "ETIMEDOUT"),
    (Errno::STALE, "ESTALE"),
    (Errno::DQUOT, "EDQUOT"),
];
