//! The rules: layers, headers, names, sizes, unsafe, promises, links.

use hayase_tidy::{Section, Source, Tree, code_only, expect_none, has_word, path_dependencies};

/// Layers from the bottom, as ARCHITECTURE.md draws them. A crate uses lower layers, never a sibling.
const LAYERS: [&[&str]; 5] = [
    &["layout", "dynlib"],
    &["store", "wire", "tier", "container"],
    &["server", "client", "stage"],
    &["fuse", "mpi"],
    &["hayase"],
];

/// Servers and programs that tests of every layer may start.
const TEST_SUPPORT: [&str; 1] = ["s3-server"];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] =
    ["utils", "util", "common", "helpers", "helper", "misc", "manager", "shared_utils"];

/// A file of this many lines hides a second concept.
const LINES_MAX: usize = 700;

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// Rust that people wrote.
fn sources(tree: &Tree) -> impl Iterator<Item = Source> + '_ {
    let generated =
        |source: &Source| source.text.lines().take(3).any(|line| line == "// @generated");
    tree.ending(".rs").filter(move |source| !generated(source))
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

fn stem(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

#[test]
fn unsafe_lives_where_the_architecture_says() {
    let tree = Tree::here();
    let map = tree.read("ARCHITECTURE.md");
    let (_, section) =
        map.split_once("## Where unsafe lives").expect("ARCHITECTURE.md lists unsafe");
    let section = section.split("\n## ").next().unwrap_or(section);
    let named: Vec<&str> =
        section.split('`').filter(|word| word.ends_with(".rs") && word.contains('/')).collect();
    let unsafe_files: Vec<String> = sources(&tree)
        .filter(|source| has_word(&code_only(&source.text), "unsafe"))
        .map(|source| source.path)
        .collect();
    let unnamed = unsafe_files.iter().filter(|path| !named.contains(&path.as_str()));
    let unnamed = unnamed.map(|path| format!("{path} is not named in ARCHITECTURE.md"));
    let stale = named
        .iter()
        .filter(|path| tree.has(path) && !unsafe_files.iter().any(|file| file == *path));
    let stale = stale.map(|path| format!("{path} is named in ARCHITECTURE.md and has none"));
    expect_none("unsafe lives in named modules", &unnamed.chain(stale).collect::<Vec<_>>());
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
    expect_none("a test that can not run prints SKIP and why; none is ignored", &findings);
}

#[test]
fn every_promise_has_its_test() {
    let tree = Tree::here();
    let promises = tree.read("docs/SEMANTICS.md");
    let tests: Vec<Source> = sources(&tree).collect();
    let scripts: Vec<Source> =
        tree.ending(".sh").filter(|script| script.path.starts_with("tests/")).collect();
    let exists = |name: &str| {
        let (function, label) = (format!("fn {name}("), format!("\"{name}\""));
        tests.iter().any(|source| source.text.contains(&function) || source.text.contains(&label))
            || scripts.iter().any(|script| is_tried_by(script, name))
    };
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

/// Whether a script `ssh.sh` has a line `try dead_host_is_named` for the test `ssh_dead_host_is_named`.
fn is_tried_by(script: &Source, name: &str) -> bool {
    let file = script.path.rsplit('/').next().map_or("", stem);
    let test = name.strip_prefix(file).and_then(|rest| rest.strip_prefix('_'));
    test.is_some_and(|test| {
        let (call, function) = (format!("try {test}"), format!("{test}() {{"));
        script.text.lines().any(|line| line.trim() == call) && script.text.contains(&function)
    })
}

#[test]
fn links_of_documents_lead_somewhere() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    for page in tree.ending(".md") {
        let base = page.path.rsplit_once('/').map_or("", |(base, _)| base);
        for target in link_targets(&page.text) {
            let path = target.split('#').next().unwrap_or(target);
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let full = if base.is_empty() { path.into() } else { format!("{base}/{path}") };
            if !tree.has(&full) {
                findings.push(format!("{}: {target}", page.path));
            }
        }
    }
    expect_none("links of documents lead somewhere", &findings);
}

/// `](target)` outside of fenced code.
fn link_targets(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for (number, block) in text.split("```").enumerate() {
        if number % 2 == 0 {
            let links = block.split("](").skip(1);
            targets.extend(links.filter_map(|rest| rest.split(')').next()));
        }
    }
    targets
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
