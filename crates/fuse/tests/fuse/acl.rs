//! Access control lists: what kernels allow and deny on every node, and what new files inherit, compared with the file
//! system of the temporary directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hayase_client::testing::server::Parts;
use hayase_fuse::KernelProfile;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::mounted::fixture::{Fixture, skip};
use crate::nodes::fixture::Nodes;
use crate::set_ids::open_way_to;

const USER: u32 = 1000;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const PROFILES: [KernelProfile; 3] =
    [KernelProfile::Native, KernelProfile::V6_1, KernelProfile::V4_18];

/// The attribute: owner, user 1000, group, mask and others.
fn with_user(bits: [u8; 5]) -> Vec<u8> {
    let tags = [(1, u32::MAX), (2, USER), (4, u32::MAX), (16, u32::MAX), (32, u32::MAX)];
    value(tags.into_iter().zip(bits))
}

fn minimal(bits: [u8; 3]) -> Vec<u8> {
    value([(1, u32::MAX), (4, u32::MAX), (32, u32::MAX)].into_iter().zip(bits))
}

fn value(entries: impl Iterator<Item = ((u16, u32), u8)>) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for ((tag, id), bits) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(u16::from(bits).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn hex(value: &[u8]) -> String {
    value.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root to act as another user");
    }
    root
}

/// Whether `user` can read the file.
fn reads(user: u32, path: &Path) -> bool {
    let mut cat = Command::new("cat");
    let cat = cat.arg(path).uid(user).gid(user).stdout(Stdio::null()).stderr(Stdio::null());
    cat.status().unwrap().success()
}

#[test]
fn a_list_allows_and_denies_on_every_node() {
    if !is_root("acl_nodes") {
        return;
    }
    for profile in PROFILES {
        let Some(nodes) = Nodes::up("acl_nodes", 2, profile) else { return };
        open_way_to(&nodes.path(0, ""));
        open_way_to(&nodes.path(1, ""));
        let file = |node| nodes.path(node, "file");
        fs::write(file(0), b"bytes").unwrap();
        fs::set_permissions(file(0), Permissions::from_mode(0o640)).unwrap();
        let check = |allowed: bool, what: &str| {
            for node in [0, 1] {
                assert_eq!(reads(USER, &file(node)), allowed, "{profile}, node {node}: {what}");
                assert!(reads(0, &file(node)));
            }
        };
        let mode = |node| fs::metadata(file(node)).unwrap().permissions().mode() & 0o777;
        check(false, "a mode alone");
        // Both kernels have looked, and are told.
        set(&file(0), ACCESS, &with_user([6, 4, 4, 4, 0]));
        check(true, "named");
        assert_eq!([mode(0), mode(1)], [0o640; 2]);
        set(&file(1), ACCESS, &with_user([6, 4, 4, 0, 0]));
        check(false, "masked");
        assert_eq!([mode(0), mode(1)], [0o600; 2]);
        fs::set_permissions(file(0), Permissions::from_mode(0o660)).unwrap();
        check(true, "chmod changes the mask");
        fs::set_permissions(file(1), Permissions::from_mode(0o614)).unwrap();
        check(false, "the named have no more than the mask, though all others may read");
        removexattr(file(0), ACCESS).unwrap();
        check(true, "as one of all others");
        set(&file(1), ACCESS, &with_user([6, 0, 4, 4, 4]));
        check(false, "named to be denied");
        set(&file(0), ACCESS, &minimal([6, 4, 4]));
        check(true, "a minimal list is a mode");
        let mut buffer = [0; 100];
        assert_eq!(getxattr(file(1), ACCESS, &mut buffer), Err(Errno::NODATA));
    }
}

/// Each is run in a directory of its own; what it leaves there is compared.
fn scripts() -> Vec<String> {
    let (named, masked) = (hex(&with_user([7, 6, 5, 6, 1])), hex(&with_user([6, 7, 7, 1, 0])));
    let (plain, wide) = (hex(&minimal([7, 5, 0])), hex(&with_user([7, 7, 7, 7, 7])));
    let make = "umask 027; : > f; mkdir d d/e; : > d/e/g; mkfifo p; ln -s f l; mkdir -m 2711 s; : > s/h; \
        umask 0; : > o; mkdir m; umask 0777; : > z; cp o c; ln o n";
    let default = |value: &str| format!("setfattr -n {DEFAULT} -v {value} .; {make}");
    let change = |change: &str| format!("umask 022; : > f; mkdir d; {change}");
    let set_both = |value: &str| {
        format!("setfattr -n {ACCESS} -v {value} f; setfattr -n {ACCESS} -v {value} d")
    };
    vec![
        make.to_owned(),
        default(&named),
        default(&masked),
        default(&plain),
        default(&wide),
        format!("setfattr -n {ACCESS} -v {named} .; {make}"),
        format!("chmod 2775 .; {}", default(&named)),
        format!("{}; setfattr -x {DEFAULT} .; : > later", default(&named)),
        change(&set_both(&named)),
        change(&set_both(&plain)),
        change(&format!("{}; chmod 705 f d", set_both(&named))),
        change(&format!("{}; chmod g+w,o-r f d; chmod u+s f", set_both(&masked))),
        change(&format!("{}; setfattr -x {ACCESS} f", set_both(&masked))),
        change(&format!("{}; {}", set_both(&wide), set_both(&plain))),
        change(&format!("{}; chown 5:6 f d", set_both(&named))),
        change(&format!("{}; mv f g; ln g h; cp -p g i", set_both(&named))),
        change(&format!("setfattr -n {DEFAULT} -v 0x02000000 d; setfattr -x {ACCESS} f")),
        change(&format!("setfattr -n {DEFAULT} -v {plain} f || echo refused > why")),
        change(&format!("setfattr -n {ACCESS} -v 0x0200000001 f || echo refused > why")),
    ]
}

