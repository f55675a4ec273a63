//! What kind of file system storage is on, as far as that makes a poor place for areas.
//!
//! Source: statfs(2), which lists the numbers.

use std::path::Path;

/// Of `statfs`: number, name, what a person should know.
const POOR: &[(u64, &str, &str)] = &[
    (0x0102_1994, "tmpfs", "the areas use memory of the node"),
    (0x8584_58f6, "ramfs", "the areas use memory of the node"),
    (0x794c_7630, "an overlay", "it ends with its container"),
    (0x6969, "NFS", NETWORK),
    (0x0bd0_0bd0, "Lustre", NETWORK),
    (0x4750_4653, "GPFS", NETWORK),
    (0x1983_0326, "BeeGFS", NETWORK),
    (0x00c3_6400, "Ceph", NETWORK),
    (0xff53_4d42, "CIFS", NETWORK),
    (0xfe53_4d42, "SMB", NETWORK),
];

const NETWORK: &str = "the areas are not on a disk of the node, and nodes may share one directory";

/// What a person should know of the file system that holds (or will hold) `storage`.
pub(crate) fn warning(storage: &Path) -> Option<String> {
    let there = storage.ancestors().find(|place| place.exists())?;
    let kind = rustix::fs::statfs(there).ok()?.f_type as u64 & 0xffff_ffff;
    warning_of(kind, storage)
}

fn warning_of(kind: u64, storage: &Path) -> Option<String> {
    let (_, name, what) = POOR.iter().find(|(number, ..)| *number == kind)?;
    let storage = storage.display();
    Some(format!("storage {storage} is on {name}: {what}; --storage names another directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_networks_are_warned_of() {
        let warning = |kind| warning_of(kind, Path::new("/x")).unwrap_or_default();
        assert!(warning(0x0102_1994).starts_with("storage /x is on tmpfs: the areas use memory"));
        assert!(warning(0x0bd0_0bd0).contains("on Lustre"));
        assert!(warning(0x794c_7630).starts_with("storage /x is on an overlay: "));
        assert_eq!(warning(0x5846_5342), "", "XFS is good");
    }
}
