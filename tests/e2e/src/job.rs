//! The job under test: a real one, or an ordinary directory that all its "nodes" share.
//!
//! `down` happens on drop, also when a test panics; and when the whole test run is killed, a guard
//! process does it.

mod guard;
mod hayase;
mod tree;

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use anyhow::{Context, Result, bail, ensure};

pub use guard::Guard;
pub use hayase::{Cluster, Daemons, binary, is_alive};
pub(crate) use tree::temporary_dir;
pub use tree::{Tree, mounts_below};

use crate::node::Node;

/// What `hayase up` is asked for.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Simulated nodes.
    pub nodes: u16,
    /// Each node's share of `shared`.
    pub shared: String,
    /// Each node's `local`.
    pub local: String,
    /// Where areas and names lie; a directory of the job's tree when it is not given.
    pub storage: Option<PathBuf>,
    /// Further options, as typed.
    pub extra: Vec<String>,
}

impl JobOptions {
    /// Three nodes, as the protocol's tests want them.
    pub fn three() -> Self {
        Self::nodes(3)
    }

    /// Some nodes.
    pub fn nodes(nodes: u16) -> Self {
        let (shared, local) = ("1GiB".into(), "300MiB".into());
        Self { nodes, shared, local, storage: None, extra: Vec::new() }
    }

    /// Another size of each node's share of `shared`.
    #[must_use]
    pub fn shared(mut self, size: &str) -> Self {
        size.clone_into(&mut self.shared);
        self
    }
}

/// A running job with an actor on each node.
pub struct Job {
    guard: Guard,
    tree: Tree,
    cluster: Option<Cluster>,
    options: JobOptions,
    actors: RefCell<Vec<Option<Node>>>,
}

impl Job {
    /// Starts a job of the backend that the environment names.
    ///
    /// # Errors
    /// When `hayase up` fails; with what it said.
    pub fn up(options: JobOptions) -> Result<Self> {
        let tree = Tree::new()?;
        let guard = Guard::start(&tree)?;
        let cluster = match backend()? {
            Backend::Plain => {
                std::fs::create_dir_all(tree.path().join("mount/shared"))
                    .context("make the plain directory")?;
                None
            }
            Backend::Hayase => Some(Cluster::up(&tree, &options)?),
        };
        let actors = RefCell::new(vec![None; usize::from(options.nodes)]);
        Ok(Self { guard, tree, cluster, options, actors })
    }

    /// How many nodes.
    pub const fn nodes(&self) -> u16 {
        self.options.nodes
    }

    /// The actor of a node; started when first asked for, and again after [`Job::restart_actors`].
    ///
    /// # Errors
    /// When it can not be started.
    pub fn node(&self, index: u16) -> Result<Node> {
        let mut actors = self.actors.borrow_mut();
        let slot =
            actors.get_mut(usize::from(index)).with_context(|| format!("no node {index}"))?;
        if let Some(node) = slot {
            return Ok(node.clone());
        }
        let node = Node::start(index, &mut self.command_on(index, &[&self.tree.actor()]))?;
        Ok(slot.insert(node).clone())
    }

    /// Ends all actors: one of them may hang in a call.
    pub fn restart_actors(&self) {
        for node in self.actors.borrow_mut().iter_mut().filter_map(Option::take) {
            node.stop();
        }
    }

    /// Closes what the last test left open.
    ///
    /// # Errors
    /// When an actor does not answer.
    pub fn reset_actors(&self) -> Result<()> {
        for node in self.actors.borrow().iter().flatten() {
            node.call(crate::Command::Reset)?;
        }
        Ok(())
    }

    /// `hayase exec --node I -- ARGS`, or just ARGS on a plain directory.
    pub fn command_on(&self, index: u16, arguments: &[&Path]) -> Process {
        match &self.cluster {
            Some(cluster) => cluster.exec(index, arguments),
            None => self.command_on_plain(index, arguments),
        }
    }

    /// A plain directory needs nothing; `HAYASE_E2E_PLAIN_EXEC` may put something between, to see the
    /// tests fail on file systems that cache what they must not.
    fn command_on_plain(&self, index: u16, arguments: &[&Path]) -> Process {
        match std::env::var_os("HAYASE_E2E_PLAIN_EXEC") {
            Some(program) => {
                let mut process = Process::new(program);
                process.arg(index.to_string()).arg(self.tree.path()).args(arguments);
                process
            }
            None => {
                let mut process = Process::new(arguments[0]);
                process.args(&arguments[1..]);
                process
            }
        }
    }

