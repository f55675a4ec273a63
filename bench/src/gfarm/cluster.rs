//! The Gfarm that is measured, brought up by `bench/gfarm/cluster.sh`.
//!
//! The script takes everything away when its standard input ends: with this process, however that ends.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::bench::Bench;
use crate::command::run;
use crate::process_times::with_children;

const SCRIPT: &str = "bench/gfarm/cluster.sh";
const PATIENCE: Duration = Duration::from_secs(60);
/// Gfarm makes copies behind the answer of who asked for them.
const COPY_LOOK: Duration = Duration::from_millis(100);
const COPY_LOOKS: u32 = 300;
/// Its servers remove bytes behind the answer as well: how often it is looked, and how often nothing changed.
const ROOM_LOOK: Duration = Duration::from_millis(20);
const ROOM_LOOKS: u32 = 1500;
const ROOM_REST: u32 = 3;
/// What may have grown for good.
const ROOM_MARGIN: u64 = 4 << 20;

/// Our mount, in the place of a set of options of gfarm2fs.
pub(crate) const HAYASE: &str = "hayase";

/// One Gfarm; gone when dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    script: Child,
    work: PathBuf,
    id: String,
    /// Of the nodes, from 1 on.
    addresses: Vec<String>,
    mounts: Vec<Mount>,
    /// Bytes used where the spools are, before there are files.
    used: u64,
}

#[derive(Debug)]
struct Mount {
    kind: String,
    process: u32,
}

impl Cluster {
    /// Three nodes, each with our mount and with gfarm2fs of these kinds (see the script).
    pub(crate) fn up(bench: &Bench, kinds: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new("bash");
        command.arg(SCRIPT).arg(bench.hayase()).args(kinds);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for the bench; the script sees its end.
        command.process_group(0);
        let mut script = command.spawn().context("start bash")?;
        let said = BufReader::new(script.stdout.take().context("the script has no output")?);
        let (work, id) = (PathBuf::new(), String::new());
        let (addresses, mounts) = (Vec::new(), Vec::new());
        let mut cluster = Self { script, work, id, addresses, mounts, used: 0 };
        for line in said.lines() {
            let line = line.context("listen to the script")?;
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["work", work] => cluster.work = work.into(),
                ["id", id] => id.clone_into(&mut cluster.id),
                ["address", _, address] => cluster.addresses.push(address.to_owned()),
                ["mount", kind, _, process] => {
                    let process = process.parse().context("the number of a mount")?;
                    cluster.mounts.push(Mount { kind: kind.to_owned(), process });
                }
                ["ready"] => {
                    cluster.used = cluster.used_now()?.0;
                    return Ok(cluster);
                }
                _ => bail!("{SCRIPT} said `{line}`"),
            }
        }
        bail!("no Gfarm came up: are its packages (gfmd, gfsd, gfarm-client, gfarm2fs) here?")
    }

    /// Where a node shows the whole Gfarm; visible from everywhere.
    pub(crate) fn mount(&self, kind: &str, node: u16) -> PathBuf {
        self.work.join(format!("mnt/{kind}-{node}"))
    }

    /// On the file system of the spools, past Gfarm.
    pub(crate) fn native(&self, node: u16) -> PathBuf {
        self.work.join(format!("native/{node}"))
    }

    /// Runs a program on a node to its end; what it said.
    pub(crate) fn on(&self, node: u16, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}-{node}", self.id));
        command.arg(format!("--uts={}", self.work.join(format!("gfarm/uts-{node}")).display()));
        command.env("GFARM_CONFIG_FILE", self.work.join("gfarm/client.conf")).args(words);
        run(&mut command, PATIENCE)?.success(&words.join(" "))
    }

    /// A script for mpiexec: `NODE KIND CMD...` runs on that node, with its mount of that kind at [`Cluster::place`].
    pub(crate) fn rank(&self) -> PathBuf {
        self.work.join("rank")
    }

    /// See [`Cluster::rank`].
    pub(crate) fn place(&self) -> PathBuf {
        self.work.join("at")
    }

    /// Bytes that have come to a node over its link, or gone from it.
    pub(crate) fn carried(&self, node: u16) -> anyhow::Result<u64> {
        let text = self.on(node, &["cat", "/proc/net/dev"])?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
        let numbers: Vec<&str> = line.context("node without a link")?.split_whitespace().collect();
        ensure!(numbers.len() > 8, "/proc/net/dev says `{text}`");
        Ok(numbers[0].parse::<u64>()? + numbers[8].parse::<u64>()?)
    }

    /// Waits until the file lies on these nodes and no others.
    pub(crate) fn await_hosts(&self, path: &str, nodes: &[u16]) -> anyhow::Result<()> {
        let mut hosts = Vec::new();
        for _ in 0..COPY_LOOKS {
            let said = self.on(1, &["gfwhere", path])?;
            let of = |(_, address): &(u16, &String)| said.split_whitespace().any(|h| h == *address);
            hosts = (1..).zip(&self.addresses).filter(of).map(|(node, _)| node).collect();
            if hosts == nodes {
                return Ok(());
            }
            std::thread::sleep(COPY_LOOK);
        }
        bail!("{path} lies on nodes {hosts:?}, not on {nodes:?}")
    }

    /// Waits until the servers have given back what was removed: the next one to be measured shall not pay for it.
    pub(crate) fn await_removals(&self) -> anyhow::Result<()> {
        let (mut before, mut rest) = (self.used_now()?, 0);
        for _ in 0..ROOM_LOOKS {
            std::thread::sleep(ROOM_LOOK);
            let now = self.used_now()?;
            rest = if now == before { rest + 1 } else { 0 };
            if rest >= ROOM_REST && now.0 <= self.used + ROOM_MARGIN {
                return Ok(());
            }
            before = now;
        }
        bail!(
            "{} bytes more than at the start are in use after all was removed",
            before.0 - self.used
        )
    }

    /// Bytes and inodes where the spools are.
    fn used_now(&self) -> anyhow::Result<(u64, u64)> {
        let room = rustix::fs::statvfs(&self.work).context("look at the room of the spools")?;
        Ok(((room.f_blocks - room.f_bfree) * room.f_frsize, room.f_files - room.f_ffree))
    }

    /// The processes that serve all mounts of a kind; those that they started too.
    pub(crate) fn daemons(&self, kind: &str) -> Vec<u32> {
        let own = self.mounts.iter().filter(|mount| mount.kind == kind).map(|m| m.process);
        own.flat_map(with_children).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
