//! A job whose directory is known: which of its nodes run, on which hosts, and of which that can not be said.

use std::ops::Range;

use super::{JobDir, JobError, Kind, Settings, SupervisorRecord};
use crate::kept_file::KeptFileError;
use crate::process::Handle;

/// A job that was found: where it lies, and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its directory.
    pub(crate) dir: JobDir,
    /// Its settings.
    pub(crate) settings: Settings,
}

impl Job {
    /// The job, if it can be said of all its nodes whether they run here.
    pub(crate) fn known(self) -> Result<Self, JobError> {
        match self.unknowable(self.all_nodes()).pop() {
            Some((_, error)) => Err(error),
            None => Ok(self),
        }
    }

    /// Those of `nodes` of which it can not be said whether they run here, and why.
    pub(crate) fn unknowable(&self, nodes: impl IntoIterator<Item = u16>) -> Vec<(u16, JobError)> {
        let is_hidden = self.has_hidden_launcher();
        let why = |node| {
            let job = self.settings.job.to_string();
            let source = match self.dir.node(node).record() {
                Err(source) => source,
                // It may be starting.
                Ok(None) if is_hidden => {
                    KeptFileError::OtherProcesses { path: self.dir.settings_file() }
                }
                Ok(_) => return None,
            };
            Some((node, JobError::Unknowable { job, node, source }))
        };
        nodes.into_iter().filter_map(why).collect()
    }

    /// The same of the nodes that this host may be. A job has one node on a host, so none where that one is known.
    pub(crate) fn unknowable_here(&self) -> Vec<(u16, JobError)> {
        let is_known = self.settings.kind == Kind::Hosts && !self.nodes_here().is_empty();
        if is_known { Vec::new() } else { self.unknowable(self.all_nodes()) }
    }

    /// Their numbers.
    pub(crate) fn all_nodes(&self) -> Range<u16> {
        0..self.settings.nodes
    }

    /// The supervisor of a node, when it still runs; `None` also where that can not be said ([`Job::unknowable`]).
    pub(crate) fn supervisor(&self, node: u16) -> Option<(SupervisorRecord, Handle)> {
        let record = self.dir.node(node).record().ok()??;
        let same_boot = crate::process::is_this_boot(&record.boot_id);
        let handle = if same_boot { record.process.open() } else { None };
        Some((record, handle?))
    }

    /// The processes that make it a living job: supervisors, or the launcher before them.
    pub(crate) fn living(&self) -> Vec<Handle> {
        // A supervisor's record tells its own boot.
        let supervisors =
            (0..self.settings.nodes).filter_map(|node| Some(self.supervisor(node)?.1));
        let launcher = if self.is_of_this_boot() { self.settings.launcher.open() } else { None };
        launcher.into_iter().chain(supervisors).collect()
    }

    /// Whether any process of the job still runs; of a job on other hosts only those can tell.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_elsewhere() || !self.living().is_empty()
    }

    /// Its nodes are other hosts, and this directory is not just the copy of one of them: what runs
    /// here says nothing about the job, unless its launcher ran here and ended before it let them go.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let has_failed = || {
            let launcher = self.settings.launcher;
            let has_ended = || !self.has_hidden_launcher() && !launcher.is_alive();
            self.is_of_this_boot() && !self.dir.is_kept() && has_ended()
        };
        self.settings.kind == Kind::Hosts && !self.dir.is_private() && !has_failed()
    }

    /// Its launcher ran on this machine, and may run in another container.
    fn has_hidden_launcher(&self) -> bool {
        self.is_of_this_boot() && crate::process::are_hidden(&self.settings.pid_namespace)
    }

    /// Process numbers of its launcher mean something here.
    fn is_of_this_boot(&self) -> bool {
        crate::process::is_this_boot(&self.settings.boot_id)
    }

    /// Nodes that this host is, or was in this boot, whether their supervisors still run or not.
    pub(crate) fn nodes_here(&self) -> Vec<u16> {
        let boot = crate::process::boot_id().unwrap_or_default();
        let is_here = |node: &u16| {
            let record = self.dir.node(*node).record().ok().flatten();
            record.is_some_and(|record| record.boot_id == boot)
        };
        (0..self.settings.nodes).filter(is_here).collect()
    }

    /// The node that this process is on, where all nodes have the same paths: by its namespaces, or by its host.
    pub(crate) fn node_here(&self) -> Result<Option<u16>, JobError> {
        Ok(match self.settings.kind {
            Kind::Namespaces { .. } => self.dir.own_node().record()?.map(|own| own.node),
            Kind::Hosts => self.nodes_here().first().copied(),
            Kind::ThisMachine | Kind::Loopback { .. } => None,
        })
    }

    /// Nodes that are other hosts.
    pub(crate) fn nodes_elsewhere(&self) -> Vec<u16> {
        let (nodes, here) = (0..self.settings.nodes, self.nodes_here());
        match self.settings.kind {
            Kind::Hosts => nodes.filter(|node| !here.contains(node)).collect(),
            _ => Vec::new(),
        }
    }

    /// Checks a node number that somebody typed.
    pub(crate) fn check_node(&self, node: u16) -> Result<u16, JobError> {
        if node < self.settings.nodes {
            return Ok(node);
        }
        Err(JobError::NoSuchNode {
            job: self.settings.job.to_string(),
            node,
            nodes: self.settings.nodes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::settings::tests::sample;
    use crate::process::ProcessId;

    #[test]
    fn only_nodes_that_this_host_may_be_stand_in_its_way() {
        let top = tempfile::tempdir().unwrap();
        let mut settings = sample(Kind::Hosts, 3);
        settings.nodes = 3;
        let dir = JobDir::new(top.path().join("j"));
        dir.create(3).unwrap();
        let record = |node: u16, boot_id: String| SupervisorRecord {
            node,
            process: ProcessId { start: 1, ..ProcessId::current().unwrap() },
            boot_id,
            pid_namespace: String::new(),
            host: format!("h{node}"),
            address: String::new(),
            namespaces: Vec::new(),
        };
        let damage = |node: u16| {
            for file in ["supervisor.json", "supervisor.json.copy"] {
                std::fs::write(dir.node(node).path().join(file), "{").unwrap();
            }
        };
        dir.node(0).write_record(&record(0, "another".to_owned())).unwrap();
        damage(2);
        let job = Job { dir: dir.clone(), settings };
        let here =
            |job: &Job| job.unknowable_here().into_iter().map(|(node, _)| node).collect::<Vec<_>>();
        assert_eq!(here(&job), [2], "this host may be node 2");
        let boot = crate::process::boot_id().unwrap();
        dir.node(1).write_record(&record(1, boot)).unwrap();
        assert!(here(&job).is_empty(), "it is node 1");
        damage(1);
        assert_eq!(here(&job), [1, 2]);
        assert!(job.clone().known().is_err() && job.unknowable([0]).is_empty());
    }
}
