//! Gfarm's errors, sorted into what a caller can branch on and a person can act on.
//!
//! Source: `gfarm/error.h`, whose numbers are kept for ever (new ones come at its end).

use std::io;

use super::library::{Failure, NotLoaded, VERSION_MIN};
use crate::{Action, TierError};

/// Numbers of `enum gfarm_errcode`.
pub(super) mod code {
    pub(crate) const NOT_PERMITTED: i32 = 1;
    pub(crate) const NO_SUCH_NAME: i32 = 2;
    pub(crate) const BAD_DESCRIPTOR: i32 = 9;
    pub(crate) const TRY_AGAIN: i32 = 11;
    pub(crate) const DENIED: i32 = 13;
    pub(crate) const EXISTS: i32 = 17;
    pub(crate) const NOT_A_DIRECTORY: i32 = 20;
    pub(crate) const IS_A_DIRECTORY: i32 = 21;
    pub(crate) const NO_SPACE: i32 = 28;
    pub(crate) const READ_ONLY: i32 = 30;
    pub(crate) const BROKEN_PIPE: i32 = 32;
    pub(crate) const NOT_EMPTY: i32 = 38;
    pub(crate) const NOT_IMPLEMENTED: i32 = 40;
    pub(crate) const IN_PROGRESS: i32 = 42;
    pub(crate) const NOT_SUPPORTED: i32 = 49;
    pub(crate) const NETWORK_DOWN: i32 = 53;
    pub(crate) const NETWORK_UNREACHABLE: i32 = 54;
    pub(crate) const TIMED_OUT: i32 = 60;
    pub(crate) const REFUSED: i32 = 61;
    pub(crate) const NO_ROUTE: i32 = 62;
    pub(crate) const LINKS: i32 = 63;
    pub(crate) const QUOTA: i32 = 64;
    pub(crate) const STALE: i32 = 65;
    pub(crate) const AUTHENTICATION: i32 = 69;
    pub(crate) const EXPIRED: i32 = 70;
    pub(crate) const PROTOCOL: i32 = 71;
    pub(crate) const UNKNOWN_HOST: i32 = 72;
    pub(crate) const NO_SUCH_OBJECT: i32 = 74;
    pub(crate) const UNEXPECTED_END: i32 = 76;
    pub(crate) const MIGRATED: i32 = 79;
    pub(crate) const NOT_A_LINK: i32 = 80;
    pub(crate) const IS_A_LINK: i32 = 81;
    pub(crate) const NO_SUCH_USER: i32 = 84;
    pub(crate) const NOT_A_FILE: i32 = 92;
    pub(crate) const IS_A_FILE: i32 = 93;
    pub(crate) const DATABASE_BUSY: i32 = 96;
    pub(crate) const FAILED_OVER: i32 = 98;
    pub(crate) const CHECKSUM: i32 = 102;
    pub(crate) const CREDENTIAL: i32 = 104;
    pub(crate) const NO_HOST: i32 = 105;
    /// First of the library's own: wrong settings, keys that can not be read.
    pub(crate) const OF_THE_LIBRARY: i32 = 4096;
}

pub(super) const IS_DIRECTORY: &str = "it is a directory";
pub(super) const IS_LINK: &str = "it is a symbolic link, and links are not followed";
pub(super) const FILE_ON_THE_WAY: &str = "a parent is not a directory";
pub(super) const LINK_ON_THE_WAY: &str =
    "a name on the way is a symbolic link, and links are not followed";
pub(super) const NO_LINK: &str = "it is not a symbolic link";

