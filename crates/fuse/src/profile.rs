//! Kernels: what a session asks for, and what an older kernel would not have offered.

use fuser::InitFlags;
use hayase_layout::ByteCount;

use crate::limits::{REQUEST_BYTES, SMALL_REQUEST_BYTES};

/// The kernel checks access control lists. The umask goes with them: where a directory has a default list, that counts
/// instead, which only we know. So one is never asked for without the other.
pub(crate) const ACLS: InitFlags = InitFlags::FUSE_POSIX_ACL.union(InitFlags::FUSE_DONT_MASK);

/// A kernel to be like. Features that it lacks are not asked for, so that the ways around them
/// can be tested, and used where a feature misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelProfile {
    /// Everything that the running kernel offers.
    #[default]
    Native,
    /// No KILLPRIV_V2, no requests above 128 KiB, and what 6.1 lacks.
    V4_18,
    /// No mmap on direct files, and what 6.6 lacks.
    V6_1,
    /// No passthrough.
    V6_6,
    /// As native.
    V6_9,
}

impl KernelProfile {
    /// What a session asks for of what a kernel offers.
    ///
    /// Where files are not passed through, one that this node alone has open is written through the page cache. The kernel
    /// drops the pages under a direct write when that has ended, but not when it is one that it did not wait for
    /// (libaio, io_uring): a page that somebody read meanwhile would stay as it was. So there it waits for each.
    pub(crate) fn asks(self, offered: InitFlags) -> InitFlags {
        let mut asked = self.wanted() & offered;
        asked.set(InitFlags::FUSE_ASYNC_DIO, asked.contains(InitFlags::FUSE_PASSTHROUGH));
        if !asked.contains(ACLS) {
            asked.remove(ACLS);
        }
        asked & offered
    }

    /// What a session may ask for.
    fn wanted(self) -> InitFlags {
        let mut wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_POSIX_LOCKS
            | InitFlags::FUSE_FLOCK_LOCKS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_ASYNC_DIO
            | ACLS;
        if self != Self::V4_18 {
            wanted |= InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        }
        if !matches!(self, Self::V4_18 | Self::V6_1) {
            wanted |= InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        }
        if matches!(self, Self::Native | Self::V6_9) {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
        }
        wanted
    }

    /// Largest read and write.
    pub(crate) fn request_bytes(self) -> ByteCount {
        if self == Self::V4_18 { SMALL_REQUEST_BYTES } else { REQUEST_BYTES }
    }
}

impl std::str::FromStr for KernelProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "native" => Ok(Self::Native),
            "4.18" => Ok(Self::V4_18),
            "6.1" => Ok(Self::V6_1),
            "6.6" => Ok(Self::V6_6),
            "6.9" => Ok(Self::V6_9),
            _ => Err("expected native, 4.18, 6.1, 6.6 or 6.9".to_owned()),
        }
    }
}

impl std::fmt::Display for KernelProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::V4_18 => "4.18",
            Self::V6_1 => "6.1",
            Self::V6_6 => "6.6",
            Self::V6_9 => "6.9",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_lacks_what_its_kernel_lacks() {
        use InitFlags as F;
        let check = |text: &str, passthrough, mmap, killpriv, request: ByteCount| {
            let profile: KernelProfile = text.parse().unwrap();
            let wanted = profile.wanted();
            assert_eq!(wanted.contains(F::FUSE_PASSTHROUGH), passthrough, "{text}");
            let all = F::all();
            assert_eq!(profile.asks(all).contains(F::FUSE_ASYNC_DIO), passthrough, "{text}");
            let old = all.difference(F::FUSE_PASSTHROUGH);
            assert!(!profile.asks(old).contains(F::FUSE_ASYNC_DIO), "{text} on an older kernel");
            assert!(profile.asks(F::FUSE_PASSTHROUGH).difference(F::FUSE_PASSTHROUGH).is_empty());
            assert_eq!(wanted.contains(F::FUSE_DIRECT_IO_ALLOW_MMAP), mmap, "{text}");
            assert_eq!(wanted.contains(F::FUSE_HANDLE_KILLPRIV_V2), killpriv, "{text}");
            assert_eq!(profile.request_bytes(), request, "{text}");
            assert_eq!(profile.to_string(), text);
            assert!(profile.asks(all).contains(ACLS), "{text}");
            for one in [F::FUSE_POSIX_ACL, F::FUSE_DONT_MASK] {
                let without = profile.asks(all.difference(one));
                assert!(!without.intersects(ACLS), "{text}: the umask goes with the lists");
            }
            assert!(!wanted.intersects(F::FUSE_WRITEBACK_CACHE | F::FUSE_NO_OPEN_SUPPORT));
        };
        check("native", true, true, true, ByteCount::mib(1));
        check("6.9", true, true, true, ByteCount::mib(1));
        check("6.6", false, true, true, ByteCount::mib(1));
        check("6.1", false, false, true, ByteCount::mib(1));
        check("4.18", false, false, false, ByteCount::kib(128));
        assert!("5.4".parse::<KernelProfile>().is_err());
    }
}
