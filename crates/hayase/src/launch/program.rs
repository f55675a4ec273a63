//! Finding the programs of the system that we start: `ip`, `mkfs.xfs`, `fusermount3` and the like.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Looked into after `PATH`, since batch jobs often start without the administrator's directories.
const MORE_PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The first executable file called `name`.
pub(crate) fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .chain(MORE_PLACES.iter().map(PathBuf::from))
        .map(|place| place.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path_and_nowhere_else() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("hayase-test-program");
        std::fs::write(&file, "").unwrap();
        assert_eq!(find("hayase-test-program", top.path().as_os_str()), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("hayase-test-program", top.path().as_os_str()), Some(file));
    }
}