/// What a failed call means for the caller of a tier.
pub(super) fn sorted(failure: &Failure, action: Action, path: String) -> TierError {
    use code::*;
    let source = |kind| io::Error::new(kind, failure.text.clone());
    let no_object = |what| TierError::NotObject { action, path: path.clone(), what };
    match failure.code {
        NO_SUCH_NAME => TierError::Missing { action, path },
        EXISTS => TierError::Exists { action, path },
        NO_SPACE => TierError::Full { action, path },
        QUOTA => TierError::Quota { action, path },
        NOT_EMPTY => no_object("it is not empty"),
        IS_A_DIRECTORY => no_object(IS_DIRECTORY),
        NOT_A_DIRECTORY | IS_A_FILE => no_object(FILE_ON_THE_WAY),
        LINKS | IS_A_LINK => no_object(IS_LINK),
        NOT_A_LINK => no_object(NO_LINK),
        NOT_A_FILE => no_object("it is not a regular file"),
        NOT_PERMITTED | DENIED | READ_ONLY => {
            TierError::Denied { action, path, source: source(io::ErrorKind::PermissionDenied) }
        }
        NOT_IMPLEMENTED | NOT_SUPPORTED => TierError::Unsupported { action, path },
        CHECKSUM => TierError::Corrupt { action, path, what: failure.text.clone() },
        AUTHENTICATION | EXPIRED | CREDENTIAL | NO_SUCH_USER => TierError::Refused {
            action,
            path,
            what: format!("Gfarm rejects the user ({})", failure.text),
            help: "look at the key or certificate with which `gfls /` works (`gfkey -e` tells how long a shared key lasts), and at the user map",
        },
        code if is_out_of_reach(code) => {
            TierError::Unavailable { action, path, source: source(io::ErrorKind::NotConnected) }
        }
        OF_THE_LIBRARY.. => TierError::Refused {
            action,
            path,
            what: format!("libgfarm refuses ({})", failure.text),
            help: "look at Gfarm's settings: `GFARM_CONFIG_FILE`, `~/.gfarm2rc`, `gfarm2.conf`; `gfls /` must work",
        },
        _ => TierError::Io { action, path, source: source(io::ErrorKind::Other) },
    }
}

/// A server does not answer, was started anew, or knows nothing of our open file any more.
pub(super) fn is_out_of_reach(number: i32) -> bool {
    use code::*;
    matches!(
        number,
        BAD_DESCRIPTOR | TRY_AGAIN | BROKEN_PIPE | NETWORK_DOWN
            ..=NO_ROUTE
                | STALE
                | PROTOCOL
                | UNKNOWN_HOST
                | NO_SUCH_OBJECT
                | UNEXPECTED_END
                | MIGRATED
                | DATABASE_BUSY
                | FAILED_OVER
                | NO_HOST
    )
}

/// Why there is no library, for whoever names a `gfarm:` URL.
pub(super) fn not_loaded(why: NotLoaded, path: String) -> TierError {
    let action = Action::Attach;
    let (a, b, c) = VERSION_MIN;
    let (what, help) = match why {
        NotLoaded::Absent(why) => (
            format!("cannot load libgfarm ({why})"),
            "install Gfarm's client library: on Debian and Ubuntu the package `libgfarm1`, elsewhere `gfarm-libs` or `gfarm-client`",
        ),
        NotLoaded::Lacks(name) => (
            format!(
                "libgfarm has no function `{name}`: it is older or newer than those known here"
            ),
            "install Gfarm 2.7.17 to 2.8",
        ),
        NotLoaded::Old((x, y, z)) => (
            format!("libgfarm is version {x}.{y}.{z}; {a}.{b}.{c} is the first that can be used"),
            "install a newer libgfarm; it works with older servers",
        ),
        NotLoaded::Refused(why) => (
            format!("libgfarm does not start ({why})"),
            "look at Gfarm's settings: `GFARM_CONFIG_FILE`, `~/.gfarm2rc`, `gfarm2.conf`; `gfls /` must work",
        ),
    };
    TierError::Refused { action, path, what, help }
}

/// What a failed call was to do: a host that is gone means something else to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Names and attributes.
    Names,
    /// An extended attribute: that is the object which Gfarm misses.
    Attribute,
    /// Bytes that are there.
    Bytes,
    /// New bytes, which any host may take.
    Room,
}

/// What the kernel is told of a failed call.
///
/// `ENOSPC` only when no host takes new bytes; bytes whose hosts are all gone are `EHOSTUNREACH`.
pub(super) fn errno(number: i32, aim: Aim) -> i32 {
    use code::*;
    match number {
        NOT_PERMITTED => libc::EPERM,
        NO_SUCH_NAME => libc::ENOENT,
        12 => libc::ENOMEM,
        DENIED => libc::EACCES,
        16 | 91 => libc::EBUSY,
        EXISTS => libc::EEXIST,
        18 => libc::EXDEV,
        NOT_A_DIRECTORY | IS_A_FILE => libc::ENOTDIR,
        IS_A_DIRECTORY => libc::EISDIR,
        22 | NO_SUCH_USER | 86 | NOT_A_LINK | NOT_A_FILE => libc::EINVAL,
        23 => libc::ENFILE,
        24 => libc::EMFILE,
        26 => libc::ETXTBSY,
        27 => libc::EFBIG,
        NO_SPACE | NO_HOST if aim == Aim::Room => libc::ENOSPC,
        NO_SPACE | NO_HOST | NETWORK_UNREACHABLE | REFUSED | NO_ROUTE | UNKNOWN_HOST => {
            libc::EHOSTUNREACH
        }
        READ_ONLY => libc::EROFS,
        31 => libc::EMLINK,
        34 => libc::ERANGE,
        37 => libc::ENAMETOOLONG,
        NOT_EMPTY => libc::ENOTEMPTY,
        NOT_IMPLEMENTED | NOT_SUPPORTED => libc::EOPNOTSUPP,
        TIMED_OUT => libc::ETIMEDOUT,
        LINKS | IS_A_LINK => libc::ELOOP,
        QUOTA => libc::EDQUOT,
        STALE => libc::ESTALE,
        AUTHENTICATION | EXPIRED | CREDENTIAL => libc::EACCES,
        NO_SUCH_OBJECT if aim == Aim::Attribute => libc::ENODATA,
        NO_SUCH_OBJECT if aim == Aim::Names => libc::ENOENT,
        NO_SUCH_OBJECT => libc::EHOSTUNREACH,
        _ => libc::EIO,
    }
}

