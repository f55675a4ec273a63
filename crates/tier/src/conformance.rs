//! The suite that every tier and every decorator passes: the sentences of [`crate::tier`], tried.
//!
//! It panics at the first broken promise, so it is called from tests:
//! ```
//! hayase_tier::conformance::run(hayase_tier::Memory::new);
//! ```
//! What needs a machine that loses power is not here: `fsync` order is tested where a crash can be made.

mod marks;
mod names;
mod objects;
mod resumed;
mod tree;
mod versions;
mod xattrs;

use std::sync::Arc;

use crate::{Attributes, Depth, Entry, Key, ListRequest, Precondition, Reader, Tier, TierError};

/// One promise; it gets a tier without objects.
type Case = fn(&Arc<dyn Tier>);

const CASES: &[(&str, Case)] = &[
    ("absent objects are missing for every call", objects::absent),
    ("bytes come back, from any offset", objects::round_trip),
    ("writes in any order, later wins, gaps are zeros", objects::any_order),
    ("far behind the end is written or refused", objects::window),
    ("attributes are kept and changed alone", objects::attributes),
    ("a local descriptor holds the same bytes", objects::local_descriptor),
    ("locations cover the object or are refused", objects::locations),
    ("nothing is seen before commit", versions::invisible_before_commit),
    ("a dropped upload leaves the former version", versions::dropped_upload),
    ("an open version stays whole", versions::open_version_stays),
    ("a listed version is opened, or told to be gone", versions::listed_version),
    ("of two commits where none was, one succeeds", versions::absent_once),
    ("only the version that is named is replaced", versions::matching_replaced),
    ("of two commits over one version, one succeeds", versions::matching_once),
    ("only the version that is named is removed", versions::matching_deleted),
    ("an object put at once is as one put in pieces", objects::put_at_once),
    ("objects put together are as those put alone", objects::put_together),
    ("parts come in any order, or not at all", objects::parts),
    ("an upload that ended early is resumed with its parts", resumed::parts),
    ("what is of something else is not resumed", resumed::others),
    ("nobody takes an upload that is on its way", resumed::live),
    ("what was left to be resumed is swept", resumed::swept),
    ("a checksum that is known is that of the bytes", objects::known_checksum),
    ("readers and writers at once: one whole version", versions::concurrent_replace),
    ("sweep takes what was left, never an object", versions::sweep),
    ("rename moves and replaces, or is refused", versions::rename),
    (
        "only the version that is named is moved, over the one that is named",
        versions::matching_renamed,
    ),
    ("names come in order, page by page", names::order_and_pages),
    ("prefixes and levels", names::prefixes_and_levels),
    ("a directory larger than a page", names::large_directory),
    ("strange names", names::strange),
    ("in a tree an object is no directory", names::tree),
    ("directories are made, dated and removed", tree::directories),
    ("links are kept and never followed", tree::links),
    ("directories of a store have marks", marks::directories),
    ("links of a store are objects that say so", marks::links),
    ("extended attributes stay with the object", xattrs::kept),
    ("a new version has the extended attributes that it was given", xattrs::replaced),
    ("directories have extended attributes too", xattrs::of_directories),
    ("access control lists are kept with the mode", xattrs::lists),
];

/// Runs every case, each on a tier of its own from `fresh`.
///
/// # Panics
/// When a promise is broken; the message names the case's assertion.
pub fn run<T: Tier + 'static>(mut fresh: impl FnMut() -> T) {
    for (promise, case) in CASES {
        let tier: Arc<dyn Tier> = Arc::new(fresh());
        let guard = Named { promise, tier: tier.describe() };
        case(&tier);
        drop(guard);
    }
}

/// Says which promise was being tried when an assertion fails.
struct Named {
    promise: &'static str,
    tier: String,
}

impl Drop for Named {
    #[expect(clippy::print_stderr, reason = "the suite runs inside tests, and only when one fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("tier {}: broken promise: {}", self.tier, self.promise);
        }
    }
}

fn key(name: impl AsRef<[u8]>) -> Key {
    Key::new(name).expect("the suite uses valid keys")
}

/// Bytes that differ at every offset and for every seed.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u64).wrapping_mul(31).to_le_bytes()[0] ^ (at >> 8) as u8 ^ seed)
        .collect()
}

fn put(tier: &dyn Tier, name: &Key, bytes: &[u8]) {
    let mut upload = tier.begin(name, Attributes::default()).expect("begin");
    upload.write_at(0, bytes).expect("write");
    upload.commit(Precondition::Any).expect("commit");
}

fn read_all(reader: &dyn Reader) -> Vec<u8> {
    let size = usize::try_from(reader.meta().size.get()).expect("an object of the suite is small");
    // One byte more, so that an object that is longer than it says is noticed.
    let mut bytes = vec![0; size + 1];
    let count = reader.read_at(0, &mut bytes).expect("read");
    bytes.truncate(count);
    bytes
}

fn get(tier: &dyn Tier, name: &Key) -> Vec<u8> {
    read_all(&*tier.open(name).expect("open"))
}

#[expect(clippy::needless_pass_by_value, reason = "every caller has just made it")]
fn is_missing<T>(answer: Result<T, TierError>) -> bool {
    matches!(answer, Err(TierError::Missing { .. }))
}

/// Every page of a listing, joined; fails when a page breaks the rules of pages.
fn list(tier: &dyn Tier, prefix: impl AsRef<[u8]>, depth: Depth, limit: usize) -> Vec<Entry> {
    let mut request = ListRequest { limit, depth, ..ListRequest::all(prefix.as_ref()) };
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let page = tier.list(&request).expect("list");
        assert!(page.entries.len() <= limit, "a page of {} where {limit} fit", page.entries.len());
        entries.extend(page.entries);
        let Some(next) = page.next else { break };
        assert_ne!(request.after.as_ref(), Some(&next), "a listing that does not move on");
        request = request.continued(next);
    }
    assert!(entries.windows(2).all(|two| two[0].name < two[1].name), "names out of order");
    entries
}

fn names(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
}
