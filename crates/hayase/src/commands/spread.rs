//! Copies by several nodes of a job: each its part, or everything on each node.
//!
//! Rooms: [`area`] (a place in an area of the job), [`order`] (what a worker is told), [`worker`] (a process on
//! a node that does it), [`crew`] (workers of one step, watched together), [`parts`] (a tree dealt out to them,
//! and the complete copy that follows), [`out`] (from areas to where things are kept).
//!
//! No node talks to another about the work: all see the same source and deal it alike
//! ([`hayase_stage::Share`]). Where all see the target, a complete copy by one node follows; it finds what is
//! there, does what only one can do (attributes of directories, removals, the index of packs), and would find
//! what somebody missed. Into `local` of each node everything goes through a hidden directory of `shared` first:
//! so each byte leaves the source once, and the servers of the job carry it from node to node; small files in
//! packs, since making and opening each of them on the mount would take longer than all the rest.

mod area;
mod crew;
mod order;
mod out;
mod parts;
pub(crate) mod worker;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hayase_stage::Progress;

pub(crate) use self::area::{Area, AreaPlace};
use self::crew::Crew;
pub(crate) use self::order::{Order, Passing};
pub(crate) use self::out::{OutSpreadArgs, OutWishes, stage_out};
use self::parts::{add_parts, joined};
use super::job_arg::JobArg;
use super::transfer::{self, CopyArgs, End, NodePart};
use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::exit::Status;
use crate::job::Job;
use crate::number::within;
use crate::output::Output;
use crate::process::signals::Signals;

/// Which nodes copy what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Spread {
    /// Each node copies a part, balanced by bytes and number of files
    Shard,
    /// Copy everything to `local` of each node; each byte is fetched once and then sent from node to node
    Copy,
}

/// How several nodes share the work.
#[derive(Debug, clap::Args)]
pub(crate) struct SpreadArgs {
    /// Distribute the copy over the job's nodes, to shared/PATH or local/PATH [default: shard for shared, copy for
    /// local]
    #[arg(long, value_name = "HOW", value_enum)]
    spread: Option<Spread>,
    /// Use only the first N nodes
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=u16::MAX.into()))]
    to_nodes: Option<u16>,
    #[command(flatten)]
    job: JobArg,
}

impl SpreadArgs {
    /// Nodes of a job are to copy.
    pub(crate) fn is_wanted(&self) -> bool {
        self.spread.is_some() || self.to_nodes.is_some()
    }

    /// The job, and how.
    pub(crate) fn find(&self, environment: &Environment) -> anyhow::Result<(Job, How<'static>)> {
        let job = self.job.find(environment)?;
        let nodes = first_nodes(&job, self.to_nodes)?;
        Ok((job, How { spread: self.spread, nodes, signals: None }))
    }
}

/// How many nodes of the job are to copy: all, where nothing is said.
fn first_nodes(job: &Job, wanted: Option<u16>) -> Result<u16, SpreadError> {
    let nodes = job.settings.nodes;
    match wanted {
        Some(wanted) if wanted > nodes => Err(SpreadError::TooMany { wanted, nodes }),
        _ => Ok(wanted.unwrap_or(nodes)),
    }
}

/// What [`SpreadArgs`] come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(crate) spread: Option<Spread>,
    pub(crate) nodes: u16,
    /// Those that are held back from this process.
    pub(crate) signals: Option<&'a Signals>,
}

/// What can not be meant, or what no worker can do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpreadError {
    /// More nodes than there are.
    #[error("the job has only {nodes} nodes, fewer than {wanted}")]
    TooMany { wanted: u16, nodes: u16 },
    /// Not `AREA/PATH`.
    #[error("`{0}` is not a path in an area of the job, shared or local")]
    NoArea(String),
    /// Everything on each node, where each node sees everything.
    #[error("`--spread copy` needs a target in `local`: all nodes see the same `shared`")]
    CopyIntoShared,
    /// `run --out` or `stage out` of what is not there.
    #[error("{0} does not exist: no program created it")]
    NotMade(String),
    /// Options of `run` about a copy that is not made.
    #[error("{options} need {about}")]
    Unused { options: &'static str, about: &'static str },
    /// A worker could not begin.
    #[error("node {node}: {what}")]
    Broken { node: u16, what: String, help: Option<String>, is_usage: bool },
    /// By a signal to this process.
    #[error("the copy was interrupted")]
    Interrupted,
    /// A worker ended without a word.
    #[error("the copy on node {node} ended early: {how}")]
    Ended { node: u16, how: String },
}

