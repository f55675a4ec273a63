//! The yardstick of remote files: one socket, blocking calls of 1 MiB, and a file at the far end.
//!
//! The client asks for a whole file to be read or written; then blocks flow one way without a
//! further word, and writing ends with one byte that says that the last one is in the file. So
//! nothing waits for a round trip, and nothing is done beyond moving the bytes.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::block::{BLOCK_BYTES, Block};
use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// Longest path that a request can carry.
const PATH_BYTES_MAX: usize = 4096;

/// Moving one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Transfer {
    /// Of the serving worker.
    pub(crate) server: SocketAddr,
    /// The file, on the server's side.
    pub(crate) path: PathBuf,
    /// Into the file, else out of it.
    pub(crate) write: bool,
    /// Past the page cache of the server's side.
    pub(crate) direct: bool,
    /// Size of the file, in blocks of 1 MiB.
    pub(crate) blocks: u64,
    /// As many passes as take at least this long.
    pub(crate) milliseconds: u64,
}

/// Answers [`Transfer`]s from a thread, one after the other, until the process ends.
pub(crate) fn serve(address: IpAddr) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((address, 0)).context("listen")?;
    let port = listener.local_addr().context("listen")?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client notices: its connection ends early.
            let _ = answer(stream);
        }
    });
    Ok(port)
}

fn answer(mut stream: TcpStream) -> anyhow::Result<()> {
    let mut head = [0; 17];
    stream.read_exact(&mut head)?;
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let (blocks, length) = (number(1), number(9) as usize);
    ensure!(length <= PATH_BYTES_MAX, "a path of {length} bytes");
    let mut path = vec![0; length];
    stream.read_exact(&mut path)?;
    let path = Path::new(std::ffi::OsStr::from_bytes(&path));
    let mut block = Block::new();
    let mut options = OpenOptions::new();
    if head[0].is_ascii_uppercase() {
        options.custom_flags(OFlags::DIRECT.bits().cast_signed());
    }
    if head[0].eq_ignore_ascii_case(&b'w') {
        let file = options.write(true).open(path)?;
        for index in 0..blocks {
            stream.read_exact(&mut block)?;
            file.write_all_at(&block, index * BLOCK_BYTES as u64)?;
        }
        stream.write_all(b"!")?;
    } else {
        let file = options.read(true).open(path)?;
        for index in 0..blocks {
            file.read_exact_at(&mut block, index * BLOCK_BYTES as u64)?;
            stream.write_all(&block)?;
        }
    }
    Ok(())
}

impl Transfer {
    /// Moves it; connecting is not counted.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let mut watch = Stopwatch::default();
        let mut block = Block::new();
        while watch.elapsed() < Duration::from_millis(self.milliseconds.max(1)) {
            self.pass(&mut watch, &mut block)
                .with_context(|| format!("move {} over TCP", self.path.display()))?;
        }
        Ok(watch.measured())
    }

    fn pass(&self, watch: &mut Stopwatch, block: &mut Block) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(self.server)?;
        let path = self.path.as_os_str().as_bytes();
        let kind = if self.write { b'w' } else { b'r' };
        let mut head = vec![if self.direct { kind.to_ascii_uppercase() } else { kind }];
        head.extend(self.blocks.to_le_bytes());
        head.extend((path.len() as u64).to_le_bytes());
        head.extend(path);
        let lap = Stopwatch::start();
        stream.write_all(&head)?;
        if self.write {
            for index in 0..self.blocks {
                block.stamp(index);
                stream.write_all(block)?;
            }
            stream.read_exact(&mut [0])?;
        } else {
            for index in 0..self.blocks {
                stream.read_exact(block)?;
                block.check(index)?;
            }
        }
        watch.stop(&lap, (self.blocks * BLOCK_BYTES as u64) as f64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_file_goes_there_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        File::create(&path).unwrap();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let server = SocketAddr::new(address, serve(address).unwrap());
        let mut work =
            Transfer { server, path, write: true, direct: false, blocks: 3, milliseconds: 1 };
        assert!(work.run().unwrap().amount >= 3.0 * 1_048_576.0);
        work.write = false;
        work.run().unwrap();
        work.blocks = 4;
        assert!(work.run().is_err(), "the file has three");
        work.path = "/nonexistent".into();
        assert!(work.run().is_err());
    }
}
