//! Refusals: errno values by their names, and replies that are a refusal or of the wrong shape.

use hayase_wire::message::{Name, PeerReply, Refused};

/// What a request between servers is answered.
pub(crate) type Answer = Result<PeerReply, Refused>;

/// Turns a refusal into the error it is.
pub(crate) fn refusal(reply: PeerReply) -> Result<PeerReply, Refused> {
    match reply {
        PeerReply::Refused(refused) => Err(refused),
        other => Ok(other),
    }
}

/// A reply of the wrong shape: a defect, told as `EIO` rather than by a panic.
pub(crate) fn unexpected(reply: &PeerReply) -> Refused {
    tracing::error!(?reply, "a server answered something else than was asked");
    Refused::because(libc_errno::EIO, "a server answered something else than was asked")
}

/// What was gathered is not written any more: the mount tells who wrote it.
pub(crate) fn too_late() -> Refused {
    let why = "others were let at this file when its mount did not answer";
    Refused::because(libc_errno::ESTALE, why)
}

/// Each write is to be sent at once.
pub(crate) fn not_now() -> Refused {
    Refused::because(libc_errno::EAGAIN, "others may look at this file")
}

/// Names that a path may hold; the kernel checks too, other clients may not.
pub(crate) fn check_name(name: &Name) -> Result<(), Refused> {
    match name.as_slice() {
        [] | b"." | b".." => Err(Refused::new(libc_errno::EINVAL)),
        name if name.len() > 255 => Err(Refused::new(libc_errno::ENAMETOOLONG)),
        name if name.contains(&b'/') || name.contains(&0) => Err(Refused::new(libc_errno::EINVAL)),
        _ => Ok(()),
    }
}

/// Errno values by their names.
pub(crate) mod libc_errno {
    use rustix::io::Errno;

    macro_rules! errnos {
        ($($name:ident = $errno:ident),* $(,)?) => {
            $(pub(crate) const $name: i32 = Errno::$errno.raw_os_error();)*
        };
    }
    errnos! {
        EIO = IO, EINVAL = INVAL, ENAMETOOLONG = NAMETOOLONG, ENOENT = NOENT, EEXIST = EXIST,
        ENOTDIR = NOTDIR, EISDIR = ISDIR, ENOTEMPTY = NOTEMPTY, ESTALE = STALE, ENOSPC = NOSPC,
        EOPNOTSUPP = OPNOTSUPP, ENXIO = NXIO, EPROTO = PROTO, EBUSY = BUSY,
        EBADF = BADF, EXDEV = XDEV, EAGAIN = AGAIN, EDEADLK = DEADLK, ENOLCK = NOLCK, EFBIG = FBIG, ENODATA = NODATA, EPERM = PERM, EDQUOT = DQUOT,
        ERANGE = RANGE, E2BIG = TOOBIG, EALREADY = ALREADY,
    }
}
