//! Links of documents, and what comments and documents cite: pages, their sections, files, modules.

use hayase_tidy::{Tree, expect_none};

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
