//! Access control lists at their homes: what a program without a mount inherits, and how many one message carries.

use hayase_layout::acl::DEFAULT_NAME;
use hayase_layout::{Acl, Acls, InodeId};
use hayase_wire::message::{Attr, FileKind, NodeReply, NodeRequest, ParentPolicy, XattrMode};

use crate::cluster::{Cluster, Process};

const ROOT: InodeId = InodeId::ROOT;
const ENTRIES: u32 = 128;

/// The longest list that there may be: users and groups may read, the owner all.
fn longest() -> Vec<u8> {
    let users = (0..ENTRIES - 4).map(|user| (2, 4_000_000_000 + user, 4));
    let entries = [(1, u32::MAX, 7)].into_iter().chain(users);
    let entries = entries.chain([(4, u32::MAX, 4), (16, u32::MAX, 4), (32, u32::MAX, 0)]);
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, id, bits) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::to_le_bytes(bits));
        value.extend(u32::to_le_bytes(id));
    }
    value
}

fn directory(process: &mut Process) -> Attr {
    let made = process.create(ROOT, "dir", FileKind::Directory).expect("made");
    let (name, value) = (DEFAULT_NAME.to_vec(), longest());
    let set = NodeRequest::SetXattr { ino: made.ino, name, value, mode: XattrMode::Set };
    process.ask(&set).expect("set");
    process.attr(made.ino).expect("there")
}

fn lists(access: Option<Acl>, default: Option<Acl>) -> Acls {
    Acls { access, default, in_tier: false }
}

#[test]
fn who_knows_nothing_of_a_directory_inherits_its_list() {
    let cluster = Cluster::up(2);
    let dir = directory(&mut cluster.process(0));
    let default = Acl::parse(&longest()).expect("a list");
    assert_eq!(dir.acls, Some(Box::new(lists(None, default.clone()))));
    for node in [0, 1] {
        let mut process = cluster.process(node);
        let mut make = |kind| {
            let name = format!("{kind:?}-{node}");
            let made = process.create_in(dir.ino, &name, kind, ParentPolicy::Unknown);
            process.attr(made.expect("made").ino).expect("there")
        };
        let file = make(FileKind::Regular);
        assert_eq!(file.mode, 0o640, "node {node}");
        let mut access = default.clone().expect("a list");
        access.chmod(0o640);
        assert_eq!(file.acls, Some(Box::new(lists(Some(access), None))));
        let below = make(FileKind::Directory);
        assert_eq!(below.acls.expect("both").default, default);
        let link = make(FileKind::Symlink);
        assert_eq!((link.mode, link.acls), (0o644, None), "as it was asked for");
    }
}

#[test]
fn a_listing_with_long_lists_fits_into_its_message() {
    let cluster = Cluster::up(2);
    let mut process = cluster.process(0);
    let dir = directory(&mut process).ino;
    for number in 0..400 {
        let mut maker = cluster.process(number % 2);
        let name = format!("{number:03}");
        maker.create_in(dir, &name, FileKind::Directory, ParentPolicy::Unknown).expect("made");
    }
    let list = NodeRequest::ReadDir { dir, cookie: 0, bytes: 16 << 10, plus: true };
    let Ok(NodeReply::Entries(entries)) = process.ask(&list) else { panic!("no listing") };
    assert_eq!(entries.len(), 400);
    let known = entries.iter().filter(|entry| entry.entry.is_some()).count();
    assert!((10..100).contains(&known), "{known} with attributes, the others are asked for");
}
