//! Set-user-id and set-group-id: a process without CAP_FSETID that changes bytes of a file clears them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mounted::fixture::{Fixture, skip};
use crate::nodes::fixture::Nodes;
use hayase_client::testing::server::Parts;
use hayase_fuse::KernelProfile;

const USER: u32 = 1000;

/// Each changes bytes of `f`, which has 8 KiB.
const CHANGES: [&str; 11] = [
    "echo x >> f",
    "echo x > f",
    ": > f",
    "printf x | dd of=f conv=notrunc status=none",
    "dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc oflag=direct status=none",
    "truncate -s 5 f",
    "truncate -s 9000 f",
    "fallocate -l 16384 f",
    "fallocate -p -o 0 -l 4096 f",
    "fallocate -z -o 0 -l 4096 f",
    "exec 3<>f && chmod 6755 f && echo x >&3", // open before it has the bits
];

fn sh(directory: &Path, user: u32, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(directory).uid(user).gid(user);
    let status = command.status().unwrap();
    assert!(status.success(), "{script}: {status}");
}

/// A directory of `user` that it may search.
fn directory_of(user: u32, mount_point: &Path) -> PathBuf {
    let directory = mount_point.join("d");
    fs::create_dir(&directory).unwrap();
    chown(&directory, Some(user), Some(user)).unwrap();
    open_way_to(mount_point);
    directory
}

/// Lets all users reach what is mounted in a temporary directory.
pub(crate) fn open_way_to(mount_point: &Path) {
    let is_ours = |above: &&Path| {
        above.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp"))
    };
    let temporary =
        mount_point.ancestors().find(is_ours).expect("mounted in a temporary directory");
    fs::set_permissions(temporary, Permissions::from_mode(0o755)).unwrap();
}

/// Makes a file with `bits` in one place, has `user` change it in another by each of `changes`, and looks there and
/// in the first what is left.
fn check(
    what: &str,
    places: [&Path; 2],
    changes: impl Iterator<Item = &'static str>,
    (user, bits, left): (u32, u32, u32),
) {
    let mode = |place: &Path| fs::metadata(place.join("f")).unwrap().mode() & 0o7777;
    for change in changes {
        let file = places[0].join("f");
        fs::write(&file, [7; 8192]).unwrap();
        chown(&file, Some(user), Some(user)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(bits)).unwrap();
        sh(places[1], user, change);
        let left = match (change.contains("6755"), user) {
            (true, 0) => 0o6755,
            (true, _) => 0o755,
            (false, _) => left,
        };
        for place in places {
            let mode = mode(place);
            assert_eq!(mode, left, "{what}: {change} by {user} left {mode:o} on {place:?}");
        }
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn who_changes_bytes_takes_the_set_id_bits_unless_he_may_leave_them() {
    if !rustix::process::geteuid().is_root() {
        return skip("set_ids", "needs root to act as another user");
    }
    let check_with = |profile, parts, rights| {
        let Some(mounted) = Fixture::new("set_ids", parts, profile) else { return };
        let place = directory_of(USER, &mounted.path(""));
        let what = format!("{profile}, {parts:?}");
        check(&what, [&place, &place], CHANGES.into_iter(), rights);
    };
    for parts in [Parts::Here, Parts::Elsewhere] {
        // The last one knows no FUSE_HANDLE_KILLPRIV_V2.
        for profile in [KernelProfile::Native, KernelProfile::V6_1, KernelProfile::V4_18] {
            check_with(profile, parts, (USER, 0o6755, 0o755));
        }
        check_with(KernelProfile::Native, parts, (USER, 0o4644, 0o644));
        check_with(KernelProfile::Native, parts, (0, 0o6755, 0o6755));
    }
}

#[test]
fn set_id_bits_go_on_all_nodes_wherever_the_bytes_are() {
    if !rustix::process::geteuid().is_root() {
        return skip("set_ids_nodes", "needs root to act as another user");
    }
    for profile in [KernelProfile::Native, KernelProfile::V6_1] {
        let Some(nodes) = Nodes::up("set_ids_nodes", 2, profile) else { return };
        let directory = directory_of(USER, &nodes.path(0, ""));
        for layout in ["whole", "striped:4096:2"] {
            let name = "user.hayase.layout";
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&directory, name, layout.as_bytes(), flags).unwrap();
            for (maker, changer) in [(0, 1), (1, 0)] {
                let places = [nodes.path(maker, "d"), nodes.path(changer, "d")];
                let what = format!("{profile}, {layout}, {changer} changes what {maker} made");
                // Room is not kept for striped files.
                let is_possible =
                    |change: &&str| layout == "whole" || !change.contains("fallocate");
                let changes = CHANGES.into_iter().filter(is_possible);
                check(&what, [&places[0], &places[1]], changes, (USER, 0o6755, 0o755));
            }
        }
    }
}

#[test]
fn set_id_bits_of_other_files_cost_a_writer_nothing() {
    if !rustix::process::geteuid().is_root() {
        return skip("set_ids_cost", "needs root to act as another user");
    }
    for parts in [Parts::Here, Parts::Elsewhere] {
        let Some(mounted) = Fixture::native("set_ids_cost", parts) else { return };
        let directory = directory_of(USER, &mounted.path(""));
        fs::write(mounted.path("d/other"), b"x").unwrap();
        fs::set_permissions(mounted.path("d/other"), Permissions::from_mode(0o6755)).unwrap();
        sh(&directory, USER, "echo x > f");
        let before = mounted.count("SetAttr");
        sh(&directory, USER, "echo x >> f; printf x | dd of=f conv=notrunc status=none");
        assert_eq!(mounted.count("SetAttr"), before, "{parts:?}");
    }
}
