//! Results on their way from areas to where they are kept: by one node, or by several at once.

use std::ffi::OsStr;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hayase_stage::Progress;

use super::crew::Crew;
use super::{Area, AreaPlace, How, Order, Spread, SpreadError, area, first_nodes, summed};
use crate::commands::transfer::{self, CopyArgs, End, PackArgs};
use crate::exit::Status;
use crate::job::Job;
use crate::number::within;
use crate::output::Output;

/// Which nodes copy what: what goes out is copied once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OutSpread {
    /// Each node copies a part of `shared`, balanced by bytes and number of files, or its own `local`
    Shard,
}

/// How several nodes share the way out.
#[derive(Debug, clap::Args)]
pub(crate) struct OutSpreadArgs {
    /// Distribute the copy over the job's nodes, from shared/PATH or local/PATH
    #[arg(long, value_name = "HOW", value_enum, conflicts_with = "background")]
    spread: Option<OutSpread>,
    /// Use only the first N nodes
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=u16::MAX.into()), conflicts_with = "background")]
    from_nodes: Option<u16>,
}

impl OutSpreadArgs {
    /// Nodes of a job are to copy.
    pub(crate) fn is_wanted(&self) -> bool {
        self.spread.is_some() || self.from_nodes.is_some()
    }

    /// What they mean for `job`.
    pub(crate) fn how(&self, job: &Job) -> Result<How<'static>, SpreadError> {
        let nodes = first_nodes(job, self.from_nodes)?;
        Ok(How { spread: Some(Spread::Shard), nodes, signals: None })
    }
}

/// How results go out.
pub(crate) struct OutWishes {
    pub(crate) copy: CopyArgs,
    pub(crate) pack: PackArgs,
    /// The text of the key that seals packs.
    pub(crate) key: Option<Vec<u8>>,
    /// Of `run`, rather than of `stage`.
    pub(crate) is_of_run: bool,
}

/// Copies from an area to a target; shows the summary. From `shared` each node its part where the person says so,
/// since not every target is one that all nodes see; else the first node does it. From `local` each its own, where
/// the job has several nodes each to a directory of its own: names of one node say nothing about those of another.
pub(crate) fn stage_out(
    (job, how): (&Job, How<'_>),
    source: &AreaPlace,
    target: &OsStr,
    wishes: &OutWishes,
    output: &Output,
) -> anyhow::Result<Status> {
    let (progress, begin) = (Progress::default(), Instant::now());
    let (signals, is_ended) = (how.signals, &AtomicBool::new(false));
    let crew = Crew { job, progress: &progress, output, signals, is_ended, is_looking: false };
    let is_shared_out = how.nodes > 1 && how.spread.is_some();
    let target = area::absolute(target)?;
    let order = |node| {
        let from = source.path(&job.settings, node);
        let order = Order::new(from.as_os_str(), &wishes.copy, wishes.key.clone());
        order.out_to(target.clone(), wishes.pack.clone(), wishes.is_of_run)
    };
    let end = transfer::while_watched(("Copying", &progress), output, || match source.area {
        Area::Local if job.settings.nodes > 1 => {
            let orders: Vec<_> =
                (0..how.nodes).map(|node| (node, order(node).of_node(node, how.nodes))).collect();
            let ends = crew.run(&orders)?.into_iter().collect::<anyhow::Result<Vec<End>>>()?;
            if ends.iter().all(|end| end.is_absent) {
                return Err(SpreadError::NotMade(source.to_string()).into());
            }
            Ok(summed(&ends, false))
        }
        Area::Shared if is_shared_out => {
            if !wishes.copy.dry_run {
                // What can not be is said once; and one key is for all, whoever comes first.
                crew.one(order(0).beginning())?;
            }
            crew.in_parts(how.nodes, &order)
        }
        Area::Local | Area::Shared => crew.one(order(0)),
    })?;
    transfer::show_end(End { seconds: begin.elapsed().as_secs_f64(), ..end }, output)
}
