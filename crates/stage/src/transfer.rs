//! The copy itself: one thread plans, a bounded number of streams moves bytes, then the rest is set right.
//!
//! Each part owns its state, and knows only parts above it in this list:
//!
//! - [`report`]: what became of each item; [`retries`]: calls of a tier that is unreachable;
//! - [`gate`]: how many streams, how much memory; [`part_requests`]: how large parts are, and what they took;
//! - [`next_index`]: the rows of the index that is to be; [`later`]: what planning leaves for the end;
//! - [`reading`]: the source, with its [`bytes`], each read so that a change is noticed, its [`open_packs`] and the
//!   entries of a pack that one request reads ([`stretch`]);
//! - [`writing`]: the target; [`asking`]: what only objects themselves tell;
//! - [`copying`] (items, small ones in a [`group`]), [`packing`] (items into packs), [`large`] (one file in parts, with
//!   [`part_sums`]): what streams do;
//! - [`tuning`]: asking the tuner; [`units`]: the queue; [`pool`]: the streams;
//! - [`planning`]: source against target, in order, with [`leftovers`] of earlier runs and what stands [`in_the_way`];
//! - [`finish`]: directories, removals, the index.
//!
//! Invariants:
//! 1. A file is at the target whole, checked and dated, or not at all: so a run that was killed at any
//!    point is continued by running it again, and only what is missing moves. What is there of a large file
//!    that is not finished counts only after it was compared.
//! 2. Memory: units that are worked on hold at most [`Options::memory`] together, what their uploads keep
//!    included; those that wait only names. Beside that an index, where packs are read or written.
//! 3. Nothing is removed before everything has arrived, but a file that stands where a directory is to be.

pub(crate) mod asking;
mod bytes;
mod copying;
mod finish;
mod gate;
mod group;
mod in_the_way;
mod large;
mod later;
mod leftovers;
mod next_index;
pub(crate) mod open_packs;
mod packing;
mod part_requests;
mod part_sums;
mod planning;
mod pool;
mod reading;
mod report;
mod retries;
mod stretch;
mod tuning;
mod units;
mod writing;

use ring::rand::SecureRandom;

use self::asking::Asking;
use self::copying::Copying;
use self::finish::Finish;
use self::gate::Gate;
use self::large::LargeFiles;
use self::later::Later;
use self::next_index::{Entries, NextIndex};
use self::packing::Packing;
use self::part_requests::PartRequests;
use self::planning::Plan;
use self::pool::Pool;
use self::reading::Reading;
use self::report::Report;
use self::retries::Retries;
use self::tuning::Tuning;
use self::writing::Writing;
use crate::form;
use crate::item::Item;
use crate::pack::{PackError, PackSet};
use crate::source::Source;
use crate::tuner::Tuner;
use crate::walk::{Met, Walk};
use crate::{Failure, Observer, Options, Place, Progress, Summary};

/// Where random numbers come from, asked by all streams.
pub type Random = dyn SecureRandom + Sync;

/// Copies what `source` has and `target` lacks.
///
/// Blocks until it is done; uses `options.streams` threads. What fails for one item is listed in the
/// summary and does not stop the others; a full, used-up or unreachable tier does.
///
/// # Errors
/// When nothing could be begun (a wrong key, nothing in a store that is the source, a target of the other
/// [`Form`](crate::Form), a source without a name that would have everything removed), or when another writer changed the packs
/// meanwhile (`Conflict`).
pub fn transfer(
    source: &Source,
    target: &Place,
    options: &Options,
    progress: &Progress,
    observer: &dyn Observer,
    random: &Random,
) -> Result<Summary, PackError> {
    if source.is_nothing() {
        // A wrong name, most likely: nothing is made of it, and nothing removed for it.
        return Err(PackError::Nothing { place: source.place().describe() });
    }
    let is_unbound = options.delete && options.delete_max.is_none();
    if is_unbound && source.is_empty() && would_remove(target, options)? {
        return Err(PackError::RemovesAll { place: source.place().describe() });
    }
    form::check(target, options)?;
    let mut set = match &options.packs {
        None => None,
        Some(packs) if options.is_dry_run => PackSet::open_to_write(target, packs.master.as_ref())?,
        Some(packs) => Some(PackSet::open_or_begin(target, packs.master.as_ref(), random)?),
    };
    let watched = (progress, observer);
    let (mut summary, entries) = moved((source, target, set.as_ref()), options, watched, random)?;
    let (mut unwritten, mut left) = (None, None);
    match &mut set {
        Some(set) if options.share.is_some() => {
            summary.loose = finish::loose(set, options.overwrite, entries);
        }
        Some(set) if !options.is_dry_run => {
            match finish::commit(set, (entries, summary.is_complete()), random) {
                Err(error @ PackError::Tier(_)) => unwritten = Some(error),
                other => other?,
            }
            if options.delete && unwritten.is_none() && summary.is_complete() {
                left = finish::remove_leftovers(set, options, &mut summary).err();
            }
        }
        _ => {}
    }
    // What was packed is there, and the next run takes it over.
    summary.is_stopped |= unwritten.is_some();
    let index = unwritten.map(|error| ("the index of the packs", error));
    let left = left.map(|error| ("what lies beside the packs", error));
    for (name, error) in index.into_iter().chain(left) {
        observer.failed(name, &error);
        Progress::add(&progress.failures, 1);
        summary.failures_total += 1;
        summary.failures.push(Failure { name: name.to_owned(), error });
    }
    Ok(summary)
}

