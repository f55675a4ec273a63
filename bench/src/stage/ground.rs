//! Where copies are measured: an S3 server (of this process, or a [`Gateway`]), and trees in memory.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hayase_s3_server::{ACCESS_KEY, BUCKET, Options, SECRET_KEY, Server};

use super::gateway::{self, Gateway};
use super::program::{self, Ran};
use crate::bench::Bench;
use crate::command;
use crate::guard::remove_tree;
use crate::journal::Thing;

/// A file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

/// Files of a directory.
const DIRECTORY_FILES: usize = 500;

/// Of the S3 server, for whoever is measured: with one, the MD5 of what comes up would be the limit.
const SERVER_THREADS: usize = 2;

/// For any one copy.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// See the module. Everything goes when it is dropped.
pub(super) struct Ground<'a> {
    bench: &'a Bench,
    /// `None` once it has ended.
    store: Option<Store>,
    top: PathBuf,
}

/// The S3 server.
enum Store {
    /// Of this process, with objects in memory.
    Own(Server),
    /// A gateway, and how many buckets it was given.
    Ceph(Gateway, Cell<u32>),
}

/// A tree of equal files.
#[derive(Clone, Copy)]
pub(super) struct Files {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

impl Files {
    pub(super) fn total(self) -> f64 {
        (self.count * self.bytes) as f64
    }
}

impl<'a> Ground<'a> {
    pub(super) fn new(bench: &'a Bench) -> anyhow::Result<Self> {
        let server = Server::start(&Options { threads: SERVER_THREADS, ..Options::default() })?;
        let mut ground = Self::bare(bench)?;
        ground.store = Some(Store::Own(server));
        Ok(ground)
    }

    /// The same with a Ceph gateway.
    pub(super) fn at_gateway(bench: &'a Bench) -> anyhow::Result<Self> {
        let mut ground = Self::bare(bench)?;
        let gateway = Gateway::up(&bench.scratch().join(bench.new_name()))?;
        ground.store = Some(Store::Ceph(gateway, Cell::new(0)));
        ground.empty_bucket()?;
        Ok(ground)
    }

    fn bare(bench: &'a Bench) -> anyhow::Result<Self> {
        let top = Path::new(MEMORY).join(bench.new_name());
        bench.guard().made(Thing::Tree(top.clone()))?;
        fs::create_dir(&top).with_context(|| format!("make {}", top.display()))?;
        fs::write(top.join("key"), "07".repeat(32))?;
        Ok(Self { bench, store: None, top })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// Files of bytes that no two places share and no compression makes smaller.
    pub(super) fn make_tree(&self, name: &str, files: Files) -> anyhow::Result<PathBuf> {
        let tree = self.path(name);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut block = vec![0_u8; 1 << 20];
        for number in 0..files.count {
            let directory = tree.join(format!("d{:03}", number / DIRECTORY_FILES));
            if number % DIRECTORY_FILES == 0 {
                fs::create_dir_all(&directory)?;
            }
            let mut file = fs::File::create(directory.join(format!("f{number:06}")))?;
            let mut left = files.bytes;
            while left > 0 {
                let len = left.min(block.len());
                for word in block[..len].chunks_mut(8) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
                }
                file.write_all(&block[..len])?;
                left -= len;
            }
        }
        Ok(tree)
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it lives as long as the ground")
    }

    fn bucket(&self) -> String {
        match self.store() {
            Store::Own(_) => BUCKET.to_owned(),
            Store::Ceph(_, buckets) => format!("{BUCKET}-{}", buckets.get()),
        }
    }

    /// `s3://BUCKET/NAME`.
    pub(super) fn url(&self, name: &str) -> String {
        format!("s3://{}/{name}", self.bucket())
    }

    /// Forgets all objects; a gateway, which is slow at that, gets a new bucket.
    pub(super) fn empty_bucket(&self) -> anyhow::Result<()> {
        match self.store() {
            Store::Own(server) => server.make_bucket(BUCKET),
            Store::Ceph(_, buckets) => {
                buckets.set(buckets.get() + 1);
                let mut make = self.rclone_with(&["mkdir", &format!(":s3:{}", self.bucket())])?;
                command::run(&mut make, PATIENCE)?.success("make a bucket")?;
            }
        }
        Ok(())
    }

    /// Of the S3 server.
    pub(super) fn endpoint(&self) -> String {
        match self.store() {
            Store::Own(server) => server.endpoint(),
            Store::Ceph(gateway, _) => gateway.endpoint().to_owned(),
        }
    }

    /// Name and secret of its user.
    pub(super) fn keys(&self) -> [&'static str; 2] {
        match self.store() {
            Store::Own(_) => [ACCESS_KEY, SECRET_KEY],
            Store::Ceph(..) => gateway::KEYS,
        }
    }

    /// Where the server of this process listens.
    pub(super) fn address(&self) -> anyhow::Result<SocketAddr> {
        match self.store() {
            Store::Own(server) => Ok(server.address()),
            Store::Ceph(..) => bail!("the gateway is not of this process"),
        }
    }

