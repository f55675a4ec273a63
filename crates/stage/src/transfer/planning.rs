//! Source against target, name by name, in the order of trees: what is to be done, and what is too much.

use hayase_tier::{Key, ObjectMeta};

use super::asking::Asking;
use super::in_the_way::{DIRECTORY_STAYS, FILE_STAYS, FILE_WAITS, NOT_TO_BE_REMOVED, Passed};
use super::later::Later;
use super::leftovers::Leftovers;
use super::next_index::{Entry, NextIndex};
use super::pool::Queue;
use super::reading::Reading;
use super::report::Report;
use super::retries::Retries;
use super::writing::Writing;
use crate::compare::{Rules, Step, decide, must_ask};
use crate::item::{Item, Kind};
use crate::limits::{PACK_ENTRIES_MAX, PARTS_BYTES_MIN};
use crate::pack::{PackError, PackSet, Row};
use crate::plan::{PackRules, Planner, Task, Work};
use crate::source::{Next, Origin, Source, shown};
use crate::spread::Dealer;
use crate::walk::{Met, Walk};
use crate::{Options, Sizes};

/// What the target has, in order: its names, or the rows of its index.
enum Target<'a> {
    Names { walk: Walk<'a>, met: Option<(Item, Option<ObjectMeta>)> },
    Rows(std::slice::Iter<'a, Row>),
}

/// What came next at the target, up to some name of the source.
enum There {
    Before(Found),
    Same(Found),
    Behind,
}

/// A name of the target, with its row or with what the listing told of an object.
struct Found {
    item: Item,
    row: Option<Row>,
    meta: Option<ObjectMeta>,
}

impl Target<'_> {
    /// The first name behind all that were answered, where it is known already.
    fn ahead(&self) -> Option<&Item> {
        match self {
            Self::Names { met, .. } => met.as_ref().map(|(item, _)| item),
            Self::Rows(_) => None,
        }
    }

    /// The next name that is not behind `item`; every name when there is no item.
    fn up_to(&mut self, item: Option<&Item>) -> Result<There, PackError> {
        if let Self::Names { walk, met } = self {
            while met.is_none() {
                match walk.next() {
                    None => return Ok(There::Behind),
                    Some(Ok(Met::Item(found, meta))) => *met = Some((found, meta)),
                    // What can not be copied is not removed either.
                    Some(Ok(Met::Other(..))) => {}
                    Some(Err(error)) => return Err(error.into()),
                }
            }
        }
        let next = match self {
            Self::Names { met, .. } => met.as_ref().map(|(item, _)| item),
            Self::Rows(rows) => rows.as_slice().first().map(|row| &row.item),
        };
        let Some(next) = next else { return Ok(There::Behind) };
        let order = item.map_or(std::cmp::Ordering::Less, |item| next.order(item));
        if order.is_gt() {
            return Ok(There::Behind);
        }
        let found = match self {
            Self::Names { met, .. } => {
                let (item, meta) = met.take().expect("it was looked at");
                Found { item, row: None, meta }
            }
            Self::Rows(rows) => {
                let row = rows.next().expect("it was looked at").clone();
                Found { item: row.item.clone(), row: Some(row), meta: None }
            }
        };
        Ok(if order.is_eq() { There::Same(found) } else { There::Before(found) })
    }
}

/// What planning needs of the other parts.
pub(super) struct Plan<'a> {
    pub(super) source: &'a Source,
    /// The target's set, when packs are made.
    pub(super) set: Option<&'a PackSet>,
    pub(super) options: &'a Options,
    pub(super) reading: &'a Reading<'a>,
    pub(super) writing: &'a Writing<'a>,
    pub(super) asking: &'a Asking<'a>,
    pub(super) next_index: &'a NextIndex,
    pub(super) report: &'a Report<'a>,
    pub(super) retries: &'a Retries<'a>,
}

