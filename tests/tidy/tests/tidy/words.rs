//! Texts for users are in plain English: words of the list do not come back.
//!
//! Documents have none. Texts of errors and help still have some: they are counted in `baseline.txt` (`counts.rs`).

use hayase_tidy::words::{self, error_texts, prose};
use hayase_tidy::{Count, Tree, expect_none};

/// Documents at the root; and all below `docs/`.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

const SNAPSHOTS: &str = "crates/hayase/tests/commands/snapshots/";

#[test]
fn documents_are_in_plain_words() {
    let tree = Tree::here();
    let is_document = |path: &str| DOCUMENTS.contains(&path) || path.starts_with("docs/");
    let pages: Vec<_> = tree.ending(".md").filter(|page| is_document(&page.path)).collect();
    assert!(pages.len() > 30, "only {} documents were found", pages.len());
    let findings: Vec<_> = pages
        .iter()
        .flat_map(|page| {
            let found = words::found(&prose(&page.text)).into_iter();
            found.map(|found| {
                format!("{}:{}: \"{}\": write {}", page.path, found.line, found.text, found.instead)
            })
        })
        .collect();
    expect_none("documents are in plain words", &findings);
}

/// What errors and help texts still have of the list, by file.
pub(crate) fn counts(tree: &Tree) -> Vec<Count> {
    let errors =
        tree.ending(".rs").filter(|source| source.path.starts_with("crates/")).map(|source| {
            let texts = error_texts(&source.text).into_iter();
            (source.path, texts.map(|(_, text)| text).collect::<Vec<_>>())
        });
    let help = tree.ending(".txt").filter(|file| file.path.starts_with(SNAPSHOTS));
    let help = help.map(|file| (file.path, vec![prose(&file.text)]));
    errors
        .chain(help)
        .map(|(subject, texts)| {
            let found = texts.iter().flat_map(|text| {
                words::found(text).into_iter().map(move |found| {
                    let text: String =
                        text.lines().nth(found.line - 1).unwrap_or(text).trim().into();
                    format!("\"{}\" in `{text}`: write {}", found.text, found.instead)
                })
            });
            Count { rule: "words", subject, members: found.collect() }
        })
        .collect()
}
