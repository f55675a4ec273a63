//! Environment variables of ours: the page of the reference has those that the product reads or sets, and no others.

use std::collections::BTreeSet;

use hayase_tidy::{Tree, expect_none};

use crate::sources;

const PAGE: &str = "docs/reference/environment.md";

/// They write the page: a name in them is not used there.
const WRITERS: [&str; 2] =
    ["crates/hayase/src/cli/reference.rs", "crates/hayase/src/config/variables.rs"];

/// Read by tests alone, which lie in the files of what they test.
const OF_TESTS: [&str; 4] =
    ["HAYASE_COMMIT", "HAYASE_SWAP_VERSIONS", "HAYASE_TEST_FRAMES", "HAYASE_TEST_VICTIM"];

/// Names with which what stands after a `quote` begins; `HAYASE_S3_` alone is the beginning of several.
fn names(text: &str, quote: char) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(quote).skip(1).map(|rest| {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        rest[..end].to_owned()
    });
    words.filter(|word| word.starts_with("HAYASE_") && !word.ends_with('_')).collect()
}

#[test]
fn the_page_of_variables_has_those_of_the_product() {
    let tree = Tree::here();
    let is_product = |path: &str| {
        path.starts_with("crates/") && path.contains("/src/") && !WRITERS.contains(&path)
    };
    let mut used: BTreeSet<String> = sources(&tree)
        .filter(|source| is_product(&source.path))
        .flat_map(|source| names(&source.text, '"'))
        .collect();
    for name in OF_TESTS {
        assert!(used.remove(name), "{name} is read nowhere");
    }
    let shown = names(&tree.read(PAGE), '`');
    assert!(used.len() > 20, "only {used:?} were found");
    let missing = used.difference(&shown).map(|name| format!("{name} is not on {PAGE}"));
    let unused =
        shown.difference(&used).map(|name| format!("{PAGE}: nothing reads or sets {name}"));
    expect_none(
        "the page of variables has those that the product reads or sets",
        &missing.chain(unused).collect::<Vec<_>>(),
    );
}