    /// Removes a copy that was measured.
    pub(super) fn clear(&self, name: &str) -> anyhow::Result<()> {
        remove_tree(&self.path(name))
    }

    /// The product, with what it must know of the server.
    pub(super) fn hayase(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.bench.hayase());
        self.tell(&mut command);
        command.args(arguments);
        // Without TLS we would sign bodies, which rclone never does.
        command.env("HAYASE_S3_SIGN_BODIES", "no");
        command.env_remove("AWS_PROFILE").env("HAYASE_RUNTIME_DIR", self.path("run"));
        command.current_dir(&self.top);
        command
    }

    /// Tells a program where the server is and who asks, in the variables that all S3 programs read.
    pub(super) fn tell(&self, command: &mut Command) {
        let [key, secret] = self.keys();
        command.env("AWS_ENDPOINT_URL", self.endpoint()).env("AWS_DEFAULT_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret);
        command.env_remove("AWS_PROFILE").env_remove("AWS_CA_BUNDLE");
    }

    /// `rclone copy FROM TO`; a name that begins with `s3:` is one in the bucket.
    pub(super) fn rclone(&self, from: &str, to: &str) -> anyhow::Result<Command> {
        let place = |name: &str| match name.strip_prefix("s3:") {
            Some(name) => format!(":s3:{}/{name}", self.bucket()),
            None => self.path(name).display().to_string(),
        };
        let mut command = self.rclone_with(&["copy", &place(from), &place(to)])?;
        command.args(["--transfers", "32", "--checkers", "32", "--s3-no-head"]);
        command.arg("--s3-no-check-bucket");
        Ok(command)
    }

    /// rclone, with what it must know of the server.
    fn rclone_with(&self, words: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new("rclone");
        // With it set rclone 1.60 refuses to start, TLS or not.
        command.env_remove("AWS_CA_BUNDLE");
        ensure!(program::is_installed("rclone"), "rclone is not installed");
        let [key, secret] = self.keys();
        command.args(words).args(["--config", "/dev/null", "--s3-provider", "Other"]);
        command.args(["--s3-endpoint", &self.endpoint(), "--s3-access-key-id", key]);
        command.args(["--s3-secret-access-key", secret, "--s3-region", "us-east-1"]);
        Ok(command)
    }

    /// The same through `rclone crypt`: what is in the bucket is encrypted by the client, names included.
    pub(super) fn rclone_crypt(
        &self,
        from: &str,
        to: &str,
        password: &str,
    ) -> anyhow::Result<Command> {
        let is_up = to.starts_with("s3:");
        let (inside, outside) = if is_up { (to, from) } else { (from, to) };
        let name = inside.strip_prefix("s3:").context("one end is in the bucket")?;
        let obscured = Command::new("rclone").args(["obscure", password]).output();
        let obscured = obscured.context("run rclone")?;
        ensure!(obscured.status.success(), "rclone obscure: {}", obscured.status);
        // The other options of the store go along, as options of the command.
        let mut command = self.rclone(outside, outside)?;
        let ends = if is_up { [outside, "SECRET:"] } else { ["SECRET:", outside] };
        let ends = ends.map(|end| match end {
            "SECRET:" => end.to_owned(),
            path => self.path(path).display().to_string(),
        });
        let options: Vec<_> = command.get_args().skip(3).map(ToOwned::to_owned).collect();
        command = Command::new("rclone");
        command.env_remove("AWS_CA_BUNDLE").arg("copy").args(&ends).args(options);
        command.env("RCLONE_CONFIG_SECRET_TYPE", "crypt");
        command.env("RCLONE_CONFIG_SECRET_REMOTE", format!(":s3:{}/{name}", self.bucket()));
        command
            .env("RCLONE_CONFIG_SECRET_PASSWORD", String::from_utf8_lossy(&obscured.stdout).trim());
        Ok(command)
    }

    /// Runs a copy; fails when it does.
    pub(super) fn run(&self, command: Command) -> anyhow::Result<Ran> {
        program::run(command, PATIENCE, |process| self.bench.give_precedence(process))
    }

    /// Fails unless a tree has arrived as it was.
    pub(super) fn check_same(&self, a: &str, b: &str) -> anyhow::Result<()> {
        let status = Command::new("diff")
            .args(["-rq"])
            .args([self.path(a), self.path(b)])
            .output()
            .context("run diff")?;
        let told = String::from_utf8_lossy(&status.stdout);
        ensure!(
            status.status.success(),
            "what arrived differs: {}",
            told.lines().next().unwrap_or("")
        );
        Ok(())
    }
}

impl Drop for Ground<'_> {
    fn drop(&mut self) {
        // Before what it writes to.
        self.store = None;
        match remove_tree(&self.top) {
            Ok(()) => drop(self.bench.guard().removed(Thing::Tree(self.top.clone()))),
            Err(error) => self.bench.warn(&format!("{error:#}")),
        }
    }
}
