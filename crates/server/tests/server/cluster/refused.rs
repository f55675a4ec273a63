//! Servers that do not start, and what a test that plays another process of the job has to know.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hayase_wire::Secret;
use tokio::sync::oneshot;

use super::Cluster;

impl Cluster {
    /// Starts a server alone, which waits for no other one; why it ended, with all causes.
    pub(crate) fn refused_alone(&mut self, server: u16, servers: u16) -> String {
        let wait = std::mem::replace(&mut self.wait, Duration::from_millis(1));
        let why = self.refused(server, servers);
        self.wait = wait;
        why
    }

    /// Starts a server that ended, which refuses to; why, with all causes.
    pub(crate) fn refused(&mut self, server: u16, servers: u16) -> String {
        let names = self.names.as_mut().expect("names are in memory");
        let at = usize::from(server);
        names[at] = Arc::new(names[at].after_kill());
        let (runs, stopped) = oneshot::channel();
        // One that starts nevertheless ends at once.
        let life = self.life(server, servers, stopped, || drop::<oneshot::Sender<()>>(runs));
        let ended = std::thread::spawn(|| life().map_err(|error| chain(&error))).join();
        ended.expect("no panic").expect_err("it does not start")
    }

    /// Ends a server and takes its names away; the rest of its storage stays.
    pub(crate) fn kill_and_forget_names(&mut self, server: u16) {
        self.kill(server);
        let names = self.names.as_mut().expect("names are in memory");
        names[usize::from(server)] = Arc::default();
    }

    /// Where the members of the job meet.
    pub(crate) fn job_dir(&self) -> &Path {
        self.directory.path()
    }

    /// What every process of the job knows.
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The file with the private half of a server's key.
    pub(crate) fn key_file(&self, server: u16) -> PathBuf {
        self.directory.path().join(format!("{server}/area/server.key"))
    }

    /// The file with the keys of all servers, as this one has known them since the job began.
    pub(crate) fn known_file(&self, server: u16) -> PathBuf {
        self.key_file(server).with_file_name("servers.json")
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
