//! `hayase pack`, from a directory to packs and back.

use std::fs;
use std::path::Path;

use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};

use crate::containers::Mount;
use crate::support::{Done, Scene, done};

/// Some files, a link and an empty directory in `tree`.
pub(crate) fn make_tree(scene: &Scene) {
    let tree = scene.path("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    for number in 0..200 {
        let data = format!("{number} ").repeat(number * 10);
        fs::write(tree.join(format!("sub/file-{number:03}")), data).unwrap();
    }
    fs::write(tree.join("odd \n name"), "odd").unwrap();
    std::os::unix::fs::symlink("sub/file-001", tree.join("link")).unwrap();
}

/// Fails unless diff(1) sees no difference.
pub(crate) fn check_same(a: &Path, b: &Path) {
    let mut diff = std::process::Command::new("diff");
    let output = diff.args(["-r", "--no-dereference"]).args([a, b]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn pack(scene: &Scene, args: &[&str]) -> Done {
    scene.hayase(&[&["pack"], args].concat())
}

fn json(done: &Done) -> serde_json::Value {
    serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap_or_else(|_| {
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    })
}

#[test]
fn a_directory_is_packed_listed_checked_and_unpacked() {
    let scene = Scene::new();
    make_tree(&scene);
    for more in [&[][..], &["--zstd"], &["--size", "64KiB"]] {
        let _ = fs::remove_dir_all(scene.path("packs"));
        let _ = fs::remove_dir_all(scene.path("out"));
        let made = pack(&scene, &[&["create", "tree", "packs"], more].concat()).with(0);
        assert!(made.stdout.contains("204 items copied"), "{made:?}");
        let listed = pack(&scene, &["list", "packs"]).with(0).stdout;
        assert!(listed.contains("odd \\n name\n") && listed.contains("link -> sub/file-001\n"));
        assert!(listed.contains("204 entries in"), "{listed}");
        let listed =
            json(&pack(&scene, &["list", "packs", "--include", "file-01*", "--json"]).with(0));
        assert_eq!(listed["entries"].as_array().unwrap().len(), 10);
        assert_eq!(listed["entries"][1]["bytes"], 330);
        let checked = pack(&scene, &["verify", "packs"]).with(0).stdout;
        assert!(checked.ends_with("no damage\n"), "{checked}");
        pack(&scene, &["extract", "packs", "out"]).with(0);
        check_same(&scene.path("tree"), &scene.path("out"));
    }
    let again = json(&pack(&scene, &["create", "tree", "packs", "--json"]).with(0));
    assert_eq!(
        (&again["event"], &again["copied"], &again["kept"]),
        (&"end".into(), &0.into(), &204.into())
    );
}

#[test]
fn sealed_packs_want_their_key() {
    let scene = Scene::new();
    make_tree(&scene);
    fs::write(scene.path("key"), "0123456789abcdef".repeat(4)).unwrap();
    fs::write(scene.path("key2"), [9; 32]).unwrap();
    fs::write(scene.path("no-key"), "password").unwrap();
    pack(&scene, &["create", "tree", "packs", "--key-file", "key"]).with(0);
    let names = fs::read_dir(scene.path("packs/.hayase-packs")).unwrap();
    for name in names {
        let path = name.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(5).any(|window| window == b"file-"), "{}", path.display());
    }
    pack(&scene, &["verify", "packs"]).with(2).says(&["sealed", "--key-file"]);
    pack(&scene, &["verify", "packs", "--key-file", "key2"]).with(2).says(&["wrong key"]);
    pack(&scene, &["verify", "packs", "--key-file", "no-key"])
        .with(2)
        .says(&["64 hexadecimal", "openssl"]);
    pack(&scene, &["verify", "packs", "--key-file", "gone"]).with(2).says(&["key file gone"]);
    pack(&scene, &["verify", "packs", "--key-env", "NO_SUCH_KEY"]).with(2).says(&["NO_SUCH_KEY"]);
    pack(&scene, &["verify", "packs", "--key-command", "false"]).with(2).says(&["`false` failed"]);
    pack(&scene, &["verify", "packs", "--key-command", "cat key"]).with(0);
    pack(&scene, &["verify", "packs", "--key-file", "key", "--key-env", "X"]).with(2);
    pack(&scene, &["rekey", "packs", "--key-file", "key"]).with(2).says(&["--new-key-file"]);
    pack(&scene, &["rekey", "packs", "--key-file", "key", "--new-key-file", "key2"]).with(0);
    pack(&scene, &["verify", "packs", "--key-file", "key"]).with(2);
    let mut command = scene.command(&["pack", "extract", "packs", "out", "--key-env", "PACK_KEY"]);
    command.env("PACK_KEY", "09".repeat(32));
    crate::support::done(&command.output().unwrap()).with(0);
    check_same(&scene.path("tree"), &scene.path("out"));
}

#[test]
fn damage_is_listed_and_nothing_wrong_is_unpacked() {
    let scene = Scene::new();
    make_tree(&scene);
    pack(&scene, &["create", "tree", "packs"]).with(0);
    let mut packs = fs::read_dir(scene.path("packs/.hayase-packs")).unwrap();
    let packed = packs.find(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "tar");
    let path = packed.unwrap().unwrap().path();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(8).position(|window| window == b"150 150 ").unwrap();
    bytes[at + 1] = b'6';
    fs::write(&path, bytes).unwrap();
    let told = pack(&scene, &["verify", "packs"]).with(3).stdout;
    assert!(told.contains("sub/file-150") && told.contains("2 are damaged"), "{told}");
    let told = pack(&scene, &["extract", "packs", "out"]).with(3).stdout;
    assert!(told.contains("1 did not arrive:\n  sub/file-150: "), "{told}");
    assert!(!scene.path("out/sub/file-150").exists());
    assert!(scene.path("out/sub/file-151").exists());
}

#[test]
fn wrong_places_are_named() {
    let scene = Scene::new();
    make_tree(&scene);
    pack(&scene, &["list", "tree"]).with(2).says(&["no packs in", "pack create"]);
    pack(&scene, &["list", "gone"]).with(2).says(&["there is no directory gone"]);
    pack(&scene, &["extract", "tree", "out"]).with(2).says(&["no packs in"]);
    pack(&scene, &["create", "gone", "packs"]).with(2).says(&["gone"]);
    pack(&scene, &["create", "ftp://x/y", "packs"])
        .with(2)
        .says(&["unknown kind of storage `ftp`"]);
    pack(&scene, &["create", "tree", "packs", "--size", "1"]).with(2).says(&["expected 64 KiB"]);
    pack(&scene, &["create", "tree", "packs", "--zstd=99"])
        .with(2)
        .says(&["expected a level of 1 to 19"]);
    pack(&scene, &["create", "tree", "packs", "--exclude", "[a"]).with(2).says(&["unclosed"]);
    assert!(!scene.path("packs").exists(), "wrong usage makes nothing");
}

#[test]
fn the_directories_above_a_target_are_made() {
    let scene = Scene::new();
    make_tree(&scene);
    pack(&scene, &["create", "tree", "not/there/packs"]).with(0);
    pack(&scene, &["list", "not/there/packs"]).with(0);
    scene.hayase(&["stage", "out", "tree", "nor/this", "--pack", "none"]).with(0);
    check_same(&scene.path("tree"), &scene.path("nor/this"));
    fs::write(scene.path("file"), "").unwrap();
    scene.hayase(&["stage", "out", "tree", "file/below"]).with(2).says(&["file"]);
}

#[test]
fn packs_are_mounted_as_the_tree_that_was_packed() {
    let scene = Scene::new();
    make_tree(&scene);
    fs::write(scene.path("tree/large"), vec![7; 3 << 20]).unwrap();
    fs::write(scene.path("key"), "07".repeat(32)).unwrap();
    let server = Server::start(&Options::default()).unwrap();
    let s3 = |command: &mut std::process::Command| {
        command.env("AWS_ENDPOINT_URL", server.endpoint()).env_remove("AWS_PROFILE");
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    };
    let url = format!("s3://{BUCKET}/kept");
    for (place, key) in [("packs", false), ("sealed", true), (&url, true)] {
        let key: &[&str] = if key { &["--key-file", "key"] } else { &[] };
        let mut create = scene.command(&[&["pack", "create", "tree", place], key].concat());
        s3(&mut create);
        done(&create.output().unwrap()).with(0);
        let say = |command: &mut std::process::Command| {
            s3(command);
            command.args(key).arg(place);
        };
        let test = "packs_are_mounted_as_the_tree_that_was_packed";
        let Some(mount) = Mount::with(&scene, test, say) else { return };
        check_same(&scene.path("tree"), &mount.point);
        let (a, b) = (fs::metadata(scene.path("tree/large")), fs::metadata(mount.path("large")));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(
            (a.modified().unwrap(), a.permissions()),
            (b.modified().unwrap(), b.permissions())
        );
        for refused in [
            fs::write(mount.path("new"), "x"),
            fs::write(mount.path("large"), "x"),
            fs::remove_file(mount.path("large")),
        ] {
            let errno = rustix::io::Errno::ROFS.raw_os_error();
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(errno));
        }
        assert!(mount.unmount());
    }
    let refused = |args: &[&str], words: &[&str]| {
        scene.hayase(&[&["mount"], args].concat()).with(2).says(words);
    };
    refused(&["sealed", "mount", "--key-env", "NOWHERE"], &["NOWHERE"]);
    refused(&["tree", "mount", "--key-file", "key"], &["no packs in"]);
    let unkeyed = scene.hayase(&["mount", "sealed", "mount"]);
    assert!(unkeyed.code != 0 && unkeyed.stderr.contains("--key-file"), "{unkeyed:?}");
}

#[test]
fn a_mount_hands_out_no_damaged_file() {
    let scene = Scene::new();
    make_tree(&scene);
    pack(&scene, &["create", "tree", "packs"]).with(0);
    let dir = scene.path("packs/.hayase-packs");
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let tar =
        entries.into_iter().find(|path| path.extension().is_some_and(|e| e == "tar")).unwrap();
    let mut bytes = fs::read(&tar).unwrap();
    let at = bytes.windows(8).position(|part| part == b"199 199 ").unwrap();
    bytes[at + 100] ^= 1;
    fs::write(&tar, bytes).unwrap();
    let packs = scene.path("packs");
    let test = "a_mount_hands_out_no_damaged_file";
    let say = |command: &mut std::process::Command| {
        command.arg(&packs);
    };
    let Some(mount) = Mount::with(&scene, test, say) else {
        return;
    };
    let error = fs::read(mount.path("sub/file-199")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert_eq!(
        fs::read(mount.path("sub/file-198")).unwrap(),
        fs::read(scene.path("tree/sub/file-198")).unwrap()
    );
}
