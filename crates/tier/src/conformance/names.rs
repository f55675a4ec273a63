//! Promises about names: order, pages, prefixes, levels, strange bytes.

use std::sync::Arc;

use super::{get, is_missing, key, list, names, pattern, put};
use crate::{Attributes, Depth, EntryKind, Precondition, Tier, TierError};

/// Names around the slash: `.` sorts before `/`, `0` behind it.
const NAMES: [&str; 9] = ["a", "b-c", "b.c", "b/c", "b/d/e", "b/d.e", "b0", "c/x", "\u{e9}"];

pub(super) fn order_and_pages(tier: &Arc<dyn Tier>) {
    for (seed, name) in NAMES.iter().enumerate() {
        put(&**tier, &key(name), &pattern(seed as u8, seed));
    }
    let mut sorted = NAMES;
    sorted.sort_unstable();
    let whole = list(&**tier, "", Depth::All, 100);
    assert_eq!(names(&whole), sorted);
    for entry in &whole {
        let name = entry.key().expect("only objects were put");
        assert_eq!(entry.kind, EntryKind::Object(tier.stat(&name).expect("stat")), "{name}");
    }
    for limit in 1..=NAMES.len() + 1 {
        assert_eq!(list(&**tier, "", Depth::All, limit), whole, "pages of {limit}");
    }
}

pub(super) fn prefixes_and_levels(tier: &Arc<dyn Tier>) {
    for name in NAMES {
        put(&**tier, &key(name), name.as_bytes());
    }
    let check = |prefix: &str, depth, expected: &str| {
        for limit in [1, 2, 100] {
            let seen = names(&list(&**tier, prefix, depth, limit)).join(" ");
            assert_eq!(seen, expected, "prefix {prefix:?}, {depth:?}, pages of {limit}");
        }
    };
    check("b", Depth::All, "b-c b.c b/c b/d.e b/d/e b0");
    check("b/", Depth::All, "b/c b/d.e b/d/e");
    check("b/d", Depth::All, "b/d.e b/d/e");
    check("", Depth::One, "a b-c b.c b/ b0 c/ \u{e9}");
    check("b", Depth::One, "b-c b.c b/ b0");
    check("b/", Depth::One, "b/c b/d.e b/d/");
    check("b/d/", Depth::One, "b/d/e");
    for nothing in ["z", "z/", "a/", "b/c/d/", "../", "/", "b//", "./"] {
        check(nothing, Depth::All, "");
        check(nothing, Depth::One, "");
    }
}

pub(super) fn large_directory(tier: &Arc<dyn Tier>) {
    let mut all: Vec<String> = (0..150).map(|n| format!("many/{n}")).collect();
    all.extend((0..20).map(|n| format!("many/{n}.d/x")));
    for name in &all {
        put(&**tier, &key(name), b"");
    }
    all.sort_unstable();
    for limit in [7, 50] {
        assert_eq!(names(&list(&**tier, "", Depth::All, limit)), all);
    }
    assert_eq!(list(&**tier, "many/1", Depth::One, 7).len(), 61 + 11);
}

pub(super) fn strange(tier: &Arc<dyn Tier>) {
    let long = "n".repeat(255);
    let deep = "d/".repeat(60) + "end";
    let mut strange: Vec<&[u8]> =
        vec![b" ", b"-rf", b"a\nb", b"\xff\xfe", b"~", b"*?[x]", b"...", b"%2F", b"\\"];
    strange.extend([long.as_bytes(), deep.as_bytes(), "+ &<\u{6f22}\u{1f600}>\"'".as_bytes()]);
    strange.extend([&b"a\rb\tc"[..], b"a?b=c&d#e", b"%", b"a%20b", b"a+b", b" lead", b"trail "]);
    if !tier.capabilities().any_bytes {
        let refused = tier.put(&key(b"\xff\xfe"), Attributes::default(), b"", Precondition::Any);
        assert!(matches!(refused, Err(TierError::NotObject { .. })), "{refused:?}");
        assert!(is_missing(tier.stat(&key(b"\xff\xfe"))));
        strange.retain(|name| std::str::from_utf8(name).is_ok());
    }
    for name in &strange {
        put(&**tier, &key(name), name);
    }
    for name in &strange {
        assert_eq!(get(&**tier, &key(name)), *name);
    }
    strange.sort_unstable();
    let listed = list(&**tier, "", Depth::All, 3);
    assert_eq!(listed.iter().map(|entry| entry.name.as_slice()).collect::<Vec<_>>(), strange);
    for name in &strange {
        assert_eq!(list(&**tier, name, Depth::One, 99)[0].name, *name, "as a prefix");
    }
    for name in strange {
        tier.delete(&key(name)).expect("delete");
    }
    assert_eq!(list(&**tier, "", Depth::All, 3), []);
}

pub(super) fn tree(tier: &Arc<dyn Tier>) {
    if !tier.capabilities().tree {
        return;
    }
    let (directory, file, below) = (key("d"), key("d/file"), key("d/file/below"));
    put(&**tier, &file, b"here");
    let refused = |answer: Result<(), TierError>| {
        assert!(matches!(answer, Err(TierError::NotObject { .. })), "{answer:?}");
    };
    let try_put = |name| {
        let upload = tier.begin(name, Attributes::default())?;
        upload.commit(Precondition::Any).map(drop)
    };
    refused(try_put(&below));
    refused(tier.stat(&below).map(drop));
    refused(tier.rename(&file, &directory));
    refused(tier.rename(&file, &key("d/file/deeper")));
    refused(try_put(&directory));
    refused(tier.stat(&directory).map(drop));
    refused(tier.open(&directory).map(drop));
    refused(tier.delete(&directory));
    refused(tier.set_attributes(&directory, Attributes::default()));
    assert_eq!(get(&**tier, &file), b"here");
    tier.delete(&file).expect("delete");
    assert_eq!(names(&list(&**tier, "", Depth::One, 9)), ["d/"], "directories stay");
    assert!(is_missing(tier.stat(&below)));
}
