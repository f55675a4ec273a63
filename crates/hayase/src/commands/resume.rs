//! `hayase resume`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use hayase_layout::ByteCount;
use hayase_store::{FileState, LedgerRecord};
use serde::Serialize;

use super::area_path::AreaPathError;
use super::verify::{VerifyTold, verify_ledgers};
use crate::count::counted;
use crate::exit::Status;
use crate::job::{
    Job, JobDir, JobError, Registry, Removable, Settings, clean_resumed, detach_areas, expect_own,
    found_mark, ledgers, left_names,
};
use crate::output::{Human, Output, Page};
use crate::wiring::resume::{Left, Resumed, Resuming, wait_for_programs};

mod salvage;

use self::salvage::SalvageTold;

/// Flush data left behind by a job to the tier, without its servers
///
/// For a job that was killed, or that `hayase down` ended before the tier had all files. The ledgers on the storage of
/// the nodes list what is missing. When nothing is missing, the storage of the job is removed.
///
/// If the nodes are hosts, run it on each of them. Files whose parts are on several nodes (striped files and files of
/// MPI programs), and removals of files, wait until the storage of all nodes is visible in one place.
///
/// If both copies of a ledger are damaged, or names of files cannot be read, nothing is removed, the damage is listed, and `--salvage`
/// helps.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ResumeArgs {
    /// Directory of the job, or the storage that `hayase down` kept
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Keep the storage, even when the tier has all files
    #[arg(long)]
    keep: bool,
    /// Read the flushed files back from the tier and compare them with what was sent
    #[arg(long)]
    verify: bool,
    /// Copy every file whose data still exists to the tier, ignoring the ledgers; overwrite nothing
    ///
    /// For damaged ledgers. A file without a known name goes to `lost+found/JOB/INODE` in the tier. If the tier has
    /// another file with the same name, the copy gets a conflict name in the same directory. Nothing is removed from
    /// the tier, and the storage is kept unless --discard.
    #[arg(long, conflicts_with_all = ["keep", "verify"])]
    salvage: bool,
    /// Accept the directory now at the tier's path, even if it is not the original
    ///
    /// For a tier that was restored or created again. Make sure that its file system is mounted; otherwise files go
    /// to the local disk of this host.
    #[arg(long)]
    replaced_tier: bool,
    /// Remove the storage when the tier has all files known here, even if other nodes may need it
    ///
    /// If the nodes are hosts, this host does not know whether it stores parts of striped files or of files of MPI
    /// programs for other nodes; such files are lost. Also needed after --salvage.
    #[arg(long, conflicts_with = "keep")]
    discard: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase resume /local/scratch/run7
  hayase resume --verify --keep /local/scratch/run7
  hayase resume --salvage /local/scratch/run7

Exit codes:
  0 the tier has all files; 1 failed, or a ledger is damaged; 3 some files are not in the tier,
  differ there, or cannot be compared. With 1 and 3 the storage is kept, unless --discard.

See also:
  hayase down, hayase status --ledger";

#[derive(Debug, Serialize)]
struct ResumeTold {
    took_ms: u64,
    durable_files: u64,
    durable_bytes: u64,
    /// Files that the job had removed, and that are gone from the tier now.
    removed_files: u64,
    /// Removals that wait for the nodes that are not here.
    removals_waiting: u64,
    /// Names of files whose removal or rename was cut short: the tier keeps them.
    kept: Vec<String>,
    /// Files whose name in the tier was somebody else's by now.
    conflicts: Vec<String>,
    failed: Vec<FailedFile>,
    /// Nodes whose storage is not on this machine.
    not_here: Vec<u16>,
    /// They may need what is here, when everything is in the tier that is known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<bool>,
    removed: bool,
    /// When that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<VerifyTold>,
}

#[derive(Debug, Serialize)]
struct FailedFile {
    node: u16,
    path: String,
    bytes: u64,
    why: String,
}

