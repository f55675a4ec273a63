//! Why the servers of a job did not meet: which file, what is in it, and what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hayase_layout::ServerId;

use crate::message::PROTOCOL_VERSION;

/// Why the members could not be published, sealed or read.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    /// Not all came in time.
    #[error(
        "wait for the servers of the job: {} not there after {:?}", names(.missing), .waited
    )]
    Missing {
        /// Who is not there.
        missing: Vec<ServerId>,
        /// The time they had.
        waited: Duration,
    },
    /// Server 0 did not seal the list in time.
    #[error("wait for {}: server 0 did not seal the list within {:?}", .path.display(), .waited)]
    Unsealed {
        /// The list.
        path: PathBuf,
        /// The time it had.
        waited: Duration,
    },
    /// Two builds in one job.
    #[error(
        "{} was written by a build with protocol version {theirs}, and this one has {PROTOCOL_VERSION}", .path.display()
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// The version of who wrote it.
        theirs: u16,
    },
    /// A list of another number of servers.
    #[error("{} lists {listed} servers, and this job has {servers}", .path.display())]
    Count {
        /// The list.
        path: PathBuf,
        /// Servers in it.
        listed: usize,
        /// Servers of the job.
        servers: u16,
    },
    /// A server has nothing of what it had when the list was sealed.
    #[error(
        "{} was sealed when server {server} on host {host} had begun the job, and its names of then are not in {}",
        .path.display(), .names.display()
    )]
    NamesGone {
        /// Who.
        server: ServerId,
        /// Its host.
        host: String,
        /// The list.
        path: PathBuf,
        /// Where its names were.
        names: PathBuf,
    },
    /// Not written with this job's secret, or changed since.
    #[error("{} was not written with the secret of this job", .path.display())]
    Forged {
        /// Which file.
        path: PathBuf,
    },
    /// A server has another key than the job knows: it is not the one that began the job.
    #[error(
        "{} has another key for server {server} on host {host} than the storage of that server", .path.display()
    )]
    NotItsKey {
        /// Who.
        server: ServerId,
        /// Its host.
        host: String,
        /// Where the job's key is.
        path: PathBuf,
    },
    /// The key of a server is not the one that it had at first.
    #[error(
        "{} has another key for server {server} on host {host} than the first list of this job", .path.display()
    )]
    KeyChanged {
        /// Whose.
        server: ServerId,
        /// Its host.
        host: String,
        /// Where the other key is.
        path: PathBuf,
    },
    /// Not what belongs there.
    #[error("{}: {what}", .path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// How.
        what: String,
    },
    /// The file could not be read.
    #[error("read {}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be written.
    #[error("write {}", .path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

pub(super) fn names(servers: &[ServerId]) -> String {
    const SHOWN_MAX: usize = 16;
    let shown: Vec<_> = servers.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    let more = match servers.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let word = if servers.len() == 1 { "server" } else { "servers" };
    format!("{word} {}{more}", shown.join(", "))
}

impl MembersError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Missing { .. } => {
                Some("see their logs, `node-<i>/serve.log` in the job directory")
            }
            Self::Unsealed { .. } => Some("see the log of server 0, `node-0/serve.log`"),
            Self::Version { .. } => Some(
                "run the same version of hayase on all nodes; end a job with the version that started it (`hayase down`)",
            ),
            Self::Forged { .. } | Self::Malformed { .. } => Some(
                "the file is damaged, or of another job: end the job with `hayase down` and start another one, which \
                 gets a directory of its own",
            ),
            Self::Count { .. } => Some(
                "the list is of another job, or a process that knows the secret of the job has changed it: end the job \
                 with `hayase down` and start another one",
            ),
            Self::NamesGone { .. } => Some(
                "the storage of this server was lost or replaced: mount the storage with which it began the job, or \
                 leave this node lost and end the job with `hayase down`",
            ),
            Self::NotItsKey { .. } => Some(
                "the storage of this server was lost or replaced: mount the storage with which it began the job, or \
                 leave this node lost and end the job with `hayase down`",
            ),
            Self::KeyChanged { .. } => Some(
                "a process that knows the secret of the job has changed this file: end the job with `hayase down` and \
                 start another one",
            ),
            Self::Read { .. } | Self::Write { .. } => Some(
                "see that the directory of this file is there, has room, and is yours to write",
            ),
        }
    }
}
