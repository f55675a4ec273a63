//! FUSE: the device, passthrough by a real try, the helper for users, request sizes.

use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;

use super::{Check, Health, read};
use crate::config::Environment;

/// Pages of one request for 1 MiB.
const PAGES_WANTED: u64 = 256;

pub(super) fn checks(environment: &Environment) -> Vec<Check> {
    let mut checks = vec![device(environment)];
    if checks[0].health == Health::Ok {
        checks.push(passthrough(environment));
    }
    if !environment.is_privileged {
        checks.push(helper(environment));
        checks.push(allow_other());
    }
    checks.push(request_size());
    checks
}

fn device(environment: &Environment) -> Check {
    let error = match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => return Check::ok("/dev/fuse", "can be opened"),
        Err(error) => error,
    };
    let todo = match error.kind() {
        io::ErrorKind::PermissionDenied if environment.uid != 0 => {
            "let all users open it, as udev does: chmod 666 /dev/fuse"
        }
        io::ErrorKind::PermissionDenied => {
            "allow the device to this container (--device /dev/fuse --cap-add SYS_ADMIN)"
        }
        _ => "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN",
    };
    Check::fail("/dev/fuse", error.to_string(), "the shared area cannot be mounted", todo)
}

fn passthrough(environment: &Environment) -> Check {
    let place = environment.tmpdir.clone().unwrap_or_else(|| PathBuf::from("/tmp"));
    let scratch = place.join(format!("hayase-doctor-{}", std::process::id()));
    let why = match crate::wiring::passthrough::try_out(environment.is_privileged, &scratch) {
        Ok(()) if environment.is_privileged => {
            return Check::ok("passthrough", "the kernel took a file to serve alone");
        }
        // With the capability alone, as setcap(8) gives it, areas are no images.
        Ok(()) => {
            "the servers count what users write to areas, so every write passes them".to_owned()
        }
        Err(why) => why,
    };
    Check::warn(
        "passthrough",
        why,
        "local files go through the daemon: slower, and with its CPU time",
        "Linux 6.9 or newer with CONFIG_FUSE_PASSTHROUGH, as root",
    )
}

fn helper(environment: &Environment) -> Check {
    match hayase_fuse::find_fusermount(&environment.path) {
        Some(path) => Check::ok("fusermount3", path.display().to_string()),
        None => Check::fail(
            "fusermount3",
            "not found",
            "users cannot mount",
            "install the package fuse3",
        ),
    }
}

fn allow_other() -> Check {
    let text = read("/etc/fuse.conf").unwrap_or_default();
    if text.lines().any(|line| line.trim() == "user_allow_other") {
        return Check::ok("user_allow_other", "set in /etc/fuse.conf");
    }
    Check::ok("user_allow_other", "not set: the areas are yours alone, which is all a job needs")
}

fn request_size() -> Check {
    let name = "fs.fuse.max_pages_limit";
    match read("/proc/sys/fs/fuse/max_pages_limit").and_then(|text| text.parse::<u64>().ok()) {
        Some(pages) if pages >= PAGES_WANTED => Check::ok(name, format!("{pages} pages")),
        Some(pages) => Check::warn(
            name,
            format!("{pages} pages"),
            "remote files are read and written in small pieces",
            "sysctl fs.fuse.max_pages_limit=256",
        ),
        None => Check::ok(name, "fixed in this kernel"),
    }
}