/// Goes through all nodes whose storage is here.
pub(crate) fn run(args: &ResumeArgs, output: &Output) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let (dir, mut settings) = found(&args.dir)?;
    let Some(tier) = &mut settings.tier else {
        bail!("job {} had no tier: there is nothing to flush", settings.job);
    };
    if args.replaced_tier {
        tier.root = None;
    }
    if let Ok(Some(mark)) = found_mark(&settings)
        && mark != settings.mark
    {
        let storage = settings.job_storage();
        bail!("the storage {} belongs to another job with the same name", storage.display());
    }
    if args.salvage {
        return run_salvage(args, &dir, &settings, output);
    }
    let mut told = ResumeTold {
        took_ms: 0,
        durable_files: 0,
        durable_bytes: 0,
        removed_files: 0,
        removals_waiting: 0,
        kept: Vec::new(),
        conflicts: Vec::new(),
        failed: Vec::new(),
        not_here: Vec::new(),
        needed: None,
        removed: false,
        verified: None,
    };
    let (here, not_here): (Vec<u16>, Vec<u16>) =
        (0..settings.nodes).partition(|node| settings.ledger(*node).exists());
    let not_here = not_here.into_iter().filter(|node| !ledgers::is_in_tier(&settings, *node));
    told.not_here = not_here.collect();
    for node in &told.not_here {
        // Storage without its ledger is here all the same.
        Removable::check(&settings, [*node])?;
    }
    let mut left = Left::find(&settings)?;
    let known = here.clone();
    let progress = output.steps("Flushing", wanted(&settings, &here)?, "file");
    for node in &here {
        let resumed = left.files(*node, |file| {
            told.add(*node, &file);
            progress.step();
        });
        resumed.with_context(|| format!("resume node {node}"))?;
    }
    drop(progress);
    if !told.not_here.is_empty() {
        // Of files of those nodes some parts may be here, and this storage may be brought to where those are.
        for node in &here {
            if let Err(error) = left.seal(*node) {
                tracing::warn!("what is left of node {node} is not made durable: {error:#}");
            }
        }
    }
    let unread = left.unread_names();
    left.unmount()?;
    if told.not_here.is_empty() {
        for node in here {
            let resumed = left.removals(node, |file| told.add(node, &file));
            resumed.with_context(|| format!("resume node {node}"))?;
        }
    } else {
        // What is removed may be the last version of a file that is on one of those.
        told.removals_waiting = left.removals;
    }
    if args.verify {
        told.verified = Some(verify_ledgers(&settings, output)?);
    }
    let is_right = told.verified.as_ref().is_none_or(VerifyTold::is_right);
    let is_all = told.failed.is_empty() && told.not_here.is_empty() && unread.is_empty();
    let is_done = is_all && is_right;
    let gives_up = args.discard && told.failed.is_empty() && unread.is_empty() && is_right;
    let mut refused = None;
    if !told.not_here.is_empty() && told.failed.is_empty() && unread.is_empty() {
        match Removable::given_up(&settings, known.iter().copied()) {
            Ok(removable) if gives_up => {
                clean_resumed(&settings, &dir, removable);
                told.removed = !settings.job_storage().exists();
            }
            Ok(_) => {
                let is_needed = |node: &u16| ledgers::keeps_for_others(&settings, *node);
                told.needed = Some(known.iter().any(is_needed));
            }
            Err(kept) => refused = Some(kept),
        }
    }
    if is_done && !args.keep {
        match Removable::check(&settings, 0..settings.nodes) {
            Ok(removable) => {
                clean_resumed(&settings, &dir, removable);
                told.removed = !settings.job_storage().exists();
            }
            Err(kept) => refused = Some(kept),
        }
    }
    told.took_ms = begin.elapsed().as_millis() as u64;
    output.show(&told)?;
    if let Some(kept) = refused {
        return Err(kept.into());
    }
    if let Some(why) = unread.first() {
        bail!(
            "{why}; the storage is kept: `hayase resume --salvage DIR` copies every file that still exists to the tier"
        );
    }
    let is_complete = is_done || told.removed && told.removals_waiting == 0;
    Ok(if is_complete { Status::Done } else { Status::Partly })
}

/// Brings what is there of all nodes whose storage is here. The storage stays, unless that was brought as a whole and is
/// to be discarded.
fn run_salvage(
    args: &ResumeArgs,
    dir: &JobDir,
    settings: &Settings,
    output: &Output,
) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let with_storage = (0..settings.nodes).filter(|node| settings.has_storage(*node));
    let (here, not_here): (Vec<u16>, Vec<u16>) =
        with_storage.partition(|node| settings.node_storage(*node).exists());
    let typed = std::path::absolute(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let mut told = SalvageTold::new(typed, settings.job_storage(), not_here);
    let mut left = Left::to_salvage(settings)?;
    for node in here {
        let damage = left.salvage(node, |file| told.add(node, &file));
        told.add_damage(damage.with_context(|| format!("salvage node {node}"))?);
    }
    left.unmount()?;
    if told.is_all() && args.discard {
        clean_resumed(settings, dir, Removable::discarded(settings)?);
        told.removed = !settings.job_storage().exists();
    }
    told.took_ms = begin.elapsed().as_millis() as u64;
    output.show(&told)?;
    Ok(if told.is_all() { Status::Done } else { Status::Partly })
}

