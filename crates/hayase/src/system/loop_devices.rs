//! Loop devices: block devices whose bytes are a file.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::program;

/// Frees loop devices whose images lie below `place`: those of a job that died in a way that left
/// its mounts. A device that is still mounted detaches itself when that ends.
pub(crate) fn release(place: &Path) {
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(image) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        if !Path::new(image.trim_end()).starts_with(place) {
            continue;
        }
        let device = Path::new("/dev").join(entry.file_name());
        let search = OsStr::new("/usr/sbin:/sbin:/usr/bin:/bin");
        let Some(losetup) = program::find("losetup", search) else { return };
        let _ = std::process::Command::new(losetup).arg("--detach").arg(device).output();
    }
}
