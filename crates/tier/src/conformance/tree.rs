//! Promises about directories and symbolic links; a tier with flat names has none of them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{get, is_missing, key, list, names, put};
use crate::{Attributes, Depth, EntryKind, Tier, TierError};

#[expect(clippy::needless_pass_by_value, reason = "every caller has just made it")]
fn refused<T: std::fmt::Debug>(answer: Result<T, TierError>) {
    assert!(matches!(answer, Err(TierError::NotObject { .. })), "{answer:?}");
}

pub(super) fn directories(tier: &Arc<dyn Tier>) {
    assert_eq!(tier.tree().is_some(), tier.capabilities().tree, "a tree has its contract");
    let Some(tree) = tier.tree() else { return };
    let (outer, inner, file) = (key("d"), key("d/empty"), key("d/file"));
    assert!(is_missing(tree.directory(&inner)));
    assert!(is_missing(tree.remove_directory(&inner)));
    tree.make_directory(&inner).expect("make");
    tree.make_directory(&inner).expect("make again");
    put(&**tier, &file, b"here");
    assert_eq!(names(&list(&**tier, "d/", Depth::One, 9)), ["d/empty/", "d/file"]);
    assert_eq!(names(&list(&**tier, "d/", Depth::All, 9)), ["d/file"]);
    let mtime = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567);
    let both = Attributes { mode: Some(0o750), mtime: Some(mtime) };
    tree.set_directory(&outer, both).expect("set");
    let told = tree.directory(&outer).expect("directory");
    assert_eq!((told.mode, told.mtime), (0o750, mtime));
    refused(tree.directory(&file));
    refused(tree.make_directory(&file));
    refused(tree.make_directory(&key("d/file/below")));
    refused(tree.remove_directory(&file));
    refused(tree.remove_directory(&outer));
    assert_eq!(get(&**tier, &file), b"here");
    tree.remove_directory(&inner).expect("remove");
    assert!(is_missing(tree.directory(&inner)));
}

pub(super) fn links(tier: &Arc<dyn Tier>) {
    let Some(tree) = tier.tree() else { return };
    let (file, link, dangling) = (key("a/file"), key("a/link"), key("b/dangling"));
    put(&**tier, &file, b"here");
    assert!(is_missing(tree.link(&link)));
    assert!(is_missing(tree.remove_link(&link)));
    tree.make_link(&link, b"elsewhere").expect("make");
    tree.make_link(&link, b"file").expect("replace");
    tree.make_link(&dangling, b"../../\xff no where").expect("make with its directory");
    assert_eq!(tree.link(&link).expect("read"), b"file");
    assert_eq!(tree.link(&dangling).expect("read"), b"../../\xff no where");
    // A link is no object: seen in listings, refused by every other call, never followed.
    let listed = list(&**tier, "a/", Depth::All, 9);
    assert_eq!(names(&listed), ["a/file", "a/link"]);
    assert!(matches!(listed[1].kind, EntryKind::Other(_)), "{listed:?}");
    refused(tier.open(&link).map(drop));
    refused(tier.stat(&link));
    refused(tier.delete(&link));
    refused(tier.begin(&link, Attributes::default()).map(drop));
    refused(tree.link(&file));
    refused(tree.make_link(&file, b"x"));
    refused(tree.make_link(&key("a"), b"x"));
    refused(tree.remove_link(&file));
    tree.remove_link(&link).expect("remove");
    assert!(is_missing(tree.link(&link)));
    assert_eq!(get(&**tier, &file), b"here");
}
