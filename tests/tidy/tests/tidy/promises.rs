//! Promises and their tests.

use std::collections::BTreeSet;

use hayase_tidy::{Source, Tree, expect_none};

use crate::{sources, stem};

#[test]
fn every_promise_has_its_test() {
    let tree = Tree::here();
    let promises = tree.read("docs/SEMANTICS.md");
    let tests: Vec<Source> = sources(&tree).collect();
    let names: BTreeSet<&str> = tests.iter().flat_map(|source| names_in(&source.text)).collect();
    let scripts: Vec<Source> =
        tree.ending(".sh").filter(|script| script.path.starts_with("tests/")).collect();
    let exists =
        |name: &str| names.contains(name) || scripts.iter().any(|script| is_tried_by(script, name));
    let mut findings = Vec::new();
    let mut kept = 0;
    // A promise is a line that begins with `- `; it ends with `Test: ` and names in backticks.
    for (number, line) in promises.lines().enumerate().filter(|(_, line)| line.starts_with("- ")) {
        let at = format!("docs/SEMANTICS.md:{}", number + 1);
        let Some((_, names)) = line.split_once("Test: ") else {
            findings.push(format!("{at}: a promise without a test: {line}"));
            continue;
        };
        let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            findings.push(format!("{at}: no test is named"));
        }
        kept += names.len();
        let missing = names.into_iter().filter(|name| !exists(name));
        findings.extend(missing.map(|name| format!("{at}: there is no test `{name}`")));
    }
    expect_none("each promise names a test that exists", &findings);
    assert!(kept >= 40, "only {kept} tests are named: did the form of the page change?");
}

/// What a test may be called: names of functions (`fn name(`), and whatever stands between two quotes.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('('));
    functions.map(|(name, _)| name).chain(text.split('"').skip(1))
}

/// Whether a script `ssh.sh` has a line `try dead_host_is_named` for the test `ssh_dead_host_is_named`.
fn is_tried_by(script: &Source, name: &str) -> bool {
    let file = script.path.rsplit('/').next().map_or("", stem);
    let test = name.strip_prefix(file).and_then(|rest| rest.strip_prefix('_'));
    test.is_some_and(|test| {
        let (call, function) = (format!("try {test}"), format!("{test}() {{"));
        script.text.lines().any(|line| line.trim() == call) && script.text.contains(&function)
    })
}
