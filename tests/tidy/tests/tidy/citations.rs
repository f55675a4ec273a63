//! Links of documents, and what comments and documents cite: pages, their sections, files, modules.

use std::collections::BTreeMap;

use hayase_tidy::citations::{self, citations, find, headings, paths, wrong};
use hayase_tidy::{Crate, Tree, comments, expect_none, module_links};

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
fn anchors_of_links_are_headings() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    for page in tree.ending(".md") {
        for target in link_targets(&page.text) {
            let Some((path, anchor)) = target.split_once('#') else { continue };
            if path.contains("://") {
                continue;
            }
            let found = match path {
                "" => Ok(page.path.clone()),
                path => find(&tree, &page.path, path),
            };
            let headings = found.map(|found| headings(&tree.read(&found))).unwrap_or_default();
            if !headings.iter().any(|heading| citations::anchor(heading) == anchor) {
                findings.push(format!("{}: {target}", page.path));
            }
        }
    }
    expect_none("anchors of links are headings", &findings);
}

#[test]
fn cited_pages_and_sections_exist() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    let mut sections = 0;
    for (file, line, text) in texts(&tree) {
        for cited in citations(&text) {
            sections += cited.sections.len();
            let why = wrong(&tree, &file, &cited);
            findings
                .extend(why.map(|why| format!("{file}:{}: {why}", line + lines(&text, cited.at))));
        }
    }
    expect_none("a page that is cited is in the repository and has that section", &findings);
    assert!(sections >= 20, "only {sections} sections are cited: did the form change?");
}

#[test]
fn named_files_exist() {
    let tree = Tree::here();
    let mut findings = Vec::new();
    for (file, line, text) in texts(&tree) {
        for (at, path) in paths(&text, ".rs") {
            let why = find(&tree, &file, path).err();
            findings.extend(why.map(|why| format!("{file}:{}: {why}", line + lines(&text, at))));
        }
    }
    expect_none("a source file that is named is in the repository", &findings);
}

#[test]
fn named_modules_exist() {
    let tree = Tree::here();
    let folders = tree.paths().filter_map(|path| path.strip_suffix("/Cargo.toml"));
    let folders = folders.filter(|folder| folder.starts_with("crates/"));
    let crates: BTreeMap<_, _> = folders
        .map(|folder| Crate::read(&tree, folder))
        .map(|krate| (krate.name().to_owned(), krate))
        .collect();
    let mut findings = Vec::new();
    for krate in crates.values() {
        for (file, _) in krate.files() {
            let comments = comments(&tree.read(file));
            let links = comments.iter().flat_map(|comment| {
                module_links(&comment.text).into_iter().map(|link| (comment.line_of(link.at), link))
            });
            let wrong =
                links.filter(|(_, link)| !leads_somewhere(&crates, krate, file, &link.path));
            findings.extend(
                wrong.map(|(line, link)| format!("{file}:{line}: {}", link.path.join("::"))),
            );
        }
    }
    expect_none("a module or item that a comment names by its path exists", &findings);
}

fn leads_somewhere(
    crates: &BTreeMap<String, Crate>,
    krate: &Crate,
    file: &str,
    path: &[String],
) -> bool {
    let Some(other) = path[0].strip_prefix("hayase_") else {
        return krate.knows(file, path) != Some(false);
    };
    let mut path = path.to_vec();
    "crate".clone_into(&mut path[0]);
    // Crates of tests are not read.
    crates.get(other).is_none_or(|other| other.knows(other.root(), &path) != Some(false))
}

/// What people wrote for people: comments of sources, with their first lines; documents; scripts.
fn texts(tree: &Tree) -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    // The tests of this crate name pages that do not exist.
    for source in tree.ending(".rs").filter(|source| !source.path.starts_with("tests/tidy/")) {
        let said = comments(&source.text).into_iter();
        found.extend(said.map(|comment| (source.path.clone(), comment.line, comment.text)));
    }
    for end in [".md", ".sh", ".toml"] {
        found.extend(tree.ending(end).map(|file| (file.path, 1, file.text)));
    }
    found
}

fn lines(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}
