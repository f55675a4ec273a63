//! Writers that are killed while they write and publish: what they said was published is there, every byte
//! that is there is right, and the rest is reported.
//!
//! The test starts its own program again for each writer: once more this one test, which the environment
//! then tells to write until it is killed.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hayase_container::{
    Access, Container, ContainerFile, Creation, Durability, Finished, Identity, Reader, Write,
    check,
};
use hayase_layout::{
    ByteCount, Extent, GlobalOffset, NodeId, Rank, Run, StreamExtent, StreamOffset, View,
};

const WRITERS: u64 = 3;
const BLOCK: u64 = 700;
const ROUNDS: u32 = 8;

/// Every byte of the file has one right value.
fn value(offset: u64) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 11) as u8 | 1
}

/// Set for a writer: its number.
const NUMBER: &str = "HAYASE_TEST_WRITER";
/// Set for a writer: the container.
const PATH: &str = "HAYASE_TEST_CONTAINER";

#[test]
fn what_killed_writers_had_published_is_there() {
    match (std::env::var_os(PATH), std::env::var(NUMBER)) {
        (Some(path), Ok(number)) => {
            write_until_killed(Path::new(&path), number.parse().unwrap());
        }
        _ => kill_writers(),
    }
}

/// Alternates between its view and explicit offsets behind it, publishes, and tells how many bytes of its
/// view are published.
fn write_until_killed(path: &Path, number: u64) {
    let container = Container::open(path, Creation::Never).unwrap();
    let (process, rank) = (std::process::id(), Rank(number as u32));
    let who = Identity { node: NodeId(0), process, opening: 0, rank };
    let file = ContainerFile::open(container, Access::ReadWrite, who, None).unwrap();
    let view = view_of(number);
    let id = file.declare_view(&view);
    let mut told = std::io::stderr(); // where the harness of the tests writes nothing
    for step in 0u64.. {
        let start = step * 1000;
        let window = StreamExtent::new(StreamOffset(start), ByteCount(1000)).unwrap();
        let bytes: Vec<u8> = (start..start + 1000).map(|at| value(place(number, at))).collect();
        file.write(Write::Through { view: id, window }, &bytes).unwrap();
        let far = (1 << 40) + (step * step * WRITERS + number) * BLOCK; // irregular: many records
        let bytes: Vec<u8> = (far..far + 10).map(value).collect();
        file.write_at(GlobalOffset(far), &bytes).unwrap();
        file.sync(Durability::Written).unwrap();
        writeln!(told, "{}", start + 1000).unwrap();
    }
}

fn view_of(number: u64) -> View {
    let block = Extent::new(GlobalOffset(number * BLOCK), ByteCount(BLOCK)).unwrap();
    let run = Run::contiguous(block).unwrap();
    View::new(GlobalOffset(0), ByteCount(WRITERS * BLOCK), &[run]).unwrap()
}

/// Where byte `at` of a writer's stream lies.
fn place(number: u64, at: u64) -> u64 {
    (at / BLOCK * WRITERS + number) * BLOCK + at % BLOCK
}

fn kill_writers() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = Container::open(&path, Creation::Exclusive).unwrap();
    let mut published = 0;
    for round in 0..ROUNDS {
        let told: Vec<_> =
            start(&path).into_iter().map(|writer| stop(writer, 20 << (round / 2))).collect();
        for (number, told) in (0..).zip(&told) {
            require_published(&container, number, *told);
        }
        require_right(&container);
        let report = check(&path).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        assert!(!report.problems.is_empty(), "that they were killed is said");
        published += told.iter().sum::<u64>();
    }
    container.compact(Finished::All).unwrap();
    require_right(&container);
    println!("{} writers killed, {published} published bytes read", WRITERS * u64::from(ROUNDS));
}

fn start(path: &Path) -> Vec<Child> {
    let writer = |number: u64| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let this = concat!(module_path!(), "::what_killed_writers_had_published_is_there");
        let (_, name) = this.split_once("::").unwrap(); // without the name of the program
        command.args([name, "--exact", "--nocapture"]);
        command.env(PATH, path).env(NUMBER, number.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    (0..WRITERS).map(writer).collect()
}

/// Kills it behind `lines` publications; what it had told by then.
fn stop(mut writer: Child, lines: usize) -> u64 {
    let mut output = BufReader::new(writer.stderr.take().unwrap());
    let mut told = 0;
    let mut line = String::new();
    for _ in 0..lines {
        line.clear();
        output.read_line(&mut line).unwrap();
        told = line.trim().parse().unwrap();
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
    // What it told until then counts as well.
    for line in output.lines().map_while(Result::ok) {
        told = line.parse().unwrap_or(told);
    }
    told
}

fn require_published(container: &Container, number: u64, told: u64) {
    let reader = Reader::new(container, &container.load().unwrap()).unwrap();
    let mut bytes = vec![0; told as usize];
    let count = reader.read_through(&view_of(number), StreamOffset(0), &mut bytes).unwrap();
    assert_eq!(count as u64, told);
    assert!((0..told).zip(&bytes).all(|(at, byte)| *byte == value(place(number, at))));
}

/// Whatever is written is right; the rest is holes.
fn require_right(container: &Container) {
    let reader = Reader::new(container, &container.load().unwrap()).unwrap();
    let mut at = GlobalOffset(0);
    let mut buffer = vec![0; 1 << 20];
    while let Some(start) = reader.next_data(at) {
        let end = reader.next_hole(start).unwrap();
        let len = (end.0 - start.0).min(buffer.len() as u64) as usize;
        assert_eq!(reader.read_at(start, &mut buffer[..len]).unwrap(), len);
        assert!((start.0..).zip(&buffer[..len]).all(|(at, byte)| *byte == value(at)));
        at = GlobalOffset(start.0 + len as u64);
    }
}
