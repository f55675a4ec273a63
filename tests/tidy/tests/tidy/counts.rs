//! Rules that count what is there already and may only fall: `baseline.txt` says what is allowed.
//!
//! After a count has fallen, `HAYASE_TIDY_BLESS=1 cargo test -p hayase-tidy` lowers the baseline. It never
//! raises one: who renames a type, or must add to a count, edits the line by hand, so that a reviewer sees it.

use std::cell::LazyCell;

use hayase_tidy::{
    Baseline, Change, Count, Crate, History, Tree, added, circles, expect_none, giants,
};

use crate::words;

const BASELINE: &str = "tests/tidy/baseline.txt";

const HEADER: &str = "\
# Counts that may only fall: `rule subject count`. Lowered by `HAYASE_TIDY_BLESS=1 cargo test -p hayase-tidy`.
#   circles      files of a crate that lie in circles of imports
#   methods      methods of a type that has more than 40, over all files and extension traits
#   extensions   traits of a crate that are implemented for such a type alone
#   takers       functions of others that take such a type whole
#   words        words in error texts and help that do not come back (tests/tidy/src/words.rs)
";

/// Counts of an earlier tree; `None` where git does not know it.
type Before = Option<Vec<Count>>;

/// Most names in one message.
const NAMES_MAX: usize = 40;

/// Folders of the crates of the product.
fn crates(tree: &Tree) -> Vec<String> {
    let folders = tree.paths().filter_map(|path| {
        let folder = path.strip_suffix("/Cargo.toml").or_else(|| path.strip_suffix("/src/lib.rs"));
        folder.or_else(|| path.strip_suffix("/src/main.rs"))
    });
    let mut folders: Vec<_> = folders
        .filter(|folder| folder.starts_with("crates/") && folder.matches('/').count() == 1)
        .map(str::to_owned)
        .collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

/// All counts of all rules.
fn counts(tree: &Tree) -> Vec<Count> {
    let of_crates = crates(tree).into_iter().flat_map(|folder| counts_of_crate(tree, &folder));
    of_crates.chain(words::counts(tree)).collect()
}

fn counts_of_crate(tree: &Tree, folder: &str) -> Vec<Count> {
    let krate = Crate::read(tree, folder);
    let members = circles(&krate.graph()).concat();
    let mut found = vec![Count { rule: "circles", subject: krate.name().to_owned(), members }];
    for giant in giants(tree, folder, &krate) {
        let subject = format!("{}::{}", krate.name(), giant.name);
        let counted = [
            ("methods", giant.methods),
            ("extensions", giant.extensions),
            ("takers", giant.takers),
        ];
        found.extend(counted.map(|(rule, members)| Count {
            rule,
            subject: subject.clone(),
            members,
        }));
    }
    found
}

#[test]
fn counts_only_fall() {
    let tree = Tree::here();
    let counts = counts(&tree);
    let read = Baseline::parse(&tree.read(BASELINE)).expect(BASELINE);
    let bless = std::env::var_os("HAYASE_TIDY_BLESS").is_some_and(|value| value == "1");
    let allowed = match (bless, tree.has(BASELINE)) {
        (false, _) => read,
        (true, true) => blessed(&tree, read.lowered(&counts)),
        (true, false) => blessed(&tree, Baseline::of(&counts)),
    };
    let before = LazyCell::new(|| counts_before(&tree));
    let findings: Vec<_> =
        allowed.changes(&counts).iter().map(|change| told(&before, change, &counts)).collect();
    expect_none("counts only fall", &findings);
}

fn blessed(tree: &Tree, baseline: Baseline) -> Baseline {
    std::fs::write(tree.root().join(BASELINE), baseline.text(HEADER)).expect(BASELINE);
    baseline
}

fn told(before: &Before, change: &Change, counts: &[Count]) -> String {
    let Change { key, allowed, now } = change;
    if !change.is_rise() {
        return format!(
            "{key} is {now}, was {allowed}: lower the baseline in {BASELINE} to {now} (HAYASE_TIDY_BLESS=1)"
        );
    }
    let members = counts.iter().find(|count| count.key() == *key).map(|count| &count.members[..]);
    let (what, members) = new_members(before, key, members.unwrap_or_default());
    let names = members.iter().take(NAMES_MAX).map(|name| format!("\n    {name}"));
    let more = members.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!("\n    and {more} more") } else { String::new() };
    format!("{key} is {now}, {allowed} are allowed; {what}:{}{more}", names.collect::<String>())
}

/// What came since the baseline was last changed; all there is where git does not know.
fn new_members(before: &Before, key: &str, now: &[String]) -> (&'static str, Vec<String>) {
    let Some(before) = before else { return ("there are", now.to_vec()) };
    let before = before.iter().find(|count| count.key() == key);
    let before = before.map(|count| &count.members[..]).unwrap_or_default();
    ("new since the baseline was last changed", added(before, now))
}

/// All counts of the tree in which the baseline was last changed.
fn counts_before(tree: &Tree) -> Before {
    let history = History(tree.root());
    let before = history.last_change(BASELINE).and_then(|commit| history.tree(&commit, ".rs"));
    before.map(|before| counts(&before))
}

#[test]
fn every_crate_is_counted() {
    let found = crates(&Tree::here());
    for krate in ["hayase", "layout", "mpi", "server", "wire"] {
        assert!(found.contains(&format!("crates/{krate}")), "{krate} is not among {found:?}");
    }
}
