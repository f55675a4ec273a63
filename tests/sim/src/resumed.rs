//! What `hayase resume` makes of a job whose nodes have all lost power.

use hayase_layout::ServerId;
use hayase_server::{LeftNode, LeftNodes, Resumed, ResumedJob, Resuming};
use hayase_tier::Memory;
use hayase_wire::message::Refused;

use crate::job::Job;

const ENXIO: i32 = 6;

/// What `hayase resume` said.
pub(crate) struct Outcome {
    /// What must not be.
    pub(crate) violations: Vec<String>,
    /// Names of second versions.
    pub(crate) conflicts: Vec<String>,
}

struct Left(Vec<LeftNode>);

impl LeftNodes for Left {
    fn node(&self, server: ServerId) -> Result<&LeftNode, Refused> {
        self.0.get(usize::from(server.0)).ok_or_else(|| Refused::new(ENXIO))
    }
}

/// Resumes a job, all of whose nodes are here, and tells what of it is left that must not be: files under names that
/// programs give when all of a file is synced. (A temporary file may have lost bytes.)
pub(crate) fn resumed(job: &Job, tier: &Memory) -> Outcome {
    let (nodes, mut ledgers): (Vec<_>, Vec<_>) = (0..job.servers()).map(|it| job.left(it)).unzip();
    let nodes = Left(nodes);
    let records: Vec<_> = ledgers.iter().flat_map(|ledger| ledger.records().cloned()).collect();
    let (mut resumed, mut told) = (ResumedJob::new(records), Vec::new());
    for (server, ledger) in (0..).map(ServerId).zip(&mut ledgers) {
        let files = resumed.files((server, ledger), &nodes, tier, |file| told.push(file));
        files.expect("a ledger in memory is written");
    }
    for ledger in &mut ledgers {
        let removals = resumed.removals(ledger, tier, |removal| told.push(removal));
        removals.expect("a ledger in memory is written");
    }
    let is_conflict = |file: &&Resumed| file.what == Resuming::Conflict && file.failure.is_none();
    let conflicts = told.iter().filter(is_conflict);
    let conflicts =
        conflicts.map(|file| String::from_utf8_lossy(&file.path).into_owned()).collect();
    Outcome { violations: told.iter().filter_map(left_over).collect(), conflicts }
}

fn left_over(file: &Resumed) -> Option<String> {
    let (name, why) = (String::from_utf8_lossy(&file.path), file.failure.as_ref()?);
    (!name.contains(".new-")).then(|| format!("{name} is not in the tier: {why}"))
}
