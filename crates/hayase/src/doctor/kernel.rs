//! The kernel and our rights in it.

use super::Check;
use crate::config::Environment;
use crate::job::is_mapped;

/// Major and minor number of the running kernel.
pub(super) fn running() -> Option<(u32, u32)> {
    parse(&rustix::system::uname().release().to_string_lossy())
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn version() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let passthrough_todo = "use Linux 6.9 or newer for local files at the kernel's own speed";
    match running() {
        Some(version) if version >= (6, 9) => Check::ok("kernel", release),
        Some(version) if version >= (6, 6) => Check::warn(
            "kernel",
            release,
            "no FUSE passthrough: local files go through the daemon",
            passthrough_todo,
        ),
        Some(version) if version >= (4, 18) => Check::warn(
            "kernel",
            release,
            "no FUSE passthrough, and files that several nodes use cannot be mapped shared",
            passthrough_todo,
        ),
        _ => Check::fail(
            "kernel",
            release,
            "older than anything that is tested",
            "use Linux 4.18 or newer",
        ),
    }
}

pub(super) fn privilege(environment: &Environment) -> Check {
    if environment.is_privileged && is_mapped() {
        return Check::warn(
            "privilege",
            "root of a user namespace (a container without privileges)",
            "no passthrough, no images (sizes are counted)",
            "run as root of the machine where you may",
        );
    }
    if environment.is_privileged {
        return Check::ok("privilege", "root with CAP_SYS_ADMIN");
    }
    Check::warn(
        "privilege",
        format!("user {} without CAP_SYS_ADMIN", environment.uid),
        "no passthrough, no images (sizes are counted), no namespaces for simulated nodes",
        "run as root where you may",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_read() {
        assert_eq!(parse("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(parse("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(parse("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(parse("unknown"), None);
        assert!(running().is_some());
    }
}
