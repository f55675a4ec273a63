//! A default stands once: in one constant, to which options refer.

use std::collections::{BTreeMap, BTreeSet};

use hayase_tidy::{Tree, default_constants, expect_none, literal_defaults};

use crate::sources;

#[test]
fn a_default_is_one_constant() {
    let tree = Tree::here();
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources(&tree).filter(|source| source.path.starts_with("crates/")) {
        for stem in default_constants(&source.text) {
            places.entry(stem).or_default().insert(source.path.clone());
        }
    }
    let twice = places.iter().filter(|(_, files)| files.len() > 1);
    let findings: Vec<_> = twice
        .map(|(stem, files)| {
            let files: Vec<_> = files.iter().map(String::as_str).collect();
            format!("the default of {stem} stands in {}", files.join(" and "))
        })
        .collect();
    expect_none("a default is one constant", &findings);
    assert!(places.contains_key("STRIPE"), "no default was found: {places:?}");
}

#[test]
fn options_refer_to_constants() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    for source in sources(&tree).filter(|source| source.path.starts_with("crates/hayase/src/")) {
        let lines = literal_defaults(&source.text);
        findings.extend(lines.iter().map(|line| {
            format!(
                "{}:{line}: name the default, as `X_DEFAULT`, or use `default_value_t` alone",
                source.path
            )
        }));
    }
    expect_none("the default of an option is a constant", &findings);
}
