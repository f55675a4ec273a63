//! Manifests of workspaces other than the root's: the same lints, the same profile, the same versions.

use std::collections::BTreeMap;

use hayase_tidy::{Tree, expect_none, manifest_tables};

/// Sources of others, which the demo builds.
const NOT_OURS: [&str; 1] = ["demo/source-tree/Cargo.toml"];

/// Tables that each workspace has as the root has them.
const SHARED: [&str; 4] =
    ["workspace.lints.rust", "workspace.lints.clippy", "profile.dev", "profile.release"];

/// How single packages are compiled. A foreign crate that one workspace compiles in another way than the root is
/// compiled twice in a run of the tests; of crates of ours each workspace decides for itself.
const PACKAGES: &str = "profile.dev.package";

#[test]
fn workspaces_follow_the_root() {
    let tree = Tree::here();
    let root = tree.read("Cargo.toml");
    let mut findings = Vec::new();
    let ours = |path: &str| !NOT_OURS.contains(&path);
    for manifest in tree.ending("/Cargo.toml").filter(|manifest| ours(&manifest.path)) {
        if manifest.text.lines().any(|line| line.trim() == "[workspace]") {
            let differences = differences(&root, &manifest.text).into_iter();
            findings.extend(differences.map(|what| format!("{}: {what}", manifest.path)));
        }
    }
    expect_none(
        "a workspace of its own has the lints, the profile and the versions of the root",
        &findings,
    );
}

/// Where `other` is not as `root`: in the tables that are shared, in versions of what both depend on.
fn differences(root: &str, other: &str) -> Vec<String> {
    let (root, other) = (manifest_tables(root), manifest_tables(other));
    let mut found = Vec::new();
    for table in SHARED.iter().filter(|table| root.get(**table) != other.get(**table)) {
        found.push(format!("[{table}] is not the root's"));
    }
    if foreign(&root) != foreign(&other) {
        found.push(format!("[{PACKAGES}] has other foreign crates than the root's"));
    }
    let versions = root.get("workspace.dependencies").cloned().unwrap_or_default();
    for (table, entries) in other.iter().filter(|(table, _)| table.ends_with("dependencies")) {
        for (name, value) in entries {
            let (Some(own), Some(of_root)) =
                (version(value), versions.get(name).and_then(|of| version(of)))
            else {
                continue;
            };
            if own != of_root {
                found.push(format!("[{table}] {name} is {own}, in the root {of_root}"));
            }
        }
    }
    found
}

type Tables = BTreeMap<String, BTreeMap<String, String>>;

/// The lines of [`PACKAGES`] about foreign crates.
fn foreign(tables: &Tables) -> Vec<(&String, &String)> {
    let all = tables.get(PACKAGES).into_iter().flatten();
    all.filter(|(name, _)| !name.starts_with("hayase")).collect()
}

/// `1.2` of `"1.2"` and of `{ version = "1.2", .. }`; `None` of a path or of `workspace = true`.
fn version(value: &str) -> Option<&str> {
    let text = match value.strip_prefix('{') {
        Some(table) => table.split_once("version")?.1.trim_start().strip_prefix('=')?.trim_start(),
        None => value,
    };
    text.strip_prefix('"')?.split('"').next()
}

#[test]
fn what_differs_is_told() {
    let root = "[workspace.dependencies]\nclap = { version = \"4\", features = [\"derive\"] }\nx = { path = \"x\" }\n\
                [workspace.lints.rust]\nunsafe_code = \"deny\"\n[profile.release]\nlto = \"fat\"\n";
    let same = "[workspace]\n[workspace.lints.rust]\nunsafe_code = \"deny\"\n[profile.release]\nlto = \"fat\"\n";
    let check = |more: &str, expected: &[&str]| {
        assert_eq!(differences(root, &format!("{same}{more}")), expected, "{more}");
    };
    check("", &[]);
    check("[dependencies]\nclap = \"4\"\ny = \"1\"\nx = { path = \"../x\" }\n", &[]);
    check("[dependencies]\nclap = \"3\"\n", &["[dependencies] clap is 3, in the root 4"]);
    check("[dependencies.clap]\nversion = \"3\"\n", &["[dependencies] clap is 3, in the root 4"]);
    check("[profile.dev.package]\nhayase-x = { opt-level = 1 }\n", &[]);
    let told = ["[profile.dev.package] has other foreign crates than the root's"];
    check("[profile.dev.package]\n\"*\" = { opt-level = 1 }\n", &told);
    let told = ["[workspace.lints.clippy] is not the root's"];
    check("[workspace.lints.clippy]\nall = \"warn\"\n", &told);
    assert_eq!(differences(root, "[workspace]\n").len(), 2);
}