/// The connection to a server broke: the same call on another connection may do.
pub(super) fn is_broken(number: i32) -> bool {
    use code::*;
    matches!(
        number,
        BAD_DESCRIPTOR | BROKEN_PIPE | 52 | NETWORK_DOWN
            ..=NO_ROUTE | PROTOCOL | UNEXPECTED_END | FAILED_OVER
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: i32, expected: &str, is_transient: bool) {
        let failure = Failure { code, text: "words".into() };
        let error = sorted(&failure, Action::Read, "gfarm:///a".into());
        assert_eq!(error.to_string(), format!("read gfarm:///a{expected}"));
        assert_eq!(error.is_transient(), is_transient, "{error}");
    }

    #[test]
    fn a_number_becomes_what_a_caller_can_branch_on() {
        check(code::NO_SUCH_NAME, ": no such object", false);
        check(code::NO_SPACE, ": no space left there", true);
        check(code::QUOTA, ": the quota there is used up", true);
        check(code::NO_HOST, ": the storage does not answer", true);
        check(61, ": the storage does not answer", true); // connection refused
        check(code::IS_A_LINK, ": it is a symbolic link, and links are not followed", false);
        check(code::AUTHENTICATION, ": Gfarm rejects the user (words)", false);
        check(code::OF_THE_LIBRARY + 3, ": libgfarm refuses (words)", false);
        check(5, "", false);
        check(-1, "", false);
    }

    #[test]
    fn a_number_becomes_what_the_kernel_understands() {
        let all = |number| {
            [Aim::Names, Aim::Attribute, Aim::Bytes, Aim::Room].map(|aim| errno(number, aim))
        };
        let gone = libc::EHOSTUNREACH;
        // No host: without room for new bytes, but with bytes that are out of reach.
        assert_eq!(all(code::NO_HOST), [gone, gone, gone, libc::ENOSPC]);
        assert_eq!(all(code::NO_SPACE), [gone, gone, gone, libc::ENOSPC]);
        assert_eq!(all(code::NO_SUCH_OBJECT), [libc::ENOENT, libc::ENODATA, gone, gone]);
        for (number, expected) in [
            (code::NO_SUCH_NAME, libc::ENOENT),
            (code::EXISTS, libc::EEXIST),
            (code::NOT_EMPTY, libc::ENOTEMPTY),
            (code::IS_A_DIRECTORY, libc::EISDIR),
            (code::NOT_A_DIRECTORY, libc::ENOTDIR),
            (code::TIMED_OUT, libc::ETIMEDOUT),
            (code::QUOTA, libc::EDQUOT),
            (code::UNEXPECTED_END, libc::EIO),
            (code::OF_THE_LIBRARY, libc::EIO),
        ] {
            assert_eq!(all(number), [expected; 4], "{number}");
        }
        assert!(is_broken(code::UNEXPECTED_END) && is_broken(code::REFUSED));
        assert!(!is_broken(code::NO_SUCH_NAME) && !is_broken(code::NO_HOST));
    }

    #[test]
    fn who_has_no_library_is_told_its_package() {
        let error = not_loaded(NotLoaded::Absent("no file".into()), "gfarm:///".into());
        assert!(error.to_string().contains("cannot load libgfarm (no file)"), "{error}");
        assert!(error.help().is_some_and(|help| help.contains("libgfarm1")));
        let error = not_loaded(NotLoaded::Old((2, 7, 3)), "gfarm:///".into());
        assert!(error.to_string().contains("version 2.7.3; 2.7.17 is the first"), "{error}");
    }
}
