//! Making areas: `mkfs.xfs`, loop devices, room.

use std::fs::OpenOptions;

use super::Check;
use crate::config::Environment;
use crate::job::is_mapped;
use crate::system::program;

const COUNTED: &str =
    "areas are directories and sizes are counted: no passthrough limit, no true df";

pub(super) fn checks(environment: &Environment) -> Vec<Check> {
    if !environment.is_privileged || is_mapped() {
        return Vec::new();
    }
    vec![
        tool("mkfs.xfs", "xfsprogs", environment),
        tool("losetup", "mount (util-linux)", environment),
        loop_control(),
        xfs(),
    ]
}

fn tool(name: &'static str, package: &str, environment: &Environment) -> Check {
    match program::find(name, &environment.path) {
        Some(path) => Check::ok(name, path.display().to_string()),
        None => {
            let todo = format!("install the package {package}, or use --no-image");
            Check::warn(name, "not found", COUNTED, &todo)
        }
    }
}

fn loop_control() -> Check {
    let name = "loop devices";
    match OpenOptions::new().read(true).write(true).open("/dev/loop-control") {
        Ok(_) => Check::ok(name, "/dev/loop-control can be opened"),
        Err(error) => Check::warn(
            name,
            error.to_string(),
            COUNTED,
            "load the module `loop`, or use --no-image",
        ),
    }
}

fn xfs() -> Check {
    let known = super::read("/proc/filesystems").unwrap_or_default();
    if known.split_whitespace().any(|word| word == "xfs") {
        return Check::ok("xfs", "known to the kernel");
    }
    Check::warn(
        "xfs",
        "not loaded",
        "images can be mounted only if the kernel can load the module",
        "modprobe xfs, or use --no-image",
    )
}
