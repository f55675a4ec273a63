//! Access control lists in the cache area: on the nodes, on their way to the tier, and from there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hayase_layout::acl::{ACCESS_NAME, DEFAULT_NAME};
use hayase_layout::{Acl, Acls, ByteCount, InodeId};
use hayase_tier::flaky::Call;
use hayase_tier::{
    Action, Attributes, Flaky, Key, Memory, Precondition, Tier, XattrChanges, Xattrs,
};
use hayase_wire::message::{
    Attr, FileKind, MetaChange, NodeReply, NodeRequest, ParentPolicy, XattrMode,
};

use crate::cached_xattrs::{Scene, wait_until};
use crate::cluster::{Cluster, Process, write_again, write_new};

const TOP: InodeId = InodeId::CACHE_ROOT;
const ENODATA: i32 = 61;

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

const SHARED: [u8; 5] = [6, 6, 0, 6, 0];

fn key(path: &str) -> Key {
    Key::new(path).expect("a name")
}

fn parsed(value: &[u8]) -> Option<Acl> {
    Acl::parse(value).expect("a list")
}

fn set(process: &mut Process, ino: InodeId, name: &[u8], value: &[u8]) {
    let (name, value) = (name.to_vec(), value.to_vec());
    process.ask(&NodeRequest::SetXattr { ino, name, value, mode: XattrMode::Set }).expect("set");
}

