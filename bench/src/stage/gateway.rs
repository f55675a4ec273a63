//! A real Ceph RADOS Gateway, brought up by `bench/ceph/gateway.sh` from Debian's packages.
//!
//! The script takes everything away when its standard input ends: with this process, however that ends. The frontend
//! is as the packages have it, with its 40 ms stall of small answers (Nagle against delayed acknowledgements).

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

const SCRIPT: &str = "bench/ceph/gateway.sh";

/// Its user, as `tests/s3/gateway.sh` makes it.
pub(super) const KEYS: [&str; 2] = ["test", "testtest"];

/// One gateway with its daemons; gone when dropped.
pub(super) struct Gateway {
    script: Child,
    endpoint: String,
}

impl Gateway {
    /// With its data in `directory`, which is made, and goes with it.
    pub(super) fn up(directory: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new("bash");
        command.arg(SCRIPT).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is for the bench; the script sees its end.
        command.process_group(0);
        let mut script = command.spawn().context("start bash")?;
        let said = script.stdout.take().context("the script has no output")?;
        let mut gateway = Self { script, endpoint: String::new() };
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).context("listen to the script")?;
        match line.trim().split_once(' ') {
            Some(("endpoint", endpoint)) => endpoint.clone_into(&mut gateway.endpoint),
            _ => bail!("no Ceph gateway came up: are its packages (radosgw, ceph-osd) here?"),
        }
        Ok(gateway)
    }

    /// Its URL.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
