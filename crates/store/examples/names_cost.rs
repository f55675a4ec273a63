//! What one operation on names and parts costs: prints microseconds of CPU and of time.
//!
//! Usage: `cargo run --release -p hayase-store --example names_cost [DIRECTORY [COUNT]]`. The
//! directory should lie on the file system that is to be judged; it is emptied of what this makes.
#![expect(clippy::print_stdout, reason = "the figures are for a person")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::namespace::ops;
use hayase_store::{
    EntryRecord, FileKind, FjallStore, Inode, MetaStore, Namespace, PartId, Parts, PreadDevice,
    Time,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let count: u64 = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let directory = directory.join(format!("names-cost-{}", std::process::id()));
    println!(
        "{count} files in {}; microseconds for each: CPU of the process, time",
        directory.display()
    );
    let fjall: Arc<dyn MetaStore> = Arc::new(FjallStore::open(&directory.join("meta"))?);
    names(fjall.clone(), count)?;
    parts(&directory, count)?;
    let (cpu, start) = (cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    println!(
        "idle CPU in {:.1} s: {:.3} ms",
        start.elapsed().as_secs_f64(),
        (self::cpu() - cpu) * 1e3
    );
    println!("memory: {}", resident()?);
    drop(fjall);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn names(store: Arc<dyn MetaStore>, count: u64) -> Result<(), Box<dyn Error>> {
    let now = Time { seconds: 1_700_000_000, nanos: 5 };
    let names = Namespace::open(store, ServerId(0), now)?;
    let mut inos = Vec::new();
    measure("names: create (inode, back pointer, entry)", count, |i| {
        let ino = names.allocate()?;
        inos.push(ino);
        let mut txn = names.begin();
        let name = name(i);
        ops::create(&mut txn, &inode(ino, &name, now), None)?;
        let entry = EntryRecord { ino, kind: FileKind::Regular };
        ops::insert(&mut txn, InodeId::ROOT, &name, entry)?.map_err(|_| "exists")?;
        Ok(txn.commit()?)
    })?;
    measure("names: lookup", count, |i| {
        ops::lookup(&names.begin(), InodeId::ROOT, &name(i * 7919 % count))?.ok_or("missing")?;
        Ok(())
    })?;
    measure("names: lookup of a name that is not there", count, |i| {
        ops::lookup(&names.begin(), InodeId::ROOT, &name(i + count))?;
        Ok(())
    })?;
    measure("names: inode, used lately", count, |i| {
        ops::get_inode(&names.begin(), inos[(i % 1000) as usize])?.ok_or("missing")?;
        Ok(())
    })?;
    measure("names: inode, any", count, |i| {
        ops::get_inode(&names.begin(), inos[(i * 7919 % count) as usize])?.ok_or("missing")?;
        Ok(())
    })?;
    let mut after = 0;
    measure("names: list, 1000 names", count / 1000, |_| {
        after = ops::list(&names.begin(), InodeId::ROOT, after, 1000)?.last().map_or(0, |e| e.0);
        Ok(())
    })?;
    measure("names: unlink and remove", count, |i| {
        let (name, ino) = (name(i), inos[i as usize]);
        let mut txn = names.begin();
        ops::lookup(&txn, InodeId::ROOT, &name)?.ok_or("missing")?;
        ops::remove_entry(&mut txn, InodeId::ROOT, &name);
        ops::unlink(&mut txn, ino, InodeId::ROOT, &name, now, ops::Nameless::Removed)?;
        Ok(txn.commit()?)
    })
}

fn parts(directory: &std::path::Path, count: u64) -> Result<(), Box<dyn Error>> {
    let parts = Parts::open(Arc::new(PreadDevice::open(&directory.join("parts"))?), 256);
    let id = |i: u64| PartId { ino: InodeId(i + 2), epoch: 0, index: 0 };
    measure("parts: create, most are closed again", count, |i| {
        parts.create(id(i))?;
        Ok(())
    })?;
    measure("parts: get, open already", count, |i| {
        parts.get(id(count - 1 - i % 100))?;
        Ok(())
    })?;
    measure("parts: get, to be opened", count, |i| {
        parts.get(id(i))?;
        Ok(())
    })?;
    measure("parts: stat", count, |i| {
        parts.get(id(count - 1 - i % 100))?.stat()?;
        Ok(())
    })?;
    measure("parts: quiescence probe", count / 10, |i| {
        parts.get(id(count - 1 - i % 100))?.is_quiescent()?;
        Ok(())
    })?;
    measure("parts: remove", count, |i| Ok(parts.remove(id(i))?))
}

fn measure(
    what: &str,
    count: u64,
    mut operation: impl FnMut(u64) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (cpu, start) = (cpu(), Instant::now());
    for i in 0..count {
        operation(i)?;
    }
    let per = 1e6 / count as f64;
    let (cpu, time) = ((self::cpu() - cpu) * per, start.elapsed().as_secs_f64() * per);
    println!("{what:48} {cpu:8.2} {time:8.2}");
    Ok(())
}

fn name(i: u64) -> Vec<u8> {
    format!("file-{i:08}.dat").into_bytes()
}

fn inode(ino: InodeId, name: &[u8], now: Time) -> Inode {
    Inode {
        mode: 0o644,
        layout: Layout::Whole,
        name: Some((InodeId::ROOT, name.to_vec())),
        ..Inode::new(ino, FileKind::Regular, now)
    }
}

/// CPU seconds of all threads of this process.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident() -> Result<String, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let lines =
        status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    Ok(lines.map(|line| line.replace('\t', " ")).collect::<Vec<_>>().join(", "))
}