    /// The real job, unless this is a plain directory.
    pub const fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// An ordinary directory stands in for the job.
    pub const fn is_plain(&self) -> bool {
        self.cluster.is_none()
    }

    /// Nobody else uses this file system, so its free space means something and it may be filled:
    /// a real job, or a plain directory on a mount of its own for which `HAYASE_E2E_PRIVATE` says so.
    pub fn owns_space(&self) -> bool {
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
        let is_mount = self
            .tree
            .path()
            .parent()
            .is_some_and(|dir| device(dir) != dir.parent().and_then(device));
        !self.is_plain() || (std::env::var_os("HAYASE_E2E_PRIVATE").is_some() && is_mount)
    }

    /// Files on the node of their part are served by the kernel alone: native kernel, root.
    pub fn has_passthrough(&self) -> bool {
        !self.is_plain() && profile().is_none()
    }

    /// Files that several nodes have open, one of them for writing, can be mapped: Linux 6.6.
    pub fn maps_direct_files(&self) -> bool {
        self.is_plain() || !matches!(profile().as_deref(), Some("4.18" | "6.1"))
    }

    /// The path of `shared`, the same on each node.
    pub fn shared(&self) -> String {
        self.tree.path().join("mount/shared").display().to_string()
    }

    /// The path of a name in `cache`, the same on each node.
    pub fn cached(&self, name: &str) -> String {
        self.tree.path().join("mount/cache").join(name).display().to_string()
    }

    /// The path of `local`, the same on each node.
    pub fn local(&self) -> String {
        self.tree.path().join("mount/local").display().to_string()
    }

    /// Where everything of this job lies.
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What was asked for.
    pub const fn options(&self) -> &JobOptions {
        &self.options
    }

    /// New files below `path` are striped.
    ///
    /// # Errors
    /// What `hayase layout set` said.
    pub fn stripe(&self, path: &str, stripe: &str, width: u16) -> Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        cluster.stripe(path, stripe, width)
    }

    /// What the daemons wrote, and where they are now: for a person who looks at a failure.
    pub fn logs(&self) -> String {
        self.cluster.as_ref().map_or_else(String::new, Cluster::logs)
    }

    /// Stops the job and removes its files.
    ///
    /// # Errors
    /// When something is left: a mount, a process, a file.
    pub fn down(mut self) -> Result<()> {
        self.restart_actors();
        if let Some(mut cluster) = self.cluster.take() {
            cluster.down()?;
        }
        self.tree.remove()?;
        self.guard.dismiss()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.restart_actors();
        if let Some(cluster) = self.cluster.as_mut()
            && let Err(error) = cluster.down()
        {
            crate::suite::print(&format!("down: {error:#}"));
        }
        // What is left then is the guard's, which acts when it is not dismissed.
    }
}

/// What the tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `hayase up`.
    Hayase,
    /// An ordinary directory.
    Plain,
}

/// From the environment.
///
/// # Errors
/// When it names something else.
pub fn backend() -> Result<Backend> {
    match std::env::var("HAYASE_E2E_BACKEND").as_deref() {
        Ok("plain") => Ok(Backend::Plain),
        Ok("hayase") | Err(_) => Ok(Backend::Hayase),
        Ok(other) => bail!("HAYASE_E2E_BACKEND is {other}: must be hayase or plain"),
    }
}

/// The kernel profile under test; `None` is the kernel as it is.
pub fn profile() -> Option<String> {
    std::env::var("HAYASE_E2E_PROFILE").ok().filter(|profile| !matches!(&**profile, "" | "native"))
}

/// A program that was built with this crate.
///
/// # Errors
/// When it is not where cargo puts it.
pub(crate) fn built(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("where is this program")?;
    let built = this.parent().and_then(Path::parent).map(|dir| dir.join(name));
    let built = built.context("this program is not below a target directory")?;
    ensure!(
        built.exists(),
        "{} is not there: cargo build -p hayase -p hayase-e2e",
        built.display()
    );
    Ok(built)
}