impl SpreadError {
    /// What the person can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::TooMany { .. } => None,
            Self::NoArea(_) => Some("name it as shared/PATH or local/PATH".to_owned()),
            Self::CopyIntoShared => Some("use --spread shard, or a target in `local`".to_owned()),
            Self::NotMade(_) => {
                Some("check the path: it is relative to $HAYASE_SHARED or $HAYASE_LOCAL".to_owned())
            }
            Self::Unused { about, .. } => Some(format!("add {about}, or omit these options")),
            Self::Broken { help, .. } => help.clone(),
            Self::Ended { .. } | Self::Interrupted => Some(
                "run the same command again; files that arrived are not copied again".to_owned(),
            ),
        }
    }

    /// The person asked for something that can not be.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            Self::Broken { is_usage, .. } => *is_usage,
            Self::Ended { .. } | Self::Interrupted => false,
            _ => true,
        }
    }
}

impl Advise for SpreadError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice { help: self.help(), is_usage: self.is_usage() })
    }
}

/// Copies `source` into an area; shows the summary.
pub(crate) fn stage_in(
    (job, how): (&Job, How<'_>),
    source: &OsStr,
    target: &AreaPlace,
    (copy, key): (&CopyArgs, Option<Vec<u8>>),
    output: &Output,
) -> anyhow::Result<Status> {
    let default = if target.area == Area::Shared { Spread::Shard } else { Spread::Copy };
    let spread = how.spread.unwrap_or(default);
    if (target.area, spread) == (Area::Shared, Spread::Copy) {
        return Err(SpreadError::CopyIntoShared.into());
    }
    let (progress, begin) = (Progress::default(), Instant::now());
    let staging = Staging {
        crew: Crew {
            job,
            progress: &progress,
            output,
            signals: how.signals,
            is_ended: &AtomicBool::new(false),
            is_looking: false,
        },
        nodes: how.nodes,
        order: Order::new(&area::absolute(source)?, copy, key),
        target,
    };
    let end =
        transfer::while_watched(("Copying", &progress), output, || match (target.area, spread) {
            (_, _) if how.nodes == 1 => staging.crew.one(staging.order.to(staging.path(0))),
            (Area::Shared, _) => staging.crew.in_parts(how.nodes, &staging.everywhere()),
            (Area::Local, Spread::Shard) => staging.shards(),
            (Area::Local, Spread::Copy) => staging.copies(),
        })?;
    transfer::show_end(End { seconds: begin.elapsed().as_secs_f64(), ..end }, output)
}

/// One copy into an area.
struct Staging<'a> {
    crew: Crew<'a>,
    nodes: u16,
    /// With the person's options, and without a target.
    order: Order,
    target: &'a AreaPlace,
}

impl Staging<'_> {
    fn path(&self, node: u16) -> PathBuf {
        self.target.path(&self.crew.job.settings, node)
    }

    /// The same on each node: all see one directory.
    fn everywhere(&self) -> impl Fn(u16) -> Order {
        let order = self.order.to(self.path(0));
        move |_| order.clone()
    }

    /// Each node its part, into its own directory; all directories everywhere.
    fn shards(&self) -> anyhow::Result<End> {
        let share = |node| self.order.to(self.path(node)).share(node, self.nodes, true);
        let ends =
            self.crew.run(&(0..self.nodes).map(|node| (node, share(node))).collect::<Vec<_>>())?;
        let ends = ends.into_iter().collect::<anyhow::Result<Vec<End>>>()?;
        let mut all = summed(&ends, false);
        if ends.iter().any(|end| end.seen != ends[0].seen) {
            let why = "it changed while nodes looked at it; run the same command again";
            all.failures.push(("the source".to_owned(), why.to_owned()));
            all.failures_total += 1;
            all.is_complete = false;
        }
        Ok(all)
    }

    /// Everything into the directory of each node, by way of `shared`.
    fn copies(&self) -> anyhow::Result<End> {
        let to_node = |node| self.order.to(self.path(node));
        let all = |crew: Crew<'_>, orders: &dyn Fn(u16) -> Order| {
            let ends =
                crew.run(&(0..self.nodes).map(|node| (node, orders(node))).collect::<Vec<_>>())?;
            ends.into_iter().collect::<anyhow::Result<Vec<End>>>()
        };
        // Nobody fetches what all nodes have already.
        let looking = Crew { is_looking: true, ..self.crew };
        let looked = all(looking, &|node| to_node(node).looking())?;
        if self.order.copy.dry_run || looked.iter().all(|end| end.copied == 0) {
            return Ok(summed(&all(self.crew, &to_node)?, false));
        }
        let hidden = AreaPlace::hidden(&self.order.source, self.target);
        let between = self.order.mirror(hidden.path(&self.crew.job.settings, 0));
        let has_large = looked.iter().any(|end| end.large > 0);
        let mut parts = Vec::new();
        for passing in [Passing::Large, Passing::Small] {
            let mut order = between.passing(passing);
            // Without large files there is only to be removed what an earlier try left of some.
            if passing == Passing::Small || has_large {
                let more = self.crew.parts(self.nodes, &|_| order.clone())?;
                add_parts(&mut parts, more.nodes);
                order = order.trusting(more.is_complete);
            }
            let fetched = self.crew.one(order)?;
            if !fetched.is_complete {
                // What arrived stays there for the next time.
                return Ok(joined(fetched, parts));
            }
        }
        let ends =
            all(self.crew, &|node| to_node(node).from(hidden.path(&self.crew.job.settings, node)))?;
        let mut end = summed(&ends, true);
        for part in &parts {
            if let Some(own) = end.nodes.iter_mut().find(|own| own.node == part.node) {
                own.bytes = part.bytes;
                // Its own part it has from itself.
                own.bytes_from_nodes = own.bytes_from_nodes.saturating_sub(part.bytes);
            }
        }
        if end.is_complete {
            self.crew.one(Order::removal(hidden.path(&self.crew.job.settings, 0)))?;
        }
        Ok(end)
    }
}

