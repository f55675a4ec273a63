//! Single files: a header, a size, a name that says something, tests that run.

use hayase_tidy::{Tree, code_only, expect_none};

use crate::{sources, stem};

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] =
    ["utils", "util", "common", "helpers", "helper", "misc", "manager", "shared_utils"];

/// A file of this many lines hides a second concept.
const LINES_MAX: usize = 700;

#[test]
fn every_file_says_what_lives_in_it() {
    let tree = Tree::here();
    let findings: Vec<String> = sources(&tree)
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| format!("{} does not begin with `//!`", source.path))
        .collect();
    expect_none("each file opens with a header", &findings);
}

#[test]
fn files_hold_one_concept() {
    let tree = Tree::here();
    let findings: Vec<String> = sources(&tree)
        .map(|source| (source.text.lines().count(), source.path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{path} has {lines} lines"))
        .collect();
    expect_none("files stay below 700 lines", &findings);
}

#[test]
fn names_name_something() {
    let tree = Tree::here();
    let findings: Vec<String> = tree
        .paths()
        .filter(|path| path.split('/').any(|part| EMPTY_NAMES.contains(&stem(part))))
        .map(str::to_owned)
        .collect();
    expect_none("no utils, common, helpers, manager", &findings);
}

#[test]
fn no_test_is_switched_off() {
    let tree = Tree::here();
    let findings: Vec<String> = sources(&tree)
        .filter(|source| {
            let code = code_only(&source.text);
            ["ignore", "cfg(any())"].iter().any(|switch| code.contains(&format!("#[{switch}")))
        })
        .map(|source| source.path)
        .collect();
    expect_none("a test that cannot run prints SKIP and why; none is ignored", &findings);
}
