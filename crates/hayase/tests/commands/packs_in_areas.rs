//! `hayase pack` through the areas of a job: packs in each of them, unpacked into each of them.

use std::fs;

use crate::packs::{check_same, make_tree};
use crate::support::Scene;

/// Names of [`make_tree`].
const NAMES: u64 = 204;

const AREAS: [&str; 3] = ["shared", "local", "cache"];

fn pack(scene: &Scene, args: &[&str]) -> String {
    scene.hayase(&[&["pack"], args].concat()).with(0).stdout
}

/// A job of this machine in front of the directory `tier`.
fn up(scene: &Scene) {
    fs::create_dir(scene.path("tier")).unwrap();
    let mut up = scene.command(&["up", "--shared", "300M", "--local", "300M"]);
    up.arg("--storage").arg(scene.path("storage")).arg("--mount").arg(scene.path("mount"));
    up.arg("--tier").arg(scene.path("tier"));
    crate::support::done(&up.output().unwrap()).with(0);
}

/// Packs in one area, listed, checked and unpacked into every area.
fn packs_of(scene: &Scene, area: &str) {
    let packs = format!("mount/{area}/packs");
    // Several packs, so that they are made at a time.
    let create = ["create", "tree", &packs, "--size", "64KiB", "--json"];
    let create = || -> serde_json::Value {
        let told = pack(scene, &create);
        serde_json::from_str(told.lines().last().unwrap()).unwrap()
    };
    let first = create();
    assert_eq!((&first["event"], &first["copied"]), (&"end".into(), &NAMES.into()), "{first}");
    assert!(first["packs"].as_u64() > Some(3), "{first}");
    let listed = pack(scene, &["list", &packs]);
    assert!(listed.contains("204 entries in"), "{listed}");
    assert!(listed.contains("link -> sub/file-001\n"), "{listed}");
    let checked = pack(scene, &["verify", &packs]);
    assert!(checked.ends_with("no damage\n"), "{checked}");
    for target in AREAS {
        let target = format!("mount/{target}/of-{area}");
        pack(scene, &["extract", &packs, &target]);
        check_same(&scene.path("tree"), &scene.path(&target));
    }
    let again = create();
    assert_eq!((&again["copied"], &again["kept"]), (&0.into(), &NAMES.into()), "{again}");
}

/// Names of unfinished files below a directory.
fn unfinished(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            found.extend(unfinished(&entry.path()));
        } else if name.contains("hayase-partial") {
            found.push(name);
        }
    }
    found
}

#[test]
fn packs_go_into_each_area_and_out_into_each() {
    let test = "packs_go_into_each_area_and_out_into_each";
    let Some(scene) = Scene::with_nodes(test) else { return };
    make_tree(&scene);
    up(&scene);
    for area in AREAS {
        packs_of(&scene, area);
    }
    for area in AREAS {
        assert_eq!(unfinished(&scene.path("mount").join(area)), [""; 0], "in {area}");
    }
    scene.hayase(&["down"]).with(0);
    scene.check_nothing_left();
    // What was made in `cache` has come to the tier.
    assert_eq!(unfinished(&scene.path("tier")), [""; 0]);
    let checked = pack(&scene, &["verify", "tier/packs"]);
    assert!(checked.ends_with("no damage\n"), "{checked}");
    pack(&scene, &["extract", "tier/packs", "out"]);
    check_same(&scene.path("tree"), &scene.path("out"));
    for area in AREAS {
        check_same(&scene.path("tree"), &scene.path(&format!("tier/of-{area}")));
    }
}