impl Plan<'_> {
    /// Walks source and target; sends units of work, and answers what is left for the end.
    pub(super) fn run(&self, queue: &Queue) -> Result<Later, PackError> {
        let packs = self.options.packs.as_ref();
        let rows = self.set.map_or(&[][..], |set| &set.index.rows);
        let place = self.writing.place();
        let target = match packs {
            Some(_) => Target::Rows(rows.iter()),
            None => Target::Names { walk: Walk::new(place), met: None },
        };
        let rules = packs.map(|packs| PackRules {
            bytes: packs.bytes,
            entries: packs.entries.clamp(1, PACK_ENTRIES_MAX),
            is_complete: packs.is_complete || packs.master.is_some(),
        });
        let keeps_attributes = packs.is_some() || place.tier.capabilities().attributes;
        let mut planning = Planning {
            parts: self,
            queue,
            target,
            planner: Planner::new(rules),
            rules: Rules { overwrite: self.options.overwrite, keeps_attributes },
            leftovers: Leftovers::of(self.set, self.options, self.next_index)?,
            empty: None,
            passed: Passed::default(),
            is_blind: false,
            later: Later::default(),
        };
        planning.run()?;
        Ok(planning.later)
    }
}

/// The state of planning.
struct Planning<'a> {
    parts: &'a Plan<'a>,
    queue: &'a Queue,
    target: Target<'a>,
    planner: Planner,
    rules: Rules,
    /// Entries of packs that no index names: a killed run wrote them.
    leftovers: Leftovers,
    /// A directory that is empty, unless the next name lies in it; only for targets without directories.
    empty: Option<Item>,
    /// What may be in the way of a directory.
    passed: Passed,
    /// A part of the source could not be read: what is missing there is not known to be gone.
    is_blind: bool,
    later: Later,
}

