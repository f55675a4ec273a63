//! Rules of the house, checked against the sources themselves; the rules are in `tests/`.
//!
//! Here: what a rule needs to look at the tree ([`Tree`], [`code`]). No dependencies, so that
//! `cargo test -p hayase-tidy` takes seconds.

mod baseline;
mod circles;
pub mod citations;
mod code;
mod comments;
mod defaults;
mod giants;
mod history;
mod links;
mod manifest;
mod modules;
mod results;
mod token;
mod tree;
mod uses;
pub mod words;

pub use baseline::{Baseline, Change, Count, added};
pub use circles::{Graph, circles};
pub use code::{code_only, has_word};
pub use comments::{Comment, comments};
pub use defaults::{default_constants, literal_defaults};
pub use giants::{Giant, METHODS_MAX, giants};
pub use history::History;
pub use links::{Link, module_links};
pub use manifest::{Section, manifest_tables, path_dependencies};
pub use modules::{Crate, Meaning};
pub use results::{MeasuredSources, measured_sources};
pub use token::{Token, after_bracket, after_generics, tokens, without_tests};
pub use tree::{Source, Tree};

/// Fails with every finding, one a line.
///
/// # Panics
/// When there is one.
pub fn expect_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
