//! Files below a path of the cache area, as `flush` and `evict` take them.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::AreaPathError;
use super::area_path::found;
use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::job::{Job, JobId, Registry};
use crate::wiring::status::CacheServer;
use anyhow::Context;
use hayase_layout::InodeId;

/// The kernel reports the last close of a file to the mount after close(2) has returned: until then the file counts as open.
pub(crate) const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Between two questions about a file that is on its way, or open.
pub(crate) const QUESTION_PAUSE: Duration = Duration::from_millis(20);

/// How long a server may take for one file.
const PATIENCE: Duration = Duration::from_secs(120);

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct CachedFile {
    /// As it is seen here.
    pub(crate) path: PathBuf,
    /// Which.
    pub(crate) ino: InodeId,
    /// Now.
    pub(crate) bytes: u64,
}

/// Nothing of a job is flushed.
#[derive(Debug, thiserror::Error)]
#[error("job {0} has no tier: nothing is flushed, and files in `shared` are removed with the job")]
pub(crate) struct NoTier(pub(crate) JobId);

impl Advise for NoTier {
    fn advice(&self) -> Option<Advice> {
        let help = "copy what you need before `hayase down` (`hayase stage out`); a job that is started \
                    with `up --tier DIR` brings it there itself";
        Some(Advice::usage(Some(help.to_owned())))
    }
}

/// Some files, and who can be asked about them.
pub(crate) struct CachedFiles {
    /// Whose area it is.
    pub(crate) job: Job,
    /// The path that was given, from the tier's root.
    pub(crate) tier_path: Vec<u8>,
    /// The node whose mount shows them.
    pub(crate) node: u16,
    /// Its server.
    pub(crate) server: CacheServer,
    /// By path.
    pub(crate) found: Vec<CachedFile>,
}

impl CachedFiles {
    /// A file, or all files below a directory; links are not followed.
    pub(crate) fn below(path: &Path, environment: &Environment) -> anyhow::Result<Self> {
        let whole = found(path, environment)?;
        let jobs = Registry::open(&environment.runtime)?.living_first();
        let node_of = |job: &Job| {
            (0..job.settings.nodes).find_map(|node| {
                let mount = fs::canonicalize(job.settings.cache_mount(node)?).ok()?;
                let below = whole.strip_prefix(mount).ok()?;
                Some((node, below.as_os_str().as_bytes().to_vec()))
            })
        };
        // Nodes have the same paths: the one that is asked is the one we are on.
        let found = jobs.into_iter().find_map(|job| node_of(&job).map(|found| (job, found)));
        let Some((job, (mut node, tier_path))) = found else {
            let owner = |job: &Job| job.settings.node_of_path(&whole).is_some();
            let jobs = Registry::open(&environment.runtime)?.living_first();
            return Err(match jobs.into_iter().find(owner) {
                Some(job) if job.settings.tier.is_none() => NoTier(job.settings.job).into(),
                _ => AreaPathError::NotCached(path.to_owned()).into(),
            });
        };
        if let Some(here) = job.node_here()? {
            node = here;
        }
        let socket = job.dir.node(node).server_socket();
        let server = CacheServer::connect(&socket, PATIENCE)
            .with_context(|| format!("ask the server of node {node}"))?;
        let mut files = Vec::new();
        let meta = fs::symlink_metadata(&whole)?;
        if !InodeId(meta.ino()).is_cached() {
            let (path, job) = (path.to_owned(), job.settings.job.to_string());
            return Err(AreaPathError::OnNodesOnly { path, job }.into());
        }
        walk(&whole, &meta, &mut files)?;
        Ok(Self { job, tier_path, node, server, found: files })
    }
}

fn walk(path: &Path, meta: &Metadata, files: &mut Vec<CachedFile>) -> anyhow::Result<()> {
    if meta.is_file() {
        let (path, ino) = (path.to_owned(), InodeId(meta.ino()));
        files.push(CachedFile { path, ino, bytes: meta.len() });
        return Ok(());
    }
    if !meta.is_dir() {
        return Ok(());
    }
    let list = |error| anyhow::Error::from(error).context(format!("list {}", path.display()));
    let mut names: Vec<_> =
        fs::read_dir(path).map_err(list)?.collect::<Result<_, _>>().map_err(list)?;
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        match entry.metadata() {
            Ok(meta) => walk(&entry.path(), &meta, files)?,
            // Gone since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("look at {}", entry.path().display()));
            }
        }
    }
    Ok(())
}