fn get(process: &mut Process, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, i32> {
    match process.ask(&NodeRequest::GetXattr { ino, name: name.to_vec() }) {
        Ok(NodeReply::Value(value)) => Ok(value),
        Ok(other) => panic!("{other:?}"),
        Err(refused) => Err(refused.errno),
    }
}

fn chmod(process: &mut Process, ino: InodeId, mode: u32) {
    let change = MetaChange { mode: Some(mode), ..MetaChange::default() };
    process.ask(&NodeRequest::SetAttr { ino, change }).expect("changed");
}

fn names(process: &mut Process, ino: InodeId) -> Vec<Vec<u8>> {
    match process.ask(&NodeRequest::ListXattr { ino }).expect("listed") {
        NodeReply::Names(names) => names,
        other => panic!("{other:?}"),
    }
}

fn access(value: &[u8]) -> Option<Box<Acls>> {
    Acls { access: parsed(value), ..Acls::default() }.kept()
}

/// The list of a file of the tier, and its mode.
fn in_tier(tier: &Memory, path: &str) -> (Option<Vec<u8>>, u32) {
    let mut xattrs = tier.user_xattrs(&key(path)).expect("there");
    (xattrs.remove(ACCESS_NAME), tier.stat(&key(path)).expect("there").mode)
}

/// Somebody else's file.
fn put(tier: &Memory, path: &str, bytes: &[u8], bits: [u8; 5]) {
    tier.put(&key(path), Attributes::default(), bytes, Precondition::Any).expect("there");
    give(tier, path, ACCESS_NAME, &list(bits));
}

fn give(tier: &Memory, path: &str, name: &[u8], value: &[u8]) {
    let changes = XattrChanges::from([(name.to_vec(), Some(value.to_vec()))]);
    tier.change_user_xattrs(&key(path), &changes).expect("set");
}

fn check(process: &mut Process, ino: InodeId, bits: [u8; 5], mode: u32) {
    assert_eq!(get(process, ino, ACCESS_NAME), Ok(list(bits)));
    let attr = process.attr(ino).expect("there");
    assert_eq!((attr.acls, attr.mode), (access(&list(bits)), mode));
}

#[test]
fn a_list_of_a_new_file_comes_to_the_tier_with_it() {
    for servers in [1, 3] {
        let mut scene = Scene::new(servers);
        let mut process = scene.cluster.process(0);
        scene.close();
        let ino = write_new(&mut process, TOP, "f", b"new");
        process.fsync(ino).expect("synced");
        set(&mut process, ino, ACCESS_NAME, &list(SHARED));
        let mut other = scene.cluster.process(servers - 1);
        check(&mut other, ino, SHARED, 0o660);
        assert_eq!(names(&mut other, ino), [ACCESS_NAME]);
        chmod(&mut other, ino, 0o640);
        check(&mut process, ino, [6, 6, 0, 4, 0], 0o640);
        // The homes of the inode and of its name.
        for server in 0..servers {
            scene.cluster.restart(server);
        }
        let mut process = scene.cluster.process(0);
        check(&mut process, ino, [6, 6, 0, 4, 0], 0o640);
        scene.reopen();
        wait_until("f", || scene.tier.stat(&key("f")).is_ok());
        assert_eq!(in_tier(&scene.tier, "f"), (Some(list([6, 6, 0, 4, 0])), 0o640));
        check(&mut process, ino, [6, 6, 0, 4, 0], 0o640);
    }
}

fn flushed(scene: &Scene, ino: InodeId) {
    wait_until("the ledger knows", || {
        let flush = scene.cluster.process(0).ask(&NodeRequest::Flush { ino });
        matches!(flush, Ok(NodeReply::Flushed(hayase_wire::message::Flushed::Durable)))
    });
}

/// Then it changes there at once, and is that of each later version.
#[test]
fn the_list_of_a_file_that_the_tier_has_changes_there() {
    let scene = Scene::new(3);
    let mut process = scene.cluster.process(0);
    let ino = write_new(&mut process, TOP, "f", b"first");
    flushed(&scene, ino);
    set(&mut process, ino, ACCESS_NAME, &list(SHARED));
    assert_eq!(in_tier(&scene.tier, "f"), (Some(list(SHARED)), 0o660));
    chmod(&mut process, ino, 0o640);
    assert_eq!(in_tier(&scene.tier, "f"), (Some(list([6, 6, 0, 4, 0])), 0o640));
    assert_eq!(process.lookup(TOP, "f").expect("there").attr.ino, ino, "taken for another file");
    write_again(&mut process, ino, b"again");
    flushed(&scene, ino);
    assert_eq!(in_tier(&scene.tier, "f"), (Some(list([6, 6, 0, 4, 0])), 0o640));
    process.rename((TOP, "f"), (TOP, "g")).expect("renamed");
    check(&mut process, ino, [6, 6, 0, 4, 0], 0o640);
    scene.close();
    write_again(&mut process, ino, b"moved while it is dirty");
    process.rename((TOP, "g"), (TOP, "h")).expect("renamed");
    scene.reopen();
    flushed(&scene, ino);
    assert_eq!(in_tier(&scene.tier, "h"), (Some(list([6, 6, 0, 4, 0])), 0o640));
    // Away, once as setfacl(1) does it and once as removexattr(2).
    for remove in [false, true] {
        set(&mut process, ino, ACCESS_NAME, &list(SHARED));
        match remove {
            false => set(&mut process, ino, ACCESS_NAME, &Acl::of_mode(0o600).to_value()),
            true => {
                let name = ACCESS_NAME.to_vec();
                process.ask(&NodeRequest::RemoveXattr { ino, name }).expect("removed");
            }
        }
        let mode = if remove { 0o660 } else { 0o600 };
        assert_eq!(in_tier(&scene.tier, "h"), (None, mode), "removed: {remove}");
        assert_eq!(get(&mut process, ino, ACCESS_NAME), Err(ENODATA));
        assert_eq!(process.attr(ino).expect("there").acls, None);
    }
    assert_eq!(process.names(TOP), ["h"], "a second version");
}

/// Kernels ask for lists when somebody else than the owner comes; most files are never asked for.
#[test]
fn a_list_of_the_tier_is_asked_for_once_and_not_before_somebody_wants_it() {
    let (tier, asked) = (Memory::new(), Arc::<AtomicU64>::default());
    put(&tier, "with", b"theirs", SHARED);
    tier.put(&key("without"), Attributes::default(), b"theirs", Precondition::Any).expect("there");
    let counted = Arc::clone(&asked);
    let flaky = Flaky::new(tier.clone(), move |call| {
        counted.fetch_add(u64::from(call == Call::Begun(Action::Xattrs)), Ordering::SeqCst);
        None
    });
    let cluster = Cluster::up_small(3, ByteCount::mib(256), Arc::new(flaky));
    let mut process = cluster.process(0);
    for (name, expected) in [("with", Ok(list(SHARED))), ("without", Err(ENODATA))] {
        let before = asked.load(Ordering::SeqCst);
        let attr: Attr = process.lookup(TOP, name).expect("there").attr;
        assert_eq!(attr.acls, Some(Acls::to_be_asked()), "{name}");
        assert_eq!(asked.load(Ordering::SeqCst), before, "{name}");
        for node in [0, 1, 2, 0] {
            let mut process = cluster.process(node);
            assert_eq!(get(&mut process, attr.ino, ACCESS_NAME), expected, "{name}");
            let known = process.attr(attr.ino).expect("there").acls;
            assert_eq!(known, expected.as_ref().ok().and_then(|value| access(value)));
        }
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{name}");
    }
}

/// Before anybody has asked for it: a mode that was set meanwhile counts, and so does a new version of others.
#[test]
fn a_list_of_the_tier_outlives_what_is_done_to_its_file() {
    let scene = Scene::new(3);
    for name in ["mode", "bytes", "both", "changed"] {
        put(&scene.tier, name, b"theirs", SHARED);
    }
    let mut process = scene.cluster.process(0);
    let mut ino = |name: &str| process.lookup(TOP, name).expect("there").attr.ino;
    let (mode, bytes, both, changed) = (ino("mode"), ino("bytes"), ino("both"), ino("changed"));
    chmod(&mut process, mode, 0o640);
    check(&mut process, mode, [6, 6, 0, 4, 0], 0o640);
    scene.close();
    for (ino, is_chmod) in [(bytes, false), (both, true)] {
        let change = MetaChange { size: Some(0), ..MetaChange::default() };
        process.ask(&NodeRequest::SetAttr { ino, change }).expect("emptied");
        write_again(&mut process, ino, b"ours");
        if is_chmod {
            chmod(&mut process, ino, 0o640);
        }
    }
    check(&mut process, both, [6, 6, 0, 4, 0], 0o640);
    scene.reopen();
    flushed(&scene, bytes);
    flushed(&scene, both);
    assert_eq!(in_tier(&scene.tier, "bytes"), (Some(list(SHARED)), 0o660));
    assert_eq!(in_tier(&scene.tier, "both"), (Some(list([6, 6, 0, 4, 0])), 0o640));
    check(&mut process, bytes, SHARED, 0o660);
    check(&mut process, changed, SHARED, 0o660);
    give(&scene.tier, "changed", ACCESS_NAME, &list([6, 0, 0, 6, 0]));
    wait_until("others changed it", || {
        let ino = process.lookup(TOP, "changed").expect("there").attr.ino;
        get(&mut process, ino, ACCESS_NAME) == Ok(list([6, 0, 0, 6, 0]))
    });
}

#[test]
fn what_is_made_in_a_directory_of_the_tier_inherits_its_list() {
    let scene = Scene::new(2);
    let tree = scene.tier.tree().expect("a tree");
    tree.make_directory(&key("d")).expect("made");
    let default = list([7, 7, 5, 7, 0]);
    give(&scene.tier, "d", DEFAULT_NAME, &default);
    for node in [0, 1] {
        let mut process = scene.cluster.process(node);
        let dir = process.lookup(TOP, "d").expect("there").attr.ino;
        let mut make = |kind| {
            let name = format!("{kind:?}-{node}");
            let made = process.create_in(dir, &name, kind, ParentPolicy::Unknown).expect("made");
            (name, made.ino)
        };
        let (file, ino) = make(FileKind::Regular);
        let (below, under) = make(FileKind::Directory);
        // As of mode 0644.
        check(&mut process, ino, [6, 7, 5, 4, 0], 0o640);
        assert_eq!(get(&mut process, under, DEFAULT_NAME), Ok(default.clone()));
        let of_tier = scene.tier.user_xattrs(&key(&format!("d/{below}"))).expect("there");
        let both = [(ACCESS_NAME, list([6, 7, 5, 4, 0])), (DEFAULT_NAME, default.clone())];
        let both = both.map(|(name, value)| (name.to_vec(), value));
        assert_eq!(of_tier, Xattrs::from(both));
        write_again(&mut process, ino, b"bytes");
        flushed(&scene, ino);
        let of_file = in_tier(&scene.tier, &format!("d/{file}"));
        assert_eq!(of_file, (Some(list([6, 7, 5, 4, 0])), 0o640));
    }
    let mut process = scene.cluster.process(0);
    let dir = process.lookup(TOP, "d").expect("there").attr.ino;
    let name = DEFAULT_NAME.to_vec();
    process.ask(&NodeRequest::RemoveXattr { ino: dir, name }).expect("removed");
    assert!(scene.tier.user_xattrs(&key("d")).expect("there").is_empty());
    assert_eq!(get(&mut process, dir, DEFAULT_NAME), Err(ENODATA));
}

/// The bits of the group in a mode are the mask: without the list they are not for the group.
#[test]
fn lists_stay_on_the_nodes_where_the_tier_keeps_none() {
    let scene = Scene::before(2, Memory::without_lists());
    let mut process = scene.cluster.process(0);
    let ino = write_new(&mut process, TOP, "f", b"first");
    let mode = || scene.tier.stat(&key("f")).expect("there").mode;
    set(&mut process, ino, ACCESS_NAME, &list(SHARED));
    check(&mut scene.cluster.process(1), ino, SHARED, 0o660);
    flushed(&scene, ino);
    assert_eq!(mode(), 0o600);
    // Of a file that the tier has, and of one that it has no longer as it is.
    set(&mut process, ino, ACCESS_NAME, &list([6, 6, 4, 6, 4]));
    assert_eq!(mode(), 0o644);
    chmod(&mut process, ino, 0o620);
    assert_eq!(mode(), 0o600);
    write_again(&mut process, ino, b"again");
    flushed(&scene, ino);
    assert_eq!(mode(), 0o600);
    check(&mut scene.cluster.process(1), ino, [6, 6, 4, 2, 0], 0o620);
    let dir = process.create(TOP, "d", FileKind::Directory).expect("made").ino;
    set(&mut process, dir, ACCESS_NAME, &list([7, 7, 0, 7, 0]));
    set(&mut process, dir, DEFAULT_NAME, &list([7, 7, 0, 7, 0]));
    let tree = scene.tier.tree().expect("a tree");
    assert_eq!(tree.directory(&key("d")).expect("there").mode, 0o700);
    let below = process.create_in(dir, "e", FileKind::Directory, ParentPolicy::Unknown);
    let below = below.expect("made").ino;
    assert_eq!(tree.directory(&key("d/e")).expect("there").mode, 0o600);
    assert_eq!(get(&mut process, below, ACCESS_NAME), Ok(list([6, 7, 0, 4, 0])));
    assert_eq!(names(&mut process, dir), [ACCESS_NAME, DEFAULT_NAME]);
}
