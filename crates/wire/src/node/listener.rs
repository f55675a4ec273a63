//! The server's end of the node's socket: where processes connect.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

use super::frame::short_path;
use super::{NodeChannel, NodeError};
use crate::limits::NODE_BACKLOG;

/// Listens at a path; the socket file goes away with it.
pub struct NodeListener {
    listener: UnixListener,
    path: PathBuf,
}

impl NodeListener {
    /// Listens at `path`, in a directory that only its owner enters. A socket file that nobody
    /// listens at is replaced; one with a living server is an error.
    pub fn bind(path: &Path) -> Result<Self, NodeError> {
        let failed = |source| NodeError::Listen { path: path.to_owned(), source };
        let (short, _directory) = short_path(path).map_err(failed)?;
        if let Ok(metadata) = fs::symlink_metadata(path) {
            let left_over = metadata.file_type().is_socket()
                && net::UnixStream::connect(&short)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !left_over {
                return Err(NodeError::InUse { path: path.to_owned() });
            }
            fs::remove_file(path).map_err(failed)?;
        }
        let listener = listen(&short).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// The next process; those of other users (but root) are turned away with `Stranger`.
    pub async fn accept(&self) -> Result<NodeChannel, NodeError> {
        let (stream, _) =
            self.listener.accept().await.map_err(|source| NodeError::Accept { source })?;
        let channel = NodeChannel::new(stream)?;
        let peer = channel.peer_credentials();
        let own = rustix::process::geteuid().as_raw();
        if peer.uid != own && peer.uid != 0 {
            return Err(NodeError::Stranger { uid: peer.uid, pid: peer.pid });
        }
        Ok(channel)
    }

    /// Where processes connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, NODE_BACKLOG)?;
    UnixListener::from_std(socket.into())
}

impl Drop for NodeListener {
    fn drop(&mut self) {
        // Gone already when the directory was cleaned up before us.
        let _ = fs::remove_file(&self.path);
    }
}
