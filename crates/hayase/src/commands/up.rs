//! `hayase up`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use hayase_tier::Tier;
use serde::Serialize;

use crate::config::{self, Environment};
use crate::count::counted;
use crate::exit::Status;
use crate::job::{Dead, Job, JobId, Kind, Registry, Settings, clean_dead};
use crate::launch::options::JobOptions;
use crate::launch::{PlanError, ground, plan, start};
use crate::output::{Human, Output, Page};
use crate::process::signals::{ENDING, Signals};
use crate::supervisor::said::Ready;
use crate::wiring::places;

/// Hosts that a warning names; of more it says how many.
const NAMED_MAX: usize = 4;

/// How long a job that is up waits for what is still to be said of its tier.
const TIER_PATIENCE: Duration = Duration::from_secs(1);

/// Start a job's file system: servers, areas and mounts
///
/// By default this machine is the only node of the job. With --nodes N it simulates N nodes: as root each node has
/// its own network, host name and mounts, at the same paths, and `hayase exec` runs programs there; without root (or
/// with --no-namespaces) each node is a plain process with its own loopback address, and its areas are in
/// DIR/node-<I>. With --hosts or --host-file each host is a node. Inside a job of Slurm, PBS or PJM the hosts of that
/// job are the nodes. `hayase down` ends the job and removes all areas.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    options: JobOptions,
}

const EXAMPLES: &str = "\
Examples:
  hayase up --nodes 3 --storage /scratch --mount /tmp/areas
  hayase up --hosts 'n[01-16]' --storage /local/scratch --shared 500GiB --mount /tmp/areas
  hayase up --storage /local/scratch --mount /tmp/areas --tier /lustre/me/run7
  hayase up --tier s3://bucket/run7 --endpoint https://s3.example.org --deadline 90m

See also:
  hayase down, hayase run, hayase exec, hayase status";

/// What `up` tells.
#[derive(Debug, Serialize)]
struct Up<'a> {
    job: &'a JobId,
    job_dir: PathBuf,
    kind: &'static str,
    storage: PathBuf,
    shared_bytes: u64,
    local_bytes: u64,
    /// Nodes that carry the storage of all.
    storage_nodes: Vec<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    /// What a person should know of these settings.
    warnings: &'a [String],
    took_ms: u64,
    nodes: &'a [Ready],
}

/// Starts a job that outlives this command.
pub(crate) fn run(
    args: &UpArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let options = &args.options;
    if options.tier.is_none() && options.endpoint.endpoint.is_some() {
        return Err(PlanError::EndpointAlone.into());
    }
    let signals = Signals::block(&ENDING)?;
    let launched = launch(options, environment, &signals, output)?;
    let (nodes, warnings) = (launched.nodes.clone(), launched.warnings.clone());
    let job = launched.let_go(output);
    show(&job, &nodes, &warnings, begin, output)?;
    // One that came too late to stop the start: the job is up, and the status says so.
    while signals.next().is_some() {}
    Ok(Status::Done)
}

/// Plans, prepares and starts; also what `run` does first.
pub(crate) fn launch(
    options: &JobOptions,
    environment: &Environment,
    signals: &Signals,
    output: &Output,
) -> anyhow::Result<start::Launched> {
    options.endpoint.apply();
    for dead in clean_dead(&Registry::open(&environment.runtime)?) {
        match dead {
            Dead::Cleaned(job) => {
                output.note(&format!("removed what job {job} had left; its processes had ended"));
            }
            Dead::Kept(job, why) => output.problem(&format!("job {job} has ended: {why}")),
            Dead::Unknown(why) => output.problem(&why.with_help()),
        }
    }
    let plan = plan::plan(options, environment)?;
    let mut warnings = Vec::from_iter(unreachable_tier(&plan.settings));
    warnings.iter().for_each(|warning| output.note(warning));
    let job = ground::prepare(plan, environment)?;
    let warning = warning_of_tier(&job.settings);
    let mut launched = start::start(job, environment, signals, output)?;
    let mut later = storage_warnings(launched.job.settings.kind == Kind::Hosts, &launched.nodes);
    later.extend(warning.recv_timeout(TIER_PATIENCE));
    later.iter().for_each(|warning| output.note(warning));
    warnings.append(&mut later);
    launched.warnings = warnings;
    Ok(launched)
}

/// What nodes say of the file systems that their storage is on, each once. Simulated nodes have the same storage.
fn storage_warnings(names_hosts: bool, nodes: &[Ready]) -> Vec<String> {
    let mut hosts_of: Vec<(&str, Vec<&str>)> = Vec::new();
    for node in nodes {
        let Some(warning) = node.storage_warning.as_deref() else { continue };
        match hosts_of.iter_mut().find(|(known, _)| *known == warning) {
            Some((_, hosts)) => hosts.push(&node.host),
            None => hosts_of.push((warning, vec![&node.host])),
        }
    }
    let say = |(warning, hosts): (&str, Vec<&str>)| match hosts.len() {
        _ if !names_hosts => warning.to_owned(),
        1..=NAMED_MAX => format!("on {}: {warning}", hosts.join(", ")),
        many => {
            let (named, more) = (hosts[..NAMED_MAX].join(", "), many - NAMED_MAX);
            format!("on {named} and {}: {warning}", counted(more as u64, "other host"))
        }
    };
    hosts_of.into_iter().map(say).collect()
}