/// A job directory, or a storage that was kept: held, and the settings in it.
fn found(dir: &Path) -> anyhow::Result<(JobDir, Settings)> {
    let found = JobDir::find(dir)?;
    let Some(dir) = found else {
        dir.symlink_metadata().map_err(|_| AreaPathError::Missing(dir.to_owned()))?;
        return Err(JobError::NotAJob { path: dir.to_owned(), from_environment: false }.into());
    };
    if let Some(kept) = ledgers::kept_in(&dir)? {
        expect_own(&kept.job_storage())?;
        expect_ended(&kept)?;
        return Ok((dir, kept));
    }
    let settings = dir.settings()?;
    let job = crate::job::Job { dir, settings }.known()?;
    if job.is_elsewhere() {
        bail!(
            "job {0} has other hosts, and this host cannot tell whether it is up: end it with `hayase down --job {1}` \
             (or `hayase down --here --job {1}` on each host), and resume what that keeps",
            job.settings.job,
            job.dir.path().display()
        );
    }
    if job.is_alive() {
        bail!("job {} is up: use `hayase flush`, or end it first", job.settings.job);
    }
    expect_own(&job.settings.job_storage())?;
    wait_for_programs(&job.settings)?;
    // Mounts of a job that was killed on this machine keep its images busy.
    detach_areas(&job.settings);
    Ok((job.dir, job.settings))
}

/// Nothing of the job whose bytes were kept writes there any more.
fn expect_ended(kept: &Settings) -> anyhow::Result<()> {
    let of_job = |job: &Job| job.settings.mark == kept.mark;
    let listed = Registry::open_or_none(&kept.runtime).jobs().into_iter().find(of_job);
    if let Some(node) = (0..kept.nodes).find(|node| left_names::is_served(kept, *node)) {
        bail!(
            "the server of node {node} of job {} still runs: end it with `hayase down`",
            kept.job
        );
    }
    // Where it is not listed any more, others may have its mount points.
    let Some(job) = listed.map(Job::known).transpose()? else { return Ok(()) };
    if !job.living().is_empty() {
        bail!("job {} still runs here: end it with `hayase down`", kept.job);
    }
    wait_for_programs(kept)
}

/// Files that the ledgers of `nodes` want in the tier.
fn wanted(settings: &Settings, nodes: &[u16]) -> anyhow::Result<u64> {
    let mut files = 0;
    for node in nodes {
        let left = ledgers::not_durable(settings, *node)?;
        let is_file =
            |record: &&LedgerRecord| record.state != FileState::Removed && !record.is_nameless;
        files += left.iter().filter(is_file).count() as u64;
    }
    Ok(files)
}

impl ResumeTold {
    fn add(&mut self, node: u16, file: &Resumed) {
        let path = String::from_utf8_lossy(&file.path).into_owned();
        match &file.failure {
            None => match file.what {
                Resuming::Removal => self.removed_files += 1,
                Resuming::Kept => self.kept.push(path),
                Resuming::Flush | Resuming::Conflict => {
                    self.durable_files += 1;
                    self.durable_bytes += file.bytes;
                    if file.what == Resuming::Conflict {
                        self.conflicts.push(path);
                    }
                }
            },
            Some(refused) => {
                let (bytes, why) = (file.bytes, refused.to_string());
                self.failed.push(FailedFile { node, path, bytes, why });
            }
        }
    }
}

impl Human for ResumeTold {
    fn write(&self, page: &mut Page) {
        let (files, bytes) = (self.durable_files, ByteCount(self.durable_bytes));
        page.line(&format!("in the tier now: {}, {bytes}", counted(files, "file")));
        if self.removed_files > 0 {
            page.line(&format!("removed from it: {}", counted(self.removed_files, "file")));
        }
        if self.removals_waiting > 0 {
            let waiting = self.removals_waiting;
            let until = if self.removed { "" } else { " until all nodes are here" };
            page.line(&format!("not removed from it{until}: {}", counted(waiting, "file")));
        }
        for path in &self.kept {
            page.line(&format!("its removal or rename was cut short, it is in the tier as {path}"));
        }
        for path in &self.conflicts {
            page.line(&format!("two versions: ours is kept as {path}"));
        }
        for file in &self.failed {
            page.line(&format!(
                "not in the tier: {} (node {}): {}",
                file.path, file.node, file.why
            ));
        }
        for node in &self.not_here {
            page.line(&format!("node {node}: its storage is not on this machine"));
        }
        if let Some(needed) = self.needed {
            page.line(match needed {
                true => "the storage stays, since those may need parts of it: bring `node-N` of all to one host",
                false => {
                    "the storage stays; `hayase resume --discard` removes it, if the job wrote no file through MPI-IO"
                }
            });
        }
        if let Some(verified) = &self.verified {
            verified.write(page);
        }
        if self.removed {
            page.line("the job's storage was removed");
        }
    }
}
