//! Test 38 of the coherence protocol: every mutating message arrives twice, its reply lost the first time.
//!
//! The operations of a small script run on a job of two servers. Each is run once for each frame that travels between
//! the servers for it: that frame's connection breaks, either instead of the frame (the reply is lost, or the request
//! never came) or right behind it (the request came, its answer can not). Connections that are made anew repeat what
//! was under way, beside what others send: nothing may be done twice, nor be left out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, FrameFaults, Process, RW};
use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_wire::message::{FileKind, MetaChange, NodeReply, NodeRequest, Refused, XattrMode};

/// No operation sends more frames than this, heartbeats included.
const FRAMES_MAX: u64 = 60;

/// Files and a directory in a directory of the operation's own.
struct Stage {
    dir: InodeId,
    file: InodeId,
    striped: InodeId,
}

type Operation = (&'static str, fn(&mut Process, &Stage) -> Result<(), Refused>);

fn done(reply: Result<NodeReply, Refused>) -> Result<(), Refused> {
    reply.map(drop)
}

const OPERATIONS: &[Operation] = &[
    ("create", |process, stage| process.create(stage.dir, "new", FileKind::Regular).map(drop)),
    ("mkdir", |process, stage| process.create(stage.dir, "sub", FileKind::Directory).map(drop)),
    ("link", |process, stage| {
        let name = b"link".to_vec();
        done(process.ask(&NodeRequest::Link { ino: stage.file, parent: stage.dir, name }))
    }),
    ("unlink", |process, stage| process.remove(stage.dir, "file", false)),
    ("rmdir", |process, stage| process.remove(stage.dir, "empty", true)),
    ("rename", |process, stage| process.rename((stage.dir, "file"), (stage.dir, "moved"))),
    ("replace", |process, stage| process.rename((stage.dir, "file"), (stage.dir, "other"))),
    ("write", |process, stage| process.write(stage.file, 10, &[9; 3000])),
    ("write over stripes", |process, stage| process.write(stage.striped, 100, &[9; 9000])),
    ("append", |process, stage| process.append(stage.file, &[8; 100]).map(drop)),
    ("append to stripes", |process, stage| process.append(stage.striped, &[8; 5000]).map(drop)),
    ("truncate", |process, stage| set(process, stage.file, 77)),
    ("truncate stripes", |process, stage| set(process, stage.striped, 77)),
    ("set xattr", |process, stage| {
        let (ino, name, value) = (stage.file, b"user.a".to_vec(), b"v".to_vec());
        done(process.ask(&NodeRequest::SetXattr { ino, name, value, mode: XattrMode::Create }))
    }),
    ("remove xattr", |process, stage| {
        let (ino, name) = (stage.file, b"user.old".to_vec());
        done(process.ask(&NodeRequest::RemoveXattr { ino, name }))
    }),
];

fn set(process: &mut Process, ino: InodeId, size: u64) -> Result<(), Refused> {
    let change = MetaChange { size: Some(size), ..MetaChange::default() };
    done(process.ask(&NodeRequest::SetAttr { ino, change }))
}

/// Everything is made on node 0, and used from node 1.
fn prepare(maker: &mut Process, name: &str) -> Stage {
    let dir = maker.create(InodeId::ROOT, name, FileKind::Directory).expect("a directory").ino;
    let file = maker.create(dir, "file", FileKind::Regular).expect("a file").ino;
    maker.create(dir, "other", FileKind::Regular).expect("another file");
    maker.create(dir, "empty", FileKind::Directory).expect("an empty directory");
    let policy = StripePolicy { stripe: ByteCount::kib(4), width: 2 };
    let striped = maker.create_with(dir, "striped", FileKind::Regular, Some(policy));
    let striped = striped.expect("a striped file").ino;
    for ino in [file, striped] {
        maker.open(ino, RW).expect("opened");
        maker.write(ino, 0, &[1; 20_000]).expect("written");
    }
    let (name, value) = (b"user.old".to_vec(), b"v".to_vec());
    let old = NodeRequest::SetXattr { ino: file, name, value, mode: XattrMode::Create };
    maker.ask(&old).expect("an xattr");
    Stage { dir, file, striped }
}

/// What anybody can see of a stage: names with kind, links and size; bytes; xattrs.
fn seen(process: &mut Process, stage: &Stage) -> Vec<String> {
    let mut names = process.names(stage.dir);
    names.sort();
    let mut seen: Vec<String> = names
        .iter()
        .map(|name| {
            let attr = process.lookup(stage.dir, name).expect("a listed name is found").attr;
            format!("{name}: {:?}, {} links, {} bytes", attr.kind, attr.nlink, attr.size)
        })
        .collect();
    for ino in [stage.file, stage.striped] {
        seen.push(match process.read(ino, 0, 40_000) {
            Ok(bytes) => format!("{} bytes, sum {}", bytes.len(), sum(&bytes)),
            Err(refused) => format!("errno {}", refused.errno),
        });
    }
    match process.ask(&NodeRequest::ListXattr { ino: stage.file }) {
        Ok(NodeReply::Names(names)) => seen.push(format!("{names:?}")),
        other => seen.push(format!("{other:?}")),
    }
    seen
}

/// Depends on the place of each byte.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// Runs one operation with a fault at frame `at`; false when it needs no such frame.
fn run(
    cluster: &Cluster,
    faults: &Arc<FrameFaults>,
    (name, operation): &Operation,
    (at, behind): (u64, bool),
    expected: Option<&Vec<String>>,
) -> (bool, Vec<String>) {
    let (mut maker, mut user) = (cluster.process(0), cluster.process(1));
    let stage = prepare(&mut maker, &format!("{name}-{at}-{behind}"));
    for ino in [stage.file, stage.striped] {
        user.open(ino, RW).expect("opened");
    }
    if at > 0 {
        faults.arm(at, behind);
    }
    let result = operation(&mut user, &stage);
    let was_reached = at == 0 || faults.disarm();
    let place = if behind { "behind" } else { "instead of" };
    assert_eq!(result, Ok(()), "{name}, the connection breaks {place} frame {at}");
    // What is finished behind the caller's back is finished soon.
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = seen(&mut user, &stage);
        let also = seen(&mut maker, &stage);
        let agrees = now == also && expected.is_none_or(|expected| *expected == now);
        if agrees {
            return (was_reached, now);
        }
        assert!(
            Instant::now() < until,
            "{name}, the connection breaks {place} frame {at}: node 1 sees {now:#?}, node 0 {also:#?}, not \
             {expected:#?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn coherence_38_every_message_may_arrive_twice() {
    let faults = FrameFaults::new();
    let cluster = Cluster::up_with_faults(2, &faults);
    let mut total = 0;
    for operation in OPERATIONS {
        let (_, expected) = run(&cluster, &faults, operation, (0, false), None);
        for behind in [false, true] {
            let frames = (1..=FRAMES_MAX).take_while(|at| {
                let (reached, _) =
                    run(&cluster, &faults, operation, (*at, behind), Some(&expected));
                reached
            });
            let frames = frames.count() as u64;
            assert!(frames < FRAMES_MAX, "{}: more frames than are tried", operation.0);
            assert!(frames > 0, "{}: nothing travelled", operation.0);
            total += frames;
        }
    }
    println!("{} operations, {total} broken connections", OPERATIONS.len());
}