/// A server on the loopback address of this machine, which is another one in each namespace.
fn unreachable_tier(settings: &Settings) -> Option<String> {
    let tier = settings.tier.as_ref()?;
    let is_apart = matches!(settings.kind, Kind::Namespaces { .. });
    if !is_apart || !places::is_bucket(OsStr::new(&tier.place)) {
        return None;
    }
    let variable = |name| config::variable_at(tier.endpoint.as_deref(), name);
    let url = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].into_iter().find_map(variable)?;
    let (_, host) = url.split_once("://")?;
    let is_loopback = ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own));
    is_loopback.then(|| {
        format!(
            "simulated nodes have networks of their own, in which {url} is not this machine: use another address of \
             it, or --no-namespaces"
        )
    })
}

/// Tries the tier on this host while the job starts, on a thread that nobody waits for: a tier may hang. Where it can not
/// be opened here there is no warning, and servers that can not open it say so.
fn warning_of_tier(settings: &Settings) -> mpsc::Receiver<String> {
    let (say, warning) = mpsc::channel();
    if let Some(tier) = settings.tier.clone() {
        // As whom no server is known.
        let nobody = settings.owner_in_tier(settings.nodes);
        std::thread::spawn(move || {
            let opened = places::open_owned(&tier, &nobody).ok();
            opened.and_then(|place| warning_of(&*place.tier)).map(|text| say.send(text))
        });
    }
    warning
}

/// What a person should know of a tier in which others change the same files.
fn warning_of(tier: &dyn Tier) -> Option<String> {
    (!tier.capabilities().compares).then(|| {
        let place = tier.describe();
        format!(
            "the tier ({place}) can not compare and swap: a version that another program puts there at the moment when \
             the job publishes the same file is replaced; let no other program write these files meanwhile"
        )
    })
}

fn show(
    job: &Job,
    nodes: &[Ready],
    warnings: &[String],
    begin: Instant,
    output: &Output,
) -> anyhow::Result<()> {
    let settings = &job.settings;
    output.show(&Up {
        job: &settings.job,
        job_dir: job.dir.path().to_owned(),
        kind: settings.kind.word(),
        storage: settings.job_storage(),
        shared_bytes: settings.shared.get(),
        local_bytes: settings.local.get(),
        storage_nodes: settings.groups().servers().iter().map(|server| server.0).collect(),
        tier: settings.tier.as_ref().map(|tier| tier.place.clone()),
        warnings,
        took_ms: begin.elapsed().as_millis() as u64,
        nodes,
    })
}

impl Human for Up<'_> {
    fn write(&self, page: &mut Page) {
        let count = self.nodes.len();
        let nodes = if count == 1 { "node" } else { "nodes" };
        let seconds = self.took_ms as f64 / 1000.0;
        page.title(&format!("job {}: {count} {nodes} up in {seconds:.2} s", self.job));
        page.pair("job directory", &self.job_dir.display());
        page.pair("storage", &self.storage.display());
        let shared = ByteCount(self.shared_bytes);
        let of = self.storage_nodes.len();
        let each = match of == count {
            true => "on each node".to_owned(),
            false => format!("on each of {of} nodes that carry storage"),
        };
        page.pair("shared", &format!("{shared} {each}"));
        page.pair("local", &format!("{} {each}", ByteCount(self.local_bytes)));
        if let Some(tier) = &self.tier {
            page.pair("tier", tier);
        }
        page.blank();
        let row = |node: &Ready| {
            let place = node.shared.parent().unwrap_or(&node.shared).display().to_string();
            vec![node.node.to_string(), node.host.clone(), node.address.clone(), place]
        };
        page.table(&["node", "host", "address", "areas"], self.nodes.iter().map(row).collect());
        page.blank();
        if self.kind == "namespaces" {
            page.line(&format!("hayase exec --job {} --node 0 -- CMD", self.job));
        } else if let Some(node) = self.nodes.first() {
            page.line(&format!("export HAYASE_JOB={}", self.job_dir.display()));
            page.line(&format!("export HAYASE_SHARED={}", node.shared.display()));
            page.line(&format!("export HAYASE_LOCAL={}", node.local.display()));
            if let Some(cache) = &node.cache {
                page.line(&format!("export HAYASE_CACHE={}", cache.display()));
            }
        }
        page.line(&format!("hayase down --job {}", self.job));
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::{Memory, Posix};

    use super::*;

    #[test]
    fn a_tier_that_can_not_compare_and_swap_is_told_of() {
        assert_eq!(warning_of(&Memory::new()), None);
        // Nobody has tried it: nothing is promised.
        let top = tempfile::tempdir().unwrap();
        let warning = warning_of(&Posix::attach(top.path()).unwrap()).unwrap();
        assert!(warning.contains(&top.path().display().to_string()), "{warning}");
    }
}
