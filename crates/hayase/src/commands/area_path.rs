//! Why the virtual attributes of a path can not be had: it is in no area, or in one that is not seen here.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hayase_fuse::mount_table;
use rustix::io::Errno;

use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::job::Registry;
use crate::launch::tree::way::quote;
use crate::system::mounts::is_ours;

/// A path that a verb about files can not use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AreaPathError {
    /// It lies below the mount of a job whose nodes have mounts of their own.
    #[error("{} is in an area of job {job}, which is visible only on its nodes", .path.display())]
    OnNodesOnly {
        /// The path.
        path: PathBuf,
        /// Whose.
        job: String,
    },
    /// It lies in a local area.
    #[error("{} is in the local area of job {job}: plain files of one node, which the kernel serves", .path.display())]
    Local {
        /// The path.
        path: PathBuf,
        /// Whose.
        job: String,
    },
    /// Nothing has this name.
    #[error("there is no file or directory {}", .0.display())]
    Missing(PathBuf),
    /// Some other file system.
    #[error("{} is not in an area of any job", .0.display())]
    Elsewhere(PathBuf),
    /// In the shared area of a job, or nowhere of a job, where only the cache area can be meant.
    #[error("{} is not in the cache area of a job", .0.display())]
    NotCached(PathBuf),
    /// The mount refused.
    #[error("{action} {}", .path.display())]
    Refused {
        /// Verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl AreaPathError {
    /// Finds out which it is.
    pub(crate) fn new(
        errno: Errno,
        action: &'static str,
        path: &Path,
        environment: &Environment,
    ) -> Self {
        let absolute = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
        let absolute = absolute.unwrap_or_else(|_| path.to_owned());
        let is_foreign = matches!(errno, Errno::OPNOTSUPP | Errno::NODATA | Errno::NOENT);
        if is_foreign && !is_hayase(&absolute) {
            let jobs = Registry::open_or_none(&environment.runtime).living_first();
            let owner = jobs.iter().find_map(|job| {
                let node = job.settings.node_of_path(&absolute)?;
                Some((job, absolute.starts_with(job.settings.local_mount(node))))
            });
            if let Some((job, is_local)) = owner {
                let (path, job) = (absolute, job.settings.job.to_string());
                return if is_local {
                    Self::Local { path, job }
                } else {
                    Self::OnNodesOnly { path, job }
                };
            }
            if errno != Errno::NOENT {
                return Self::Elsewhere(path.to_owned());
            }
        }
        Self::Refused { action, path: path.to_owned(), source: errno.into() }
    }

    /// Where `path` leads: a file or directory that is seen here through a mount of ours. An attribute that is set elsewhere
    /// is one of that file system's, and means nothing.
    pub(crate) fn unless_ours(
        action: &'static str,
        path: &Path,
        environment: &Environment,
    ) -> Result<(), Self> {
        let found = match std::fs::metadata(path) {
            Ok(_) => Errno::OPNOTSUPP,
            Err(error) => Errno::from_io_error(&error).unwrap_or(Errno::NOENT),
        };
        let whole = std::fs::canonicalize(path);
        if whole.is_ok_and(|whole| is_hayase(&whole)) {
            return Ok(());
        }
        Err(Self::new(found, action, path, environment))
    }

    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::OnNodesOnly { job, .. } => {
                Some(format!("hayase exec --job {job} --node 0 -- hayase {}", typed()))
            }
            Self::Elsewhere(_) | Self::NotCached(_) => {
                Some("`hayase status` shows where the areas of a job are".to_owned())
            }
            Self::Missing(_) => Some("check the name".to_owned()),
            Self::Local { .. } | Self::Refused { .. } => None,
        }
    }

    /// The person named a path that can not be meant.
    pub(crate) fn is_usage(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }
}

impl Advise for AreaPathError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice { help: self.help(), is_usage: self.is_usage() })
    }
}

/// A path without links, of something that is there.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf, AreaPathError> {
    path.canonicalize().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => AreaPathError::Missing(path.to_owned()),
        _ => AreaPathError::Refused { action: "find", path: path.to_owned(), source },
    })
}

/// The same of a path in an area, which may be there on a node and not here.
pub(crate) fn found(path: &Path, environment: &Environment) -> Result<PathBuf, AreaPathError> {
    canonical(path).map_err(|error| {
        match AreaPathError::new(Errno::NOENT, "find", path, environment) {
            AreaPathError::Refused { .. } => error,
            elsewhere => elsewhere,
        }
    })
}

/// The arguments that were typed, to be typed again elsewhere.
fn typed() -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(byte);
    let word = |word: OsString| match word.as_bytes().iter().all(is_plain) && !word.is_empty() {
        true => word,
        false => quote(&word),
    };
    let words: Vec<_> = std::env::args_os().skip(1).map(word).collect();
    words.join(OsStr::new(" ")).to_string_lossy().into_owned()
}

/// Whether `path` is seen here through a mount of ours.
fn is_hayase(path: &Path) -> bool {
    let mounts = mount_table::read().unwrap_or_default();
    let over = mounts.iter().filter(|mounted| path.starts_with(&mounted.point));
    over.max_by_key(|mounted| mounted.point.components().count()).is_some_and(is_ours)
}