/// Kinds, modes, owners and attributes of all that is there, but those in which XFS keeps lists for itself (trusted.SGI_ACL_..).
const SHOW: &str = "set -- $(find . ! -type l | sort); stat -c '%n %F %a %u %g' \"$@\"; \
    getfattr -d -m '^[^t]' -e hex \"$@\" 2>&1; cat why 2>&1 | head -1";

fn sh(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).current_dir(directory).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lists_and_modes_are_those_of_a_local_file_system() {
    let local = tempfile::tempdir().unwrap();
    if setxattr(local.path(), DEFAULT, &minimal([7, 5, 0]), XattrFlags::empty()).is_err() {
        return skip("acl_local", "the temporary directory keeps no access control lists");
    }
    removexattr(local.path(), DEFAULT).unwrap();
    // Only root changes owners.
    let is_root = rustix::process::geteuid().is_root();
    let scripts: Vec<_> =
        scripts().into_iter().filter(|script| is_root || !script.contains("chown")).collect();
    for profile in PROFILES {
        let Some(nodes) = Nodes::up("acl_local", 2, profile) else { return };
        for (number, script) in scripts.iter().enumerate() {
            let name = format!("{profile}-{number}");
            let expected = local.path().join(&name);
            fs::create_dir(&expected).unwrap();
            sh(&expected, script);
            let expected = sh(&expected, SHOW);
            assert!(expected.lines().count() > 2, "{expected}");
            for maker in [0, 1] {
                let name = format!("{number}-{maker}");
                fs::create_dir(nodes.path(0, &name)).unwrap();
                sh(&nodes.path(maker, &name), script);
                for node in [0, 1] {
                    let found = sh(&nodes.path(node, &name), SHOW);
                    assert_eq!(found, expected, "{profile}: {maker} ran {script}, {node} looked");
                }
            }
        }
    }
}

#[test]
fn only_owners_set_lists_and_outside_of_the_group_they_take_its_bit() {
    if !is_root("acl_set_group_id") {
        return;
    }
    let Some(mounted) = Nodes::up("acl_set_group_id", 1, KernelProfile::Native) else { return };
    open_way_to(&mounted.path(0, ""));
    let file = mounted.path(0, "file");
    let mode_after = |groups: &str| {
        fs::write(&file, b"x").unwrap();
        chown(&file, Some(USER), Some(2000)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o2755)).unwrap();
        let list = hex(&with_user([7, 5, 5, 5, 5]));
        let ids = ["--reuid", "1000", "--regid", "1000", "--groups", groups];
        let mut command = Command::new("setpriv");
        command.args(ids).args(["setfattr", "-n", ACCESS, "-v", &list]).arg(&file);
        assert!(command.status().unwrap().success());
        fs::metadata(&file).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!(mode_after("1000,2000"), 0o2755, "a member");
    assert_eq!(mode_after("1000,2001"), 0o755);
    chown(&file, Some(0), Some(0)).unwrap();
    let list = hex(&minimal([7, 7, 7]));
    let mut command = Command::new("setfattr");
    command.args(["-n", ACCESS, "-v", &list]).arg(&file).uid(USER).stderr(Stdio::null());
    assert!(!command.status().unwrap().success(), "not the owner");
}

/// The kernel asks for lists whenever somebody else than the owner comes.
#[test]
fn lists_cost_no_message_whether_there_are_any() {
    if !is_root("acl_cost") {
        return;
    }
    for parts in [Parts::Here, Parts::Elsewhere] {
        let Some(mounted) = Fixture::native("acl_cost", parts) else { return };
        open_way_to(&mounted.path(""));
        fs::create_dir(mounted.path("dir")).unwrap();
        for name in ["dir/plain", "dir/listed"] {
            fs::write(mounted.path(name), b"x").unwrap();
        }
        set(&mounted.path("dir/listed"), ACCESS, &with_user([6, 4, 4, 4, 0]));
        set(&mounted.path("dir"), DEFAULT, &with_user([6, 4, 4, 4, 0]));
        let asked = |name| mounted.count(name);
        let look = || {
            for name in ["dir/plain", "dir/listed"] {
                assert!(reads(USER, &mounted.path(name)), "{name}");
            }
        };
        look();
        // Writes ask for `security.capability`.
        let before = ["GetAttr", "GetXattr"].map(asked);
        for _ in 0..5 {
            look();
        }
        fs::File::create(mounted.path("dir/new")).unwrap();
        assert!(reads(USER, &mounted.path("dir/new")), "inherited");
        assert_eq!(["GetAttr", "GetXattr"].map(asked), before, "{parts:?}");
    }
}
