//! What one test gets: the job, its nodes, and a directory of its own in `shared`.

use crate::job::Job;
use crate::node::Node;

/// The stage of one test. Nodes are called as in the protocol's list of tests: `a` is the home of
/// the files that it creates, `b` and `c` are others.
pub struct Scene<'a> {
    /// The job.
    pub job: &'a Job,
    /// Node 0.
    pub a: Node,
    /// Node 1.
    pub b: Node,
    /// Node 2.
    pub c: Node,
    dir: String,
}

impl<'a> Scene<'a> {
    /// Makes the directory of test `name`.
    ///
    /// # Errors
    /// When it can not be made or a node does not see it.
    pub fn new(job: &'a Job, name: &str) -> anyhow::Result<Self> {
        let dir = format!("{}/{name}", job.shared());
        let node = |index: u16| job.node(index.min(job.nodes() - 1));
        let (a, b, c) = (node(0)?, node(1)?, node(2)?);
        a.mkdir(&dir)?;
        for node in [&b, &c] {
            node.stat(&dir)?;
        }
        Ok(Self { job, a, b, c, dir })
    }

    /// The directory.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    /// A new directory whose files are striped: 64 KiB over three servers.
    ///
    /// # Errors
    /// When it can not be made or set.
    pub fn striped(&self, name: &str) -> anyhow::Result<String> {
        let path = self.path(name);
        self.a.mkdir(&path)?;
        self.job.stripe(&path, "64KiB", 3)?;
        Ok(path)
    }

    /// The three nodes.
    pub const fn nodes(&self) -> [&Node; 3] {
        [&self.a, &self.b, &self.c]
    }
}
