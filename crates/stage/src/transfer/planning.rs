//! Source against target, name by name, in the order of trees: what is to be done, and what is too much.

use std::sync::mpsc::SyncSender;

use hayase_tier::{Key, ObjectMeta};

use super::in_the_way::{DIRECTORY_STAYS, FILE_STAYS, FILE_WAITS, NOT_TO_BE_REMOVED, Passed};
use super::leftovers::Leftovers;
use super::{Options, Shared};
use crate::compare::{Rules, Step, decide, must_ask};
use crate::item::{Item, Kind};
use crate::limits::{PACK_ENTRIES_MAX, PARTS_BYTES_MIN};
use crate::pack::{PackError, PackId, Row};
use crate::plan::{PackRules, Planner, Task, Work};
use crate::source::{Next, Origin, shown};
use crate::spread::Dealer;
use crate::walk::{Met, Walk};
use crate::{Progress, Sizes};

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

/// The state of planning.
struct Planning<'a, 'b> {
    shared: &'a Shared<'b>,
    sender: &'a SyncSender<Work>,
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
}

impl Shared<'_> {
    /// Walks source and target; sends units of work.
    pub(super) fn plan(&self, sender: &SyncSender<Work>) -> Result<(), PackError> {
        let packs = self.options.packs.as_ref();
        let rows = self.set.map_or(&[][..], |set| &set.index.rows);
        let target = match packs {
            Some(_) => Target::Rows(rows.iter()),
            None => Target::Names { walk: Walk::new(self.target), met: None },
        };
        let rules = packs.map(|packs| PackRules {
            bytes: packs.bytes,
            entries: packs.entries.clamp(1, PACK_ENTRIES_MAX),
            is_complete: packs.is_complete || packs.master.is_some(),
        });
        let keeps_attributes = packs.is_some() || self.target.tier.capabilities().attributes;
        let mut planning = Planning {
            shared: self,
            sender,
            target,
            planner: Planner::new(rules),
            rules: Rules { overwrite: self.options.overwrite, keeps_attributes },
            leftovers: Leftovers::of(self)?,
            empty: None,
            passed: Passed::default(),
            is_blind: false,
        };
        planning.run()
    }
}