impl Planning<'_> {
    fn run(&mut self) -> Result<(), PackError> {
        let source = self.parts.source;
        let mut dealer = self.parts.options.share.map(Dealer::new);
        for next in source.stream() {
            if self.parts.report.is_stopped() {
                break;
            }
            self.parts.report.found();
            match next {
                Next::Item(item, origin) => {
                    if self.is_taken(&item)
                        && dealer.as_mut().is_none_or(|d| d.is_ours(&item, &origin))
                    {
                        self.take(item, origin)?;
                    }
                }
                Next::Other(name, why) => self.leave_out(&name, why),
                Next::Unreadable(error) => {
                    self.is_blind = true;
                    self.parts.report.failed("a directory", error);
                }
            }
        }
        self.parts.report.seen(dealer.map_or(0, |dealer| dealer.seen()));
        self.flush_empty(None);
        self.is_blind |= self.parts.report.is_stopped();
        self.catch_up(None)?;
        if let Some(work) = self.planner.finish() {
            self.send(work);
        }
        if self.is_blind {
            self.later.removals.clear();
        }
        Ok(())
    }

    /// The person's choice, and that of the sizes that go this way.
    fn is_taken(&self, item: &Item) -> bool {
        let options = self.parts.options;
        let is_selected = options.selection.takes(&item.name, item.is_directory());
        if is_selected && Sizes::Large.take(item) {
            self.parts.report.large();
        }
        is_selected && options.sizes.take(item)
    }

    fn send(&self, work: Work) {
        self.queue.send(work);
    }

    fn leave_out(&self, name: &[u8], why: &'static str) {
        let is_selected =
            Key::new(name).map_or(true, |name| self.parts.options.selection.takes(&name, false));
        if is_selected {
            self.parts.report.failed(&shown(name), PackError::LeftOut { why });
        }
    }

    /// Goes on in the target up to `item`, and answers what stands under its name.
    fn catch_up(&mut self, item: Option<&Item>) -> Result<Option<Found>, PackError> {
        loop {
            match self.target.up_to(item)? {
                There::Behind => return Ok(None),
                There::Same(found) => return Ok(Some(found)),
                There::Before(found) => self.too_much(found.item, found.row),
            }
        }
    }

    /// The target has what the source does not.
    fn too_much(&mut self, found: Item, row: Option<Row>) {
        if row.is_none() && !found.is_directory() {
            self.passed.push(&found.name);
        }
        let options = self.parts.options;
        let goes = options.delete
            && !self.is_blind
            && options.selection.takes(&found.name, found.is_directory());
        if goes {
            // Its row stays until removals are known to be allowed; then `finish` drops it.
            self.later.removals.push(found);
        }
        if let Some(row) = row {
            let named = self.named(row);
            self.parts.next_index.former(named);
        }
    }

    /// An entry of the present index, by the name of its pack.
    fn named(&self, row: Row) -> Entry {
        let set = self.parts.set.expect("rows come from a set");
        let line = row.location.map(|at| set.index.packs[at.pack as usize]);
        if let Some(line) = line {
            self.parts.next_index.know(line);
        }
        (line.map(|line| line.id), row)
    }

    fn take(&mut self, item: Item, origin: Origin) -> Result<(), PackError> {
        let there = self.catch_up(Some(&item))?;
        self.flush_empty(Some(&item));
        if there.is_none() && !self.make_room(&item, &origin)? {
            return Ok(());
        }
        let is_packing = self.parts.options.packs.is_some();
        let (item, mut step) = match self.first_step(item, &origin, there.as_ref()) {
            Ok(decided) => decided,
            Err((name, error)) => {
                self.parts.report.failed(&name, error);
                return Ok(());
            }
        };
        if is_packing {
            // A member of a pack says mode and time too: it is written anew.
            let found = there.as_ref().map(|found| &found.item);
            let differs = found.is_some_and(|found| item.is_directory() && *found != item);
            if step == Step::Attributes || (step == Step::Keep && differs) {
                step = Step::Copy;
            }
            let mut left = self.leftovers.take(&item.name).into_iter();
            if step == Step::Copy
                && let Some(found) = left.find(|(_, row)| self.is_adopted(&item, &origin, row))
            {
                self.parts.next_index.keep(found);
                step = Step::Keep;
            } else if let Some(Found { row: Some(row), .. }) = there {
                // Also when it is written anew: what is written later counts, if it is written.
                let named = self.named(row);
                self.parts.next_index.keep(named);
            }
        } else if !self.can_hold(&item) {
            return Ok(());
        }
        self.act(item, origin, step);
        Ok(())
    }

    /// What of another kind stands where a new name is to be goes, where it may. `false` when it stays, which is
    /// told, or goes at the end, for which the name waits.
    fn make_room(&mut self, item: &Item, origin: &Origin) -> Result<bool, PackError> {
        let parts = self.parts;
        if parts.writing.place().tier.tree().is_none() || parts.options.packs.is_some() {
            return Ok(true);
        }
        let name = item.name.to_string();
        if let Some(file) = self.passed.in_the_way_of(item).cloned() {
            let why = match parts.options {
                Options { delete: false, .. } => FILE_STAYS,
                Options { delete_max: Some(_), .. } => FILE_WAITS,
                _ => NOT_TO_BE_REMOVED,
            };
            let goes = why != FILE_WAITS;
            let Some(old) = goes.then(|| self.later.take_removal(&file)).flatten() else {
                parts.report.failed(&name, PackError::InTheWay { why });
                return Ok(false);
            };
            self.passed.forget(&file);
            if parts.options.is_dry_run {
                parts.report.would_remove(&old);
            } else if let Err(error) = parts.writing.remove(&old) {
                parts.report.failed(&name, error);
                return Ok(false);
            }
            parts.report.removed(1);
            return Ok(true);
        }
        if !parts.writing.has_directory(item, self.target.ahead())? {
            return Ok(true);
        }
        let options = parts.options;
        if !options.delete || !options.selection.takes(&item.name, true) {
            let why = if options.delete { NOT_TO_BE_REMOVED } else { DIRECTORY_STAYS };
            parts.report.failed(&name, PackError::InTheWay { why });
            return Ok(false);
        }
        if options.is_dry_run {
            return Ok(true);
        }
        parts.report.wanted(Step::Copy, item);
        let task = Task { item: item.clone(), origin: origin.clone(), step: Step::Copy };
        self.later.waiting.push(task);
        Ok(false)
    }

    /// What is to be done, or that a stream asks; the item as far as it is known then. What only this
    /// thread can use is asked for at once: rows of an index, and what large files are cut by.
    fn first_step(
        &self,
        item: Item,
        origin: &Origin,
        there: Option<&Found>,
    ) -> Result<(Item, Step), (String, PackError)> {
        let parts = self.parts;
        let (hides, options) = (parts.asking.hides(origin), parts.options);
        let failed = |item: &Item, error| (item.name.to_string(), error);
        let found = there.map(|found| &found.item);
        let is_packing = options.packs.is_some();
        if is_packing && item.is_directory() && hides.source && found.is_some() {
            let told = parts.reading.told_directory(&item);
            return told.map(|item| (item, Step::Keep)).map_err(|error| failed(&item, error));
        }
        let Some(there) = there.filter(|_| must_ask(&item, found, hides, options.overwrite)) else {
            let step = parts.asking.step_for_target(decide(&item, found, self.rules));
            return Ok((item, step));
        };
        if options.trusts_sizes && there.item.bytes() == item.bytes() {
            return Ok((item, Step::Keep));
        }
        if !is_packing && item.bytes() < PARTS_BYTES_MIN {
            return Ok((item, Step::Ask(there.meta)));
        }
        let settled =
            parts.retries.again(|| parts.asking.settle(&item, origin, &there.item, there.meta));
        settled.map_err(|error| failed(&item, error))
    }

    /// An entry of a pack that no index names is this item.
    fn is_adopted(&self, item: &Item, origin: &Origin, row: &Row) -> bool {
        let parts = self.parts;
        if row.item == *item || !parts.asking.hides(origin).source {
            return row.item == *item;
        }
        let is_as_long = match (&item.kind, &row.item.kind) {
            (Kind::File { bytes }, Kind::Link { target }) => *bytes == target.len() as u64,
            (ours, theirs) => ours == theirs,
        };
        let Origin::Object(meta) = origin else { return false };
        let place = parts.source.place();
        let told = || match item.kind {
            Kind::Directory => place.told_directory(item),
            _ => place.told(item, *meta).map(|(item, _)| item),
        };
        // What can not be asked is copied, and fails there with its reason.
        is_as_long && (parts.options.trusts_sizes || told().is_ok_and(|told| told == row.item))
    }

    /// A store without a tree and without marks holds no links; of directories only those with something
    /// in them.
    fn can_hold(&mut self, item: &Item) -> bool {
        let tier = &self.parts.writing.place().tier;
        if tier.tree().is_some() || tier.marks().is_some() {
            return true;
        }
        match item.kind {
            Kind::File { .. } => true,
            Kind::Directory => {
                self.empty = Some(item.clone());
                false
            }
            Kind::Link { .. } => {
                let why = "the target keeps no links; with --pack it would";
                self.leave_out(item.name.as_bytes(), why);
                false
            }
        }
    }

    fn flush_empty(&mut self, next: Option<&Item>) {
        let Some(directory) = self.empty.take() else { return };
        let inside = [directory.name.as_bytes(), b"/"].concat();
        if next.is_none_or(|next| !next.name.as_bytes().starts_with(&inside)) {
            let why = "the target keeps no empty directories; with --pack it would";
            self.leave_out(directory.name.as_bytes(), why);
        }
    }

    fn act(&mut self, item: Item, origin: Origin, step: Step) {
        let parts = self.parts;
        let is_loose_directory = item.is_directory() && parts.options.packs.is_none();
        // What is made in a store now says all there is to say.
        let is_right = parts.writing.place().tier.tree().is_none() && step != Step::Keep;
        if is_loose_directory && !parts.options.is_dry_run && !is_right {
            let is_hidden = parts.asking.hides(&origin).source;
            let later = &mut self.later;
            let list = if is_hidden { &mut later.marked } else { &mut later.directories };
            list.push(item.clone());
        }
        match step {
            Step::Keep => {
                parts.report.kept();
                return;
            }
            Step::Spare => {
                parts.report.spared();
                return;
            }
            Step::Attributes | Step::Copy | Step::Replace => {
                parts.report.wanted(step, &item);
                if parts.options.is_dry_run {
                    parts.report.would(step, &item);
                    return;
                }
            }
            // Counted by the stream that asks.
            Step::Ask(_) => {}
        }
        for work in self.planner.push(Task { item, origin, step }) {
            self.send(work);
        }
    }
}
