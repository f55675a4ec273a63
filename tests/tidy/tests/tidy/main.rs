//! The rules, one module for each subject. Those that count may only fall: see [`counts`].

mod citations;
mod counts;
mod defaults;
mod files;
mod layers;
mod manifests;
mod promises;
mod reference;
mod results;
mod rooms;
mod unsafe_rooms;
mod variables;
mod words;

use hayase_tidy::{Source, Tree};

/// Rust that people wrote.
fn sources(tree: &Tree) -> impl Iterator<Item = Source> + '_ {
    let generated =
        |source: &Source| source.text.lines().take(3).any(|line| line == "// @generated");
    tree.ending(".rs").filter(move |source| !generated(source))
}

fn stem(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
