//! Promises about objects that stand for directories and links; a tier with a tree has none of them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{get, is_missing, key, names, put};
use crate::{Attributes, Depth, EntryKind, ListRequest, Precondition, Tier};

fn dated(mode: u32) -> Attributes {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567, 890_000_001);
    Attributes { mode: Some(mode), mtime: Some(time) }
}

pub(super) fn directories(tier: &Arc<dyn Tier>) {
    let Some(marks) = tier.marks() else { return };
    assert!(tier.tree().is_none(), "a tree has directories of its own");
    let (empty, full) = (key("a/empty"), key("b"));
    assert!(is_missing(marks.directory(&empty)));
    marks.mark_directory(&empty, dated(0o700)).expect("mark");
    marks.mark_directory(&empty, dated(0o750)).expect("mark again");
    put(&**tier, &key("b/file"), b"here");
    assert!(is_missing(marks.directory(&full)), "nobody marked it");
    marks.mark_directory(&full, Attributes::default()).expect("mark");
    assert_eq!(marks.directory(&empty).expect("directory"), dated(0o750));
    assert!(is_missing(tier.stat(&empty)), "a mark is no object");
    // Page by page, each mark before what lies in it; only where they are asked for.
    let mut request = ListRequest { marks: true, limit: 1, ..ListRequest::all("") };
    let mut entries = Vec::new();
    loop {
        let page = tier.list(&request).expect("list");
        entries.extend(page.entries);
        let Some(next) = page.next else { break };
        request = request.continued(next);
    }
    assert_eq!(names(&entries), ["a/empty/", "b/", "b/file"]);
    assert_eq!(entries[0].kind, EntryKind::Directory);
    assert_eq!(names(&super::list(&**tier, "", Depth::All, 9)), ["b/file"]);
    assert_eq!(names(&super::list(&**tier, "a/", Depth::One, 9)), ["a/empty/"]);
    marks.unmark_directory(&full).expect("unmark");
    marks.unmark_directory(&empty).expect("unmark");
    marks.unmark_directory(&empty).expect("once more");
    assert_eq!(get(&**tier, &key("b/file")), b"here");
    assert!(super::list(&**tier, "a", Depth::One, 9).is_empty());
}

pub(super) fn links(tier: &Arc<dyn Tier>) {
    let Some(marks) = tier.marks() else { return };
    let (link, file) = (key("d/link"), key("d/file"));
    put(&**tier, &link, b"a file at first");
    marks.mark_link(&link, b"../\xff no where", dated(0o777)).expect("mark");
    put(&**tier, &file, b"../\xff no where");
    for (name, is_link) in [(&link, true), (&file, false)] {
        let meta = tier.stat(name).expect("stat");
        for reader in [tier.open(name), tier.open_listed(name, meta)] {
            let reader = reader.expect("open");
            assert_eq!(reader.is_link().expect("is it a link"), is_link, "{name}");
            assert_eq!(super::read_all(&*reader), b"../\xff no where");
        }
    }
    let told = tier.open(&link).and_then(|reader| reader.attributes());
    assert_eq!(told.expect("attributes"), dated(0o777));
    tier.put(&link, dated(0o640), b"a file again", Precondition::Any).expect("put");
    let reader = tier.open(&link).expect("open");
    assert!(!reader.is_link().expect("is it a link"));
    let written = tier.stat_as_written(&link).expect("stat");
    assert_eq!((Some(written.mode), Some(written.mtime)), (dated(0o640).mode, dated(0o640).mtime));
}
