//! Where unsafe lives.

use hayase_tidy::{Tree, code_only, expect_none, has_word};

use crate::sources;

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