/// What several nodes did, each in its own directory; `from_nodes` when their source was `shared`.
fn summed(ends: &[End], from_nodes: bool) -> End {
    let mut all = End { is_complete: true, ..End::default() };
    for (node, end) in (0..).zip(ends) {
        all.is_complete &= end.is_complete;
        all.is_dry_run |= end.is_dry_run;
        all.is_stopped |= end.is_stopped;
        all.found = all.found.max(end.found);
        all.copied += end.copied;
        all.kept += end.kept;
        all.spared += end.spared;
        all.removed += end.removed;
        all.bytes_moved += end.bytes_moved;
        all.bytes_resumed += end.bytes_resumed;
        all.streams += end.streams;
        all.part_bytes = all.part_bytes.max(end.part_bytes);
        all.failures_total += end.failures_total;
        let failures = end.failures.iter();
        all.failures
            .extend(failures.map(|(name, why)| (format!("node {node}: {name}"), why.clone())));
        let (bytes, bytes_from_nodes) =
            if from_nodes { (0, end.bytes_moved) } else { (end.bytes_moved, 0) };
        let (items, bytes_resumed) = (end.copied, end.bytes_resumed);
        let packs = end.packs;
        all.packs += packs;
        all.nodes.push(NodePart { node, items, bytes, bytes_resumed, bytes_from_nodes, packs });
    }
    all
}

/// `SRC:AREA/PATH`, as `run --in` takes it; the last colon counts.
pub(crate) fn parse_in(text: &str) -> Result<(OsString, AreaPlace), String> {
    let (source, place) = text.rsplit_once(':').ok_or(IN_EXPECTED)?;
    if source.is_empty() {
        return Err(IN_EXPECTED.to_owned());
    }
    Ok((source.into(), AreaPlace::parse(place).map_err(|error| format!("{error}; {IN_EXPECTED}"))?))
}

const IN_EXPECTED: &str = "expected SRC:AREA/PATH, for example s3://bucket/data:shared/in";
const OUT_EXPECTED: &str = "expected AREA/PATH:DST, for example shared/out:s3://bucket/out";

/// `AREA/PATH:DST`, as `run --out` takes it; the first colon counts.
pub(crate) fn parse_out(text: &str) -> Result<(AreaPlace, OsString), String> {
    let (place, target) = text.split_once(':').ok_or(OUT_EXPECTED)?;
    let place = AreaPlace::parse(place).map_err(|error| format!("{error}; {OUT_EXPECTED}"))?;
    match target {
        "" => Err(OUT_EXPECTED.to_owned()),
        _ => Ok((place, target.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_cut_at_the_colon_of_the_area() {
        let (source, place) = parse_in("s3://bucket/data:shared/in/x").unwrap();
        assert_eq!(
            (source.to_str(), place.to_string()),
            (Some("s3://bucket/data"), "shared/in/x".into())
        );
        let (place, target) = parse_out("shared/out:s3://bucket/out").unwrap();
        assert_eq!(
            (place.to_string(), target.to_str()),
            ("shared/out".into(), Some("s3://bucket/out"))
        );
        for wrong in
            ["data", "data:", ":shared/x", "data:elsewhere/x", "s3://bucket/data", "a:shared/../x"]
        {
            assert!(parse_in(wrong).is_err(), "{wrong}");
        }
        for wrong in ["shared/x", "shared/x:", "cache/x:y", "x:y"] {
            assert!(parse_out(wrong).is_err(), "{wrong}");
        }
    }
}
