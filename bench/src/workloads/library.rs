//! New files by the client library, without a mount: as many calls outstanding as there are threads.

use std::path::PathBuf;
use std::sync::Barrier;

use anyhow::{Context, anyhow, ensure};
use hayase_client::program::{Directory, Program};
use serde::{Deserialize, Serialize};

use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// Creating files, or removing them again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Library {
    /// Of the node's server.
    pub(crate) socket: PathBuf,
    /// Of the shared area, made if it is not there.
    pub(crate) directory: String,
    /// Threads, each with one call at a time.
    pub(crate) threads: u64,
    /// Files of each thread.
    pub(crate) files: u64,
    /// Remove them, else create them.
    pub(crate) remove: bool,
}

impl Library {
    /// The amount is the number of files of all threads: created for writing, and closed.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let program = Program::connect(&self.socket).context("connect to the node's server")?;
        let directory = match program.create_directory(&self.directory, 0o755) {
            Ok(directory) => directory,
            Err(_) => program.directory(&self.directory)?,
        };
        let (ready, done) = (self.barrier(), self.barrier());
        let watch = std::thread::scope(|scope| {
            let (ready, done, directory) = (&ready, &done, &directory);
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| scope.spawn(move || self.thread(thread, directory, ready, done)))
                .collect();
            ready.wait();
            let lap = Stopwatch::start();
            done.wait();
            let mut watch = Stopwatch::default();
            watch.stop(&lap, (self.threads * self.files) as f64);
            for thread in threads {
                thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            }
            anyhow::Ok(watch)
        })?;
        Ok(watch.measured())
    }

    fn barrier(&self) -> Barrier {
        Barrier::new(self.threads as usize + 1)
    }

    /// A thread that fails goes through both barriers too: nobody waits for it.
    fn thread(
        &self,
        thread: u64,
        directory: &Directory,
        ready: &Barrier,
        done: &Barrier,
    ) -> anyhow::Result<()> {
        let name = |file: u64| format!("{thread}-{file}");
        // Connections are made by the first calls.
        let warm = directory.stat("nothing");
        ready.wait();
        let result = (0..self.files).try_for_each(|file| {
            if self.remove {
                directory.remove(&name(file))
            } else {
                directory.create(&name(file), 0o644).map(drop)
            }
        });
        done.wait();
        ensure!(warm.is_err(), "a file is there that nobody made");
        Ok(result?)
    }
}