impl Planning<'_, '_> {
    fn run(&mut self) -> Result<(), PackError> {
        let source = self.shared.source;
        let mut dealer = self.shared.options.share.map(Dealer::new);
        for next in source.stream() {
            if self.shared.is_stopped() {
                break;
            }
            Progress::add(&self.shared.progress.found, 1);
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
                    self.shared.failed("a directory", error);
                }
            }
        }
        self.shared.outcome().summary.seen = dealer.map_or(0, |dealer| dealer.seen());
        self.flush_empty(None);
        self.is_blind |= self.shared.is_stopped();
        self.catch_up(None)?;
        if let Some(work) = self.planner.finish() {
            self.send(work);
        }
        if self.is_blind {
            self.shared.outcome().removals.clear();
        }
        Ok(())
    }

    /// The person's choice, and that of the sizes that go this way.
    fn is_taken(&self, item: &Item) -> bool {
        let options = self.shared.options;
        let is_selected = options.selection.takes(&item.name, item.is_directory());
        if is_selected && Sizes::Large.take(item) {
            self.shared.outcome().summary.large += 1;
        }
        is_selected && options.sizes.take(item)
    }

    fn send(&self, work: Work) {
        self.shared.send(self.sender, work);
    }

    fn leave_out(&self, name: &[u8], why: &'static str) {
        let is_selected =
            Key::new(name).map_or(true, |name| self.shared.options.selection.takes(&name, false));
        if is_selected {
            self.shared.failed(&shown(name), PackError::LeftOut { why });
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
        let options = self.shared.options;
        let goes = options.delete
            && !self.is_blind
            && options.selection.takes(&found.name, found.is_directory());
        if goes {
            // Its row stays until removals are known to be allowed; then `finish` drops it.
            self.shared.outcome().removals.push(found);
        }
        if let Some(row) = row {
            let named = self.named(row);
            self.shared.outcome().former.push(named);
        }
    }

    /// An entry of the present index, by the name of its pack.
    fn named(&self, row: Row) -> (Option<PackId>, Row) {
        let set = self.shared.set.expect("rows come from a set");
        let line = row.location.map(|at| set.index.packs[at.pack as usize]);
        self.shared.outcome().lines.extend(line.map(|line| (line.id, line)));
        (line.map(|line| line.id), row)
    }

    fn take(&mut self, item: Item, origin: Origin) -> Result<(), PackError> {
        let there = self.catch_up(Some(&item))?;
        self.flush_empty(Some(&item));
        if there.is_none() && !self.make_room(&item, &origin)? {
            return Ok(());
        }
        let is_packing = self.shared.options.packs.is_some();
        let (item, mut step) = match self.first_step(item, &origin, there.as_ref()) {
            Ok(decided) => decided,
            Err((name, error)) => {
                self.shared.failed(&name, error);
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
                self.shared.outcome().rows.push(found);
                step = Step::Keep;
            } else if let Some(Found { row: Some(row), .. }) = there {
                // Also when it is written anew: what is written later counts, if it is written.
                let named = self.named(row);
                self.shared.outcome().rows.push(named);
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
        let shared = self.shared;
        if shared.target.tier.tree().is_none() || shared.options.packs.is_some() {
            return Ok(true);
        }
        let name = item.name.to_string();
        if let Some(file) = self.passed.in_the_way_of(item).cloned() {
            let why = match shared.options {
                Options { delete: false, .. } => FILE_STAYS,
                Options { delete_max: Some(_), .. } => FILE_WAITS,
                _ => NOT_TO_BE_REMOVED,
            };
            let goes = why != FILE_WAITS;
            let Some(old) = goes.then(|| shared.take_removal(&file)).flatten() else {
                shared.failed(&name, PackError::InTheWay { why });
                return Ok(false);
            };
            self.passed.forget(&file);
            if shared.options.is_dry_run {
                shared.observer.would_remove(&old);
            } else if let Err(error) = shared.remove_one(&old) {
                shared.failed(&name, error);
                return Ok(false);
            }
            shared.outcome().summary.removed += 1;
            return Ok(true);
        }
        if !shared.has_directory(item, self.target.ahead())? {
            return Ok(true);
        }
        let options = shared.options;
        if !options.delete || !options.selection.takes(&item.name, true) {
            let why = if options.delete { NOT_TO_BE_REMOVED } else { DIRECTORY_STAYS };
            shared.failed(&name, PackError::InTheWay { why });
            return Ok(false);
        }
        if options.is_dry_run {
            return Ok(true);
        }
        Shared::count(&shared.progress.items_wanted, 1);
        Shared::count(&shared.progress.bytes_wanted, item.bytes());
        let task = Task { item: item.clone(), origin: origin.clone(), step: Step::Copy };
        shared.outcome().waiting.push(task);
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
        let shared = self.shared;
        let (hides, options) = (shared.hides(origin), shared.options);
        let failed = |item: &Item, error| (item.name.to_string(), error);
        let found = there.map(|found| &found.item);
        let is_packing = options.packs.is_some();
        if is_packing && item.is_directory() && hides.source && found.is_some() {
            let told = shared.again(|| Ok(shared.source.place().told_directory(&item)?));
            return told.map(|item| (item, Step::Keep)).map_err(|error| failed(&item, error));
        }
        let Some(there) = there.filter(|_| must_ask(&item, found, hides, options.overwrite)) else {
            let step = shared.step_for_target(decide(&item, found, self.rules));
            return Ok((item, step));
        };
        if options.trusts_sizes && there.item.bytes() == item.bytes() {
            return Ok((item, Step::Keep));
        }
        if !is_packing && item.bytes() < PARTS_BYTES_MIN {
            return Ok((item, Step::Ask(there.meta)));
        }
        let settled = shared.again(|| shared.settle(&item, origin, &there.item, there.meta));
        settled.map_err(|error| failed(&item, error))
    }

    /// An entry of a pack that no index names is this item.
    fn is_adopted(&self, item: &Item, origin: &Origin, row: &Row) -> bool {
        let shared = self.shared;
        if row.item == *item || !shared.hides(origin).source {
            return row.item == *item;
        }
        let is_as_long = match (&item.kind, &row.item.kind) {
            (Kind::File { bytes }, Kind::Link { target }) => *bytes == target.len() as u64,
            (ours, theirs) => ours == theirs,
        };
        let Origin::Object(meta) = origin else { return false };
        let place = shared.source.place();
        let told = || match item.kind {
            Kind::Directory => place.told_directory(item),
            _ => place.told(item, *meta).map(|(item, _)| item),
        };
        // What can not be asked is copied, and fails there with its reason.
        is_as_long && (shared.options.trusts_sizes || told().is_ok_and(|told| told == row.item))
    }

    /// A store without a tree and without marks holds no links; of directories only those with something
    /// in them.
    fn can_hold(&mut self, item: &Item) -> bool {
        let tier = &self.shared.target.tier;
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
        let shared = self.shared;
        let is_loose_directory = item.is_directory() && shared.options.packs.is_none();
        // What is made in a store now says all there is to say.
        let is_right = shared.target.tier.tree().is_none() && step != Step::Keep;
        if is_loose_directory && !shared.options.is_dry_run && !is_right {
            let mut outcome = shared.outcome();
            let is_hidden = shared.hides(&origin).source;
            let list = if is_hidden { &mut outcome.marked } else { &mut outcome.directories };
            list.push(item.clone());
        }
        match step {
            Step::Keep => {
                shared.outcome().summary.kept += 1;
                Progress::add(&shared.progress.items_kept, 1);
                return;
            }
            Step::Spare => {
                shared.outcome().summary.spared += 1;
                return;
            }
            Step::Attributes | Step::Copy | Step::Replace => {
                Shared::count(&shared.progress.items_wanted, 1);
                if step != Step::Attributes {
                    Shared::count(&shared.progress.bytes_wanted, item.bytes());
                }
                if shared.options.is_dry_run {
                    shared.observer.would(step, &item);
                    shared.outcome().summary.copied += 1;
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