/// Makes the parts of a transfer, and has them move everything; the summary, and what the next index of a set is
/// made of.
fn moved(
    (source, target, set): (&Source, &Place, Option<&PackSet>),
    options: &Options,
    (progress, observer): (&Progress, &dyn Observer),
    random: &Random,
) -> Result<(Summary, Entries), PackError> {
    let tuner = Tuner::new(options.streams, options.part_size, options.memory);
    let gate = &Gate::new(tuner.streams(), options.memory);
    let requests = &PartRequests::new(tuner.part_bytes());
    let (report, next_index) = (Report::new(progress, observer), NextIndex::default());
    let retries = Retries::new(&report);
    {
        let (report, retries, next_index) = (&report, &retries, &next_index);
        let reading = &Reading::new(source, retries);
        let writing = &Writing::new(target, options.bandwidth, report, retries);
        let asking = &Asking::new((source.place(), target), options, report, retries);
        let (packs, part_size, memory) =
            (options.packs.as_ref(), options.part_size, options.memory);
        let tiers = [&*source.place().tier, &*target.tier];
        let pool = &Pool {
            streams_max: options.streams.range().1,
            target,
            gate,
            tuning: Tuning { options, tiers, gate, requests, asking, report, retries },
            copying: Copying { reading, writing, asking, report },
            packing: Packing {
                options: packs,
                set,
                random,
                reading,
                writing,
                asking,
                next_index,
                report,
                retries,
            },
            large: LargeFiles {
                reading,
                writing,
                asking,
                requests,
                next_index,
                report,
                retries,
                part_size,
                memory,
            },
            report,
        };
        let plan =
            Plan { source, set, options, reading, writing, asking, next_index, report, retries };
        let mut later = Later::default();
        pool.run(|queue| plan.run(queue).map(|left| later = left))?;
        let finish = Finish { options, gate, pool, reading, writing, next_index, report };
        finish.finish(later)?;
    }
    let mut summary = report.into_summary();
    summary.streams = gate.streams();
    summary.part_bytes = requests.size_used();
    summary.memory_peak = gate.peak();
    summary.found = Progress::get(&progress.found);
    summary.bytes_moved = Progress::get(&progress.bytes_moved);
    summary.bytes_resumed = Progress::get(&progress.bytes_resumed);
    Ok((summary, next_index.into_entries()))
}

/// The target has something that the person's patterns select.
fn would_remove(target: &Place, options: &Options) -> Result<bool, PackError> {
    let is_taken = |item: &Item| options.selection.takes(&item.name, item.is_directory());
    if let Some(packs) = &options.packs {
        let set = PackSet::open_to_write(target, packs.master.as_ref())?;
        return Ok(set.is_some_and(|set| set.index.rows.iter().any(|row| is_taken(&row.item))));
    }
    let mut walk = Walk::new(target);
    while let Some(met) = walk.next() {
        if matches!(met?, Met::Item(item, _) if is_taken(&item)) {
            return Ok(true);
        }
    }
    Ok(false)
}
