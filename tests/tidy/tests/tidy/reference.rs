//! Pages that list what is in the sources: the book's contents, counters, texts of errors.

use std::collections::BTreeSet;

use hayase_tidy::{Source, Tree, expect_none};

/// Sources of the product.
fn product(tree: &Tree) -> Vec<Source> {
    let is_product = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    tree.ending(".rs").filter(|source| is_product(&source.path)).collect()
}

#[test]
fn the_book_has_every_page_once() {
    let tree = Tree::here();
    let summary = tree.read("docs/SUMMARY.md");
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let listed: Vec<String> = links.map(|link| format!("docs/{link}")).collect();
    let pages = tree.paths().filter(|path| path.starts_with("docs/") && path.ends_with(".md"));
    let pages: BTreeSet<_> = pages.filter(|path| *path != "docs/SUMMARY.md").collect();
    let count = |page: &str| listed.iter().filter(|listed| *listed == page).count();
    let missing = pages.iter().filter(|page| count(page) != 1);
    let findings: Vec<_> =
        missing.map(|page| format!("{page} is {} times in docs/SUMMARY.md", count(page))).collect();
    expect_none("the book has every page once", &findings);
}

const METRICS: &str = "crates/hayase/src/metrics.rs";

#[test]
fn counters_are_on_their_page() {
    let tree = Tree::here();
    let (source, page) = (tree.read(METRICS), tree.read("docs/reference/metrics.md"));
    let rows = source.lines().filter_map(|line| line.strip_prefix("    (\""));
    let names: Vec<_> =
        rows.filter(|row| row.contains("Kind::")).map(|row| row.split('"').next()).collect();
    assert!(names.len() > 20, "only {} counters were found in {METRICS}", names.len());
    let mut wanted: BTreeSet<_> =
        names.into_iter().flatten().map(|name| format!("hayase_{name}")).collect();
    wanted.insert("hayase_up".to_owned());
    let shown = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let shown: BTreeSet<_> = shown.map(str::to_owned).collect();
    let differ = wanted.symmetric_difference(&shown);
    let findings: Vec<_> = differ.map(|name| format!("{name} is on one side only")).collect();
    expect_none("docs/reference/metrics.md has the counters that there are", &findings);
}

/// In tables whose first column is a message: each piece between `...` is in a string of the product.
#[test]
fn messages_that_are_explained_exist() {
    let tree = Tree::here();
    let mut sources = String::new();
    for source in product(&tree) {
        // A text may be broken over lines.
        let text = source.text.replace("\\\n", " ");
        sources.extend(text.split_whitespace().map(|word| format!("{word} ")));
    }
    let page = tree.read("docs/troubleshooting.md");
    let mut findings = Vec::new();
    let mut found = 0;
    let mut is_message = false;
    for (number, line) in page.lines().enumerate() {
        is_message =
            if line.starts_with("| message") { true } else { is_message && line.starts_with('|') };
        let Some(message) = line.strip_prefix("| `").filter(|_| is_message) else { continue };
        let Some((message, _)) = message.split_once('`') else { continue };
        let pieces =
            message.split("...").map(|piece| piece.trim_matches([' ', ':', ','].as_slice()));
        // What a person types, and a state of one word.
        for piece in pieces.filter(|piece| piece.contains(' ') && !piece.starts_with("ls ")) {
            found += 1;
            if !sources.contains(piece) {
                findings.push(format!("docs/troubleshooting.md:{}: \"{piece}\"", number + 1));
            }
        }
    }
    expect_none("a message that docs/troubleshooting.md explains is in the sources", &findings);
    assert!(found > 20, "only {found} messages were found: did the form of the page change?");
}

/// Words of digits: `0.87`, `2,492`.
pub(crate) fn figures(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    let bare = words.map(|word| word.trim_matches(['.', ','].as_slice()));
    bare.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).collect()
}

/// What stands below a heading, down to the next one; `anchor` as links write it.
fn section<'a>(page: &'a str, anchor: &str) -> Option<&'a str> {
    let anchor_of = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    let mut begin = None;
    let mut at = 0;
    for line in page.split_inclusive('\n') {
        match begin {
            Some(begin) if line.starts_with('#') => return Some(&page[begin..at]),
            None if line.starts_with('#') && anchor_of(line) == anchor => begin = Some(at),
            _ => {}
        }
        at += line.len();
    }
    begin.map(|begin| &page[begin..])
}

/// A link of the README to a page of results, with figures in its text: they are in the section that it leads to.
#[test]
fn figures_in_links_of_the_readme_are_where_they_lead() {
    let tree = Tree::here();
    let readme = tree.read("README.md");
    let (mut findings, mut found) = (Vec::new(), 0);
    for (text, target) in readme.split('[').skip(1).filter_map(|rest| rest.split_once("](")) {
        let target = target.split(')').next().unwrap_or_default();
        let (page, anchor) = target.split_once('#').unwrap_or((target, ""));
        if !page.starts_with("docs/results/") || figures(text).is_empty() {
            continue;
        }
        let whole = tree.read(page);
        let Some(section) = section(&whole, anchor) else {
            findings.push(format!("{target}: no such section"));
            continue;
        };
        let there = figures(section);
        found += figures(text).len();
        let missing = figures(text).into_iter().filter(|figure| !there.contains(figure));
        findings.extend(missing.map(|figure| format!("{figure} is not in {target}")));
    }
    expect_none("figures in links of the README are where they lead", &findings);
    assert!(found > 5, "only {found} figures were found: did the form of the README change?");
}
