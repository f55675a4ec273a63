//! One writer, another reader: the whole path, once.

use hayase_container::{Access, Container, ContainerFile, Creation, Durability, Identity};
use hayase_layout::{ByteCount, GlobalOffset, NodeId, Rank};

fn identity(rank: u32) -> Identity {
    Identity { node: NodeId(0), process: 100 + rank, opening: 0, rank: Rank(rank) }
}

#[test]
fn what_is_published_is_read_by_others() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = Container::open(&path, Creation::Exclusive).unwrap();
    let open = |rank| {
        ContainerFile::open(container.clone(), Access::ReadWrite, identity(rank), None).unwrap()
    };
    let (writer, reader) = (open(0), open(1));
    writer.write_at(GlobalOffset(3), b"hello").unwrap();
    let mut buffer = [9; 16];
    assert_eq!(writer.read_at(GlobalOffset(0), &mut buffer).unwrap(), 8);
    assert_eq!(&buffer[..8], b"\0\0\0hello");
    assert_eq!(reader.read_at(GlobalOffset(0), &mut buffer).unwrap(), 0);
    writer.sync(Durability::Durable).unwrap();
    assert_eq!(reader.size().unwrap(), ByteCount::ZERO, "not before it refreshes");
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.read_at(GlobalOffset(2), &mut buffer).unwrap(), 6);
    assert_eq!(&buffer[..6], b"\0hello");
    writer.close(Durability::Written).unwrap();
    Container::delete(&path).unwrap();
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
}
