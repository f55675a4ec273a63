//! A file system beside ours on the nodes of a job: its servers and their storage on node 0, its mount on node 1.
//!
//! Each side is a script (`bench/peers`) in process namespaces of its own. It ends when its standard input does: with
//! this process, however that ends; and whatever it started ends with it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::bench::Bench;
use crate::job::Job;
use crate::journal::Thing;
use crate::process_times::{name, with_children};

const SCRIPTS: &str = "bench/peers";
/// A script takes its mount away and ends its daemons.
const END_MAX: Duration = Duration::from_secs(20);
const END_STEP: Duration = Duration::from_millis(10);

/// What is known of a peer before it runs.
#[derive(Debug)]
pub(super) struct Kind {
    /// For people.
    pub(super) name: &'static str,
    /// Below [`SCRIPTS`].
    script: &'static str,
    /// Which programs move bytes on node 0.
    serving: &'static str,
    /// And on node 1.
    client: &'static str,
    /// Each way to use it, and where the script shows that.
    pub(super) ways: &'static [(&'static str, &'static str)],
}

pub(super) const KINDS: [Kind; 2] = [
    Kind {
        name: "GlusterFS",
        script: "gluster.sh",
        serving: "glusterfsd",
        client: "glusterfs",
        ways: &[("GlusterFS", "default")],
    },
    Kind {
        name: "gfarm2fs",
        script: "gfarm.sh",
        serving: "gfsd",
        client: "gfarm2fs",
        ways: &[("gfarm2fs big_writes", "big"), ("gfarm2fs direct_io", "direct")],
    },
];

/// One that runs; gone when dropped, the mount first.
#[derive(Debug)]
pub(super) struct Peer<'a> {
    pub(super) kind: &'static Kind,
    place: PathBuf,
    client: Side<'a>,
    server: Side<'a>,
}

impl<'a> Peer<'a> {
    /// Its storage lies beside the parts of our server.
    pub(super) fn up(bench: &'a Bench, job: &Job<'_>, kind: &'static Kind) -> anyhow::Result<Self> {
        let work = bench.scratch().join(bench.new_name());
        let place = work.join("mount");
        std::fs::create_dir_all(&place).with_context(|| format!("make {}", place.display()))?;
        let storage = job.image(0).join(format!("bench-{}", kind.name));
        let address = &job.nodes()[0].address;
        let script = std::path::absolute(Path::new(SCRIPTS).join(kind.script))?;
        let side = |node: u16, verb: &str, at: &Path| {
            let mut command = job.on_node(node, "unshare");
            command.args(["--pid", "--fork", "--kill-child"]);
            // What node 1 has mounted its programs must see.
            command.args(["--mount", "--mount-proc"].iter().filter(|_| node == 0));
            command.arg("bash").arg(&script).args([verb, address]).arg(at).arg(&work);
            Side::start(bench, command).with_context(|| format!("{} {verb}", kind.script))
        };
        let server = side(0, "serve", &storage)?;
        let client = side(1, "mount", &place)?;
        let peer = Self { kind, place, client, server };
        for process in [peer.serving()?, peer.clients()?].concat() {
            bench.give_precedence(process)?;
        }
        Ok(peer)
    }

    /// On node 1; all ways have the same files.
    pub(super) fn point(&self, way: &str) -> PathBuf {
        self.place.join(way)
    }

    /// The processes that serve bytes on node 0, as they are now.
    pub(super) fn serving(&self) -> anyhow::Result<Vec<u32>> {
        self.server.processes(self.kind.serving)
    }

    /// And the mount on node 1.
    pub(super) fn clients(&self) -> anyhow::Result<Vec<u32>> {
        self.client.processes(self.kind.client)
    }
}

/// A script that runs, with all that it has started.
#[derive(Debug)]
struct Side<'a> {
    bench: &'a Bench,
    script: Child,
}

impl<'a> Side<'a> {
    /// Returns when it says that it is ready.
    fn start(bench: &'a Bench, mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for the bench; the script sees its end.
        command.process_group(0);
        let script = command.spawn().context("start a script")?;
        let mut side = Self { bench, script };
        bench.guard().made(side.thing())?;
        let said = side.script.stdout.take().context("the script has no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).context("listen to the script")?;
        if line.trim_end() != "ready" {
            bail!("it does not come up");
        }
        Ok(side)
    }

    fn thing(&self) -> Thing {
        Thing::Ending(self.script.id())
    }

    fn processes(&self, program: &str) -> anyhow::Result<Vec<u32>> {
        let mut all = with_children(self.script.id());
        all.retain(|process| name(*process).as_deref() == Some(program));
        if all.is_empty() {
            bail!("no {program} runs");
        }
        Ok(all)
    }
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let until = Instant::now() + END_MAX;
        while matches!(self.script.try_wait(), Ok(None)) {
            if Instant::now() > until {
                // All that it started goes with it.
                let _ = self.script.kill();
                let _ = self.script.wait();
                break;
            }
            std::thread::sleep(END_STEP);
        }
        let _ = self.bench.guard().removed(self.thing());
    }
}
