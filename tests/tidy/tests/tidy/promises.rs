//! Promises and their tests.

use std::collections::BTreeSet;

use hayase_tidy::{Source, Tree, expect_none};

use crate::{sources, stem};

#[test]
fn every_promise_has_its_test() {
    let tree = Tree::here();
    let promises = tree.read("docs/SEMANTICS.md");
    let tests = Tests::of(&tree);
    let exists = |name: &str| tests.has(name);
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

/// Pages about faults name tests in their tables.
#[test]
fn tests_that_pages_about_faults_name_exist() {
    let tree = Tree::here();
    let tests = Tests::of(&tree);
    let (mut findings, mut named) = (Vec::new(), 0);
    for page in ["docs/design/000-faults.md", "docs/design/006-kept-files.md", "docs/SECURITY.md"] {
        for (number, line) in tree.read(page).lines().enumerate() {
            let words = line.split('`').skip(1).step_by(2).filter(|word| is_sentence(word));
            for name in words {
                named += 1;
                if !tests.has(name) {
                    findings.push(format!("{page}:{}: there is no test `{name}`", number + 1));
                }
            }
        }
    }
    expect_none("each test that a page about faults names exists", &findings);
    assert!(named >= 20, "only {named} tests are named: did the form of the pages change?");
}

/// Four words or more, as names of tests are; attributes and fields are shorter.
fn is_sentence(word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.chars().all(is_name) && word.matches('_').count() >= 3
}

/// The figures that the picture of the README shows stand in its table.
#[test]
fn figures_of_the_picture_are_those_of_the_readme() {
    let tree = Tree::here();
    let (readme, picture) = (tree.read("README.md"), tree.read("docs/pictures/figures.svg"));
    let shown = picture.split("class=\"figure\"").skip(1);
    let figures: Vec<&str> = shown
        .filter_map(|rest| rest.split_once('>')?.1.split('<').next())
        .filter(|figure| *figure != "1")
        .collect();
    assert_eq!(figures.len(), 8, "{figures:?}");
    let table: BTreeSet<&str> =
        readme.lines().filter(|line| line.starts_with("| ")).flat_map(figures_in).collect();
    for figure in figures {
        assert!(table.contains(figure), "{figure} is not in the table of README.md");
    }
}

/// Short enough that it is read: what does not fit has a page in docs/.
#[test]
fn the_readme_has_at_most_160_lines() {
    let count = Tree::here().read("README.md").lines().count();
    assert!(count <= 160, "README.md has {count} lines");
}

fn figures_in(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    line.split(move |c: char| !is_part(c)).map(|figure| figure.trim_matches(['.', ',']))
}

/// All tests, by their names.
struct Tests {
    names: BTreeSet<String>,
    scripts: Vec<Source>,
}

impl Tests {
    fn of(tree: &Tree) -> Self {
        let scripts = tree.ending(".sh").filter(|script| script.path.starts_with("tests/"));
        let names =
            |source: Source| -> Vec<String> { names_in(&source.text).map(str::to_owned).collect() };
        Self { names: sources(tree).flat_map(names).collect(), scripts: scripts.collect() }
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(name) || self.scripts.iter().any(|script| is_tried_by(script, name))
    }
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
