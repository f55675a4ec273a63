//! Pages of results: how far the code has gone on since they were measured.

use hayase_tidy::{History, MeasuredSources, Tree, expect_none, measured_sources};

use crate::reference::figures;

/// A page is stale after this many commits to what it measured.
const COMMITS_MAX: usize = 100;

/// Warns, and does not fail: a page that is old is still true of its commit.
#[test]
fn results_are_not_old() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    for page in tree.ending(".md").filter(|page| page.path.starts_with("docs/results/")) {
        match measured_sources(&page.text) {
            Ok(measured) => measured.iter().for_each(|one| tell(&tree, &page.path, one)),
            Err(why) => findings.push(format!("{}: {why}", page.path)),
        }
    }
    expect_none("a page of results says which commit and crates were measured", &findings);
}

#[expect(clippy::print_stdout, reason = "the suite shows what its tests print")]
fn tell(tree: &Tree, page: &str, measured: &MeasuredSources) {
    let MeasuredSources { commit, crates } = measured;
    match History(tree.root()).commits_since(commit, crates) {
        None => println!("{page}: age not checked: git does not know the commit {commit} here"),
        Some(count) if count > COMMITS_MAX => println!(
            "warning: {page}: {} changed in {count} commits since {commit}, which was measured",
            crates.join(", ")
        ),
        Some(_) => {}
    }
}

#[test]
fn measured_folders_exist() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    for page in tree.ending(".md").filter(|page| page.path.starts_with("docs/results/")) {
        let measured = measured_sources(&page.text).unwrap_or_default();
        let crates = measured.iter().flat_map(|one| &one.crates);
        let missing = crates.filter(|folder| !tree.has(folder));
        findings.extend(missing.map(|folder| format!("{}: there is no {folder}", page.path)));
    }
    expect_none("what was measured is in the repository", &findings);
}

/// The first paragraph of a page that `./bench.sh` writes says what came out, by figures that stand below it.
#[test]
fn first_paragraphs_have_the_figures_of_their_page() {
    let tree = Tree::here();
    let (mut findings, mut found) = (Vec::new(), 0);
    for page in tree.ending(".md").filter(|page| page.path.starts_with("docs/results/")) {
        if !page.text.contains("\nWritten by `./bench.sh ") {
            continue;
        }
        found += 1;
        let Some((head, below)) = page.text.split_once("\nMeasured commit:") else { continue };
        let summary = head.split_once('\n').map_or("", |(_, summary)| summary);
        if figures(summary).is_empty() {
            findings
                .push(format!("{}: its first paragraph says nothing of what came out", page.path));
        }
        let there = figures(below);
        // How many goals hold is counted, and stands nowhere else.
        let lines = summary.lines().filter(|line| !line.contains(" goals hold"));
        let said = lines.flat_map(figures);
        let missing = said.filter(|figure| !there.contains(figure));
        findings.extend(missing.map(|figure| format!("{}: {figure} is not below", page.path)));
    }
    expect_none("first paragraphs have the figures of their page", &findings);
    assert!(found > 5, "only {found} pages were found");
}
