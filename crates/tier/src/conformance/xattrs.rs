//! Promises about extended attributes; a tier that keeps none refuses every call for them.

use std::sync::Arc;

use hayase_layout::Acl;
use hayase_layout::acl::{ACCESS_NAME, DEFAULT_NAME};

use super::{is_missing, key, put};
use crate::{Attributes, Key, Precondition, Tier, TierError, Upload, XattrChanges, Xattrs};

type Change<'a> = (&'a [u8], Option<&'a [u8]>);

fn changes(changes: &[Change<'_>]) -> XattrChanges {
    changes.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect()
}

fn xattrs(pairs: &[(&[u8], &[u8])]) -> Xattrs {
    pairs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn change(tier: &dyn Tier, name: &Key, with: &[Change<'_>]) {
    tier.change_user_xattrs(name, &changes(with)).expect("change xattrs");
}

fn check(tier: &dyn Tier, name: &Key, expected: &[(&[u8], &[u8])]) {
    assert_eq!(tier.user_xattrs(name).expect("xattrs"), xattrs(expected), "{name}");
}

fn begin(tier: &dyn Tier, name: &Key) -> Box<dyn Upload> {
    let mut upload = tier.begin(name, Attributes::default()).expect("begin");
    upload.write_at(0, b"new").expect("write");
    upload
}

#[expect(clippy::needless_pass_by_value, reason = "every caller has just made it")]
fn is_unsupported<T>(answer: Result<T, TierError>) -> bool {
    matches!(answer, Err(TierError::Unsupported { .. }))
}

pub(super) fn kept(tier: &Arc<dyn Tier>) {
    let tier = &**tier;
    let (file, other) = (key("d/f"), key("g"));
    put(tier, &file, b"old");
    if !tier.capabilities().xattrs {
        let one = xattrs(&[(b"user.a", b"1")]);
        assert!(tier.capabilities().acls || is_unsupported(tier.user_xattrs(&file)));
        assert!(is_unsupported(tier.change_user_xattrs(&file, &changes(&[(b"user.a", None)]))));
        assert!(is_unsupported(begin(tier, &file).set_user_xattrs(&one)));
        return;
    }
    let capabilities = tier.capabilities();
    assert!(capabilities.rename && capabilities.attributes, "nobody copies what has xattrs");
    assert!(is_missing(tier.user_xattrs(&other)));
    assert!(is_missing(tier.change_user_xattrs(&other, &changes(&[(b"user.a", Some(b"1"))]))));
    check(tier, &file, &[]);
    let bytes: Vec<u8> = (0..=255).collect();
    change(tier, &file, &[(b"user.a", Some(b"1")), (b"user.empty", Some(b""))]);
    change(tier, &file, &[(b"user.a", None), (b"user.never", None), (b"user.b", Some(&bytes))]);
    check(tier, &file, &[(b"user.b", &bytes), (b"user.empty", b"")]);
    change(tier, &file, &[(b"user.b", Some(b"2")), (b"user.empty", None)]);
    for name in [&b"security.x"[..], b"user", b"user.", b"trusted.x"] {
        assert!(is_unsupported(tier.change_user_xattrs(&file, &changes(&[(name, Some(b"1"))]))));
    }
    // With the object, not with the name.
    put(tier, &other, b"replaced");
    change(tier, &other, &[(b"user.other", Some(b"1"))]);
    tier.set_attributes(&file, Attributes { mode: Some(0o600), mtime: None }).expect("chmod");
    tier.rename(&file, &other).expect("rename");
    assert!(is_missing(tier.user_xattrs(&file)));
    check(tier, &other, &[(b"user.b", b"2")]);
}

/// Who replaces an object decides what of them the new version has, and nobody sees it without.
pub(super) fn replaced(tier: &Arc<dyn Tier>) {
    let tier = &**tier;
    if !tier.capabilities().xattrs {
        return;
    }
    let file = key("d/f");
    put(tier, &file, b"old");
    change(tier, &file, &[(b"user.a", Some(b"1"))]);
    let given = xattrs(&[(b"user.b", b"2"), (b"user.c", b"")]);
    let mut upload = begin(tier, &file);
    upload.set_user_xattrs(&given).expect("set");
    check(tier, &file, &[(b"user.a", b"1")]);
    drop(upload);
    check(tier, &file, &[(b"user.a", b"1")]);
    // One that nobody may write, its owner neither.
    let attributes = Attributes { mode: Some(0o400), mtime: None };
    let mut upload = tier.begin(&file, attributes).expect("begin");
    let foreign = xattrs(&[(b"system.x", b"")]);
    assert!(is_unsupported(upload.set_user_xattrs(&foreign)));
    upload.set_user_xattrs(&given).expect("set");
    let told = upload.commit(Precondition::Any).expect("commit");
    assert_eq!(tier.stat(&file).expect("stat").identity, told.identity);
    check(tier, &file, &[(b"user.b", b"2"), (b"user.c", b"")]);
    put(tier, &file, b"newer");
    check(tier, &file, &[]);
}

/// Owner, user 7, group, mask and others.
fn list(bits: [u8; 5]) -> Vec<u8> {
    let tags = [(1_u16, u32::MAX), (2, 7), (4, u32::MAX), (16, u32::MAX), (32, u32::MAX)];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for ((tag, id), bits) in tags.into_iter().zip(bits) {
        value.extend(tag.to_le_bytes());
        value.extend(u16::from(bits).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// A list and the mode change together, and a new version has the list that it was given.
pub(super) fn lists(tier: &Arc<dyn Tier>) {
    let tier = &**tier;
    let file = key("d/f");
    put(tier, &file, b"old");
    if !tier.capabilities().acls {
        let one = changes(&[(ACCESS_NAME, Some(&list([6, 4, 0, 4, 0])))]);
        assert!(is_unsupported(tier.change_user_xattrs(&file, &one)));
        return;
    }
    let mode = |name: &Key| tier.stat(name).expect("stat").mode;
    change(tier, &file, &[(ACCESS_NAME, Some(&list([7, 6, 0, 6, 1])))]);
    check(tier, &file, &[(ACCESS_NAME, &list([7, 6, 0, 6, 1]))]);
    assert_eq!(mode(&file), 0o761);
    tier.set_attributes(&file, Attributes { mode: Some(0o640), mtime: None }).expect("chmod");
    check(tier, &file, &[(ACCESS_NAME, &list([6, 6, 0, 4, 0]))]);
    change(tier, &file, &[(ACCESS_NAME, None), (DEFAULT_NAME, None)]);
    check(tier, &file, &[]);
    assert_eq!(mode(&file), 0o640, "the mode stays");
    change(tier, &file, &[(ACCESS_NAME, Some(&list([7, 6, 0, 6, 1])))]);
    change(tier, &file, &[(ACCESS_NAME, Some(&Acl::of_mode(0o604).to_value()))]);
    check(tier, &file, &[]);
    assert_eq!(mode(&file), 0o604, "a list that is a mode");
    for attributes in [None, Some(0o640)] {
        let attributes = Attributes { mode: attributes, mtime: None };
        let mut upload = tier.begin(&file, attributes).expect("begin");
        upload.set_user_xattrs(&xattrs(&[(ACCESS_NAME, &list([6, 6, 0, 6, 4]))])).expect("set");
        upload.commit(Precondition::Any).expect("commit");
        let expected = attributes.mode.map_or([6, 6, 0, 6, 4], |_| [6, 6, 0, 4, 0]);
        check(tier, &file, &[(ACCESS_NAME, &list(expected))]);
        assert_eq!(mode(&file), attributes.mode.unwrap_or(0o664));
    }
    let directory = key("d");
    let tree = tier.tree().expect("a tree has lists");
    let both = (list([7, 4, 0, 4, 0]), list([7, 7, 5, 7, 0]));
    change(tier, &directory, &[(ACCESS_NAME, Some(&both.0)), (DEFAULT_NAME, Some(&both.1))]);
    check(tier, &directory, &[(ACCESS_NAME, &both.0), (DEFAULT_NAME, &both.1)]);
    assert_eq!(tree.directory(&directory).expect("there").mode, 0o740);
    tree.set_directory(&directory, Attributes { mode: Some(0o750), mtime: None }).expect("chmod");
    check(tier, &directory, &[(ACCESS_NAME, &list([7, 4, 0, 5, 0])), (DEFAULT_NAME, &both.1)]);
    change(tier, &directory, &[(DEFAULT_NAME, None)]);
    check(tier, &directory, &[(ACCESS_NAME, &list([7, 4, 0, 5, 0]))]);
}

pub(super) fn of_directories(tier: &Arc<dyn Tier>) {
    let Some(tree) = tier.tree().filter(|_| tier.capabilities().xattrs) else { return };
    let (directory, link) = (key("d"), key("l"));
    tree.make_directory(&directory).expect("make");
    check(&**tier, &directory, &[]);
    change(&**tier, &directory, &[(b"user.a", Some(b"1")), (b"user.b", None)]);
    tree.set_directory(&directory, Attributes { mode: Some(0o700), mtime: None }).expect("chmod");
    check(&**tier, &directory, &[(b"user.a", b"1")]);
    tree.remove_directory(&directory).expect("remove");
    tree.make_directory(&directory).expect("make again");
    check(&**tier, &directory, &[]);
    // A link has none, and is not followed to what it points to.
    tree.make_link(&link, b"d").expect("link");
    let answer = tier.user_xattrs(&link);
    assert!(matches!(answer, Err(TierError::NotObject { .. })), "{answer:?}");
    let answer = tier.change_user_xattrs(&link, &changes(&[(b"user.a", Some(b"1"))]));
    assert!(matches!(answer, Err(TierError::NotObject { .. })), "{answer:?}");
}
