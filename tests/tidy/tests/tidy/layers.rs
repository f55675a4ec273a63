//! Crates and their layers: arrows point down, `layout` is pure, the map names each crate.

use hayase_tidy::{Section, Tree, code_only, expect_none, has_word, path_dependencies};

use crate::sources;

/// Layers from the bottom, as ARCHITECTURE.md draws them. A crate uses lower layers, never a sibling.
const LAYERS: [&[&str]; 6] = [
    &["layout", "dynlib"],
    &["store", "wire", "tier", "container"],
    &["ucx"],
    &["server", "client", "stage"],
    &["fuse", "mpi"],
    &["hayase"],
];

/// Servers and programs that tests of every layer may start.
const TEST_SUPPORT: [&str; 1] = ["s3-server"];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[test]
fn arrows_point_down() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    let mut seen = 0;
    for manifest in tree.ending("/Cargo.toml") {
        let Some(name) = manifest.path.strip_prefix("crates/") else { continue };
        let name = name.trim_end_matches("/Cargo.toml");
        let Some(own) = layer(name) else {
            findings.push(format!(
                "crates/{name} has no layer; give it one here and in ARCHITECTURE.md"
            ));
            continue;
        };
        seen += 1;
        for (section, used) in path_dependencies(&manifest.text) {
            if section == Section::Dev && TEST_SUPPORT.contains(&used.as_str()) {
                continue;
            }
            if layer(&used).is_none_or(|used| used >= own) {
                findings.push(format!("{name} uses {used} ({section:?}), which is not below it"));
            }
        }
    }
    assert!(seen >= 8, "only {seen} crates were found: is this the repository?");
    expect_none("a crate uses lower layers, never a sibling", &findings);
}

#[test]
fn layout_is_pure() {
    let tree = Tree::here();
    const IMPURE: [&str; 8] = [
        "std::fs",
        "std::net",
        "std::thread",
        "std::time",
        "std::process",
        "std::env",
        "async",
        "await",
    ];
    let findings: Vec<String> = sources(&tree)
        .filter(|source| source.path.starts_with("crates/layout/src/"))
        .flat_map(|source| {
            let code = code_only(&source.text);
            IMPURE
                .into_iter()
                .filter(move |word| has_word(&code, word))
                .map(move |word| format!("{}: {word}", source.path))
        })
        .collect();
    expect_none("layout does no I/O, reads no clock, spawns nothing", &findings);
    let manifest = tree.read("crates/layout/Cargo.toml");
    assert!(!path_dependencies(&manifest).iter().any(|(section, _)| *section == Section::Normal));
}

#[test]
fn the_page_of_the_house_names_every_crate() {
    let tree = Tree::here();
    let map = tree.read("ARCHITECTURE.md");
    let findings: Vec<String> = tree
        .ending("/Cargo.toml")
        .filter_map(|manifest| manifest.path.strip_suffix("/Cargo.toml").map(str::to_owned))
        .filter(|folder| !map.contains(&format!("`{folder}`")))
        .map(|folder| format!("`{folder}` is not on the map"))
        .collect();
    expect_none("ARCHITECTURE.md names each crate", &findings);
}
