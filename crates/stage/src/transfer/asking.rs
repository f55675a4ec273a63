//! Asking a store about objects where its listing is not enough: the mode and time that a file was given,
//! and whether it stands for a link.
//!
//! A listing of a store shows neither ([`hayase_tier::Capabilities::attributes`]). They come with the bytes of
//! what is copied, so a first copy asks nothing; one that finds a file of the same size at the target asks
//! once for it, on a stream.

use std::sync::atomic::{AtomicU64, Ordering};

use hayase_tier::{Attributes, Key, ObjectMeta, Reader, TierError};

use super::report::Report;
use super::retries::Retries;
use crate::compare::{Hides, Rules, Step, decide};
use crate::item::{Item, Kind};
use crate::limits::LINK_BYTES_MAX;
use crate::pack::PackError;
use crate::plan::Task;
use crate::source::Origin;
use crate::{Options, Place};

impl Place {
    /// A listing does not show what a file's writer said about it.
    pub(crate) fn hides(&self) -> bool {
        !self.tier.capabilities().attributes
    }

    /// What a listed file is when its object is asked; whether its writer told a time.
    pub(crate) fn told(
        &self,
        listed: &Item,
        meta: Option<ObjectMeta>,
    ) -> Result<(Item, bool), TierError> {
        let key = self.full(listed)?;
        let reader = match meta {
            Some(meta) => self.tier.open_listed(&key, meta)?,
            None => self.tier.open(&key)?,
        };
        let has_time = reader.attributes()?.mtime.is_some();
        let mut item = file_of(listed, &*reader)?;
        if reader.is_link()? && item.bytes() <= LINK_BYTES_MAX {
            let mut target = vec![0; usize::try_from(item.bytes()).unwrap_or(0)];
            let count = reader.read_at(0, &mut target)?;
            target.truncate(count);
            item = link_of(item, target);
        }
        Ok((item, has_time))
    }

    /// What the mark of a directory says; one without a mark is as it was listed.
    pub(crate) fn told_directory(&self, listed: &Item) -> Result<Item, TierError> {
        let Some(marks) = self.tier.marks() else { return Ok(listed.clone()) };
        match marks.directory(&self.full(listed)?) {
            Ok(attributes) => Ok(with_attributes(listed.clone(), attributes)),
            Err(TierError::Missing { .. }) => Ok(listed.clone()),
            Err(error) => Err(error),
        }
    }

    fn full(&self, item: &Item) -> Result<Key, TierError> {
        let missing = || TierError::Missing {
            action: hayase_tier::Action::Open,
            path: item.name.to_string(),
        };
        self.key(item.name.as_bytes()).map_err(|_| missing())
    }
}

/// A file as its open version tells; costs no request when something was read of it.
pub(crate) fn file_of(listed: &Item, reader: &dyn Reader) -> Result<Item, TierError> {
    let meta = reader.meta();
    let shown = Item {
        name: listed.name.clone(),
        kind: Kind::File { bytes: meta.size.get() },
        mode: meta.mode & 0o777,
        mtime: meta.mtime.into(),
    };
    Ok(with_attributes(shown, reader.attributes()?))
}

/// The link for which an object of these bytes stands.
pub(crate) fn link_of(file: Item, bytes: Vec<u8>) -> Item {
    let kind = Kind::Link { target: bytes.into() };
    Item { kind, mode: 0o777, mtime: crate::Mtime::EPOCH, ..file }
}

fn with_attributes(item: Item, attributes: Attributes) -> Item {
    Item {
        mode: attributes.mode.unwrap_or(item.mode) & 0o777,
        mtime: attributes.mtime.map_or(item.mtime, Into::into),
        ..item
    }
}

/// Asks both sides of a name, and decides.
pub(super) struct Asking<'a> {
    source: &'a Place,
    target: &'a Place,
    options: &'a Options,
    report: &'a Report<'a>,
    retries: &'a Retries<'a>,
    /// Files about which objects were asked.
    asked: AtomicU64,
}

impl<'a> Asking<'a> {
    /// Of `source` and `target`.
    pub(super) fn new(
        (source, target): (&'a Place, &'a Place),
        options: &'a Options,
        report: &'a Report<'a>,
        retries: &'a Retries<'a>,
    ) -> Self {
        Self { source, target, options, report, retries, asked: AtomicU64::new(0) }
    }

    /// Files about which objects were asked.
    pub(super) fn count(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// What listings do not show of the two sides of one name.
    pub(super) fn hides(&self, origin: &Origin) -> Hides {
        Hides {
            source: matches!(origin, Origin::Object(_)) && self.source.hides(),
            target: self.options.packs.is_none() && self.target.hides(),
        }
    }

    /// Source and target, asked; answers the source as it is and what is to be done.
    pub(super) fn settle(
        &self,
        item: &Item,
        origin: &Origin,
        there: &Item,
        there_meta: Option<ObjectMeta>,
    ) -> Result<(Item, Step), PackError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let hides = self.hides(origin);
        let ours = match origin {
            Origin::Object(meta) if hides.source => self.source.told(item, *meta)?.0,
            _ => item.clone(),
        };
        let (theirs, keeps_attributes) = match there.kind {
            Kind::File { .. } if hides.target => match self.target.told(there, there_meta) {
                // Gone, or another one by now: whatever it was, it is written over.
                Err(TierError::Missing { .. } | TierError::Changed { .. }) => {
                    return Ok((ours, Step::Copy));
                }
                told => told?,
            },
            _ => (there.clone(), true),
        };
        let rules = Rules { overwrite: self.options.overwrite, keeps_attributes };
        let step = decide(&ours, Some(&theirs), rules);
        Ok((ours, self.step_for_target(step)))
    }

    /// A store replaces whatever is there, and changes attributes with the bytes only.
    pub(super) fn step_for_target(&self, step: Step) -> Step {
        let is_store = self.options.packs.is_none() && self.target.tier.tree().is_none();
        match step {
            Step::Replace if is_store => Step::Copy,
            Step::Attributes if is_store && self.target.hides() => Step::Copy,
            other => other,
        }
    }

    /// A stream's part of a task that could not be decided: what is to be done, if anything.
    pub(super) fn asked(
        &self,
        task: Task,
        there: Option<ObjectMeta>,
    ) -> Result<Option<Task>, PackError> {
        let (item, step) = match self.listed_there(&task.item, there)? {
            Some(target) => {
                self.retries.again(|| self.settle(&task.item, &task.origin, &target, there))?
            }
            None => (task.item.clone(), Step::Copy),
        };
        match step {
            Step::Keep => self.report.kept(),
            Step::Spare => self.report.spared(),
            _ => {
                self.report.wanted(step, &item);
                if !self.options.is_dry_run {
                    return Ok(Some(Task { item, step, ..task }));
                }
                self.report.would(step, &item);
            }
        }
        Ok(None)
    }

    /// What planning saw at the target: an object, or a link of a tree.
    fn listed_there(
        &self,
        item: &Item,
        there: Option<ObjectMeta>,
    ) -> Result<Option<Item>, PackError> {
        if let Some(meta) = there {
            return Ok(Some(Item {
                name: item.name.clone(),
                kind: Kind::File { bytes: meta.size.get() },
                mode: meta.mode & 0o777,
                mtime: meta.mtime.into(),
            }));
        }
        let key = self.target.key(item.name.as_bytes())?;
        let link = self.target.tier.tree().map(|tree| tree.link(&key));
        match link {
            Some(Ok(target)) => Ok(Some(link_of(item.clone(), target))),
            // Gone, or something else by now: whatever it was, it is written over.
            None | Some(Err(TierError::Missing { .. } | TierError::NotObject { .. })) => Ok(None),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// The target holds the file already, as far as its attributes tell.
    pub(super) fn is_there(&self, item: &Item) -> bool {
        let Ok(key) = self.target.key(item.name.as_bytes()) else { return false };
        let Ok(meta) = self.target.tier.stat(&key) else { return false };
        let kind = Kind::File { bytes: meta.size.get() };
        let listed = Item { kind, mode: item.mode, mtime: meta.mtime.into(), ..item.clone() };
        let (there, keeps_attributes) = match self.target.hides() {
            true => match self.target.told(&listed, Some(meta)) {
                Ok(told) => told,
                Err(_) => return false,
            },
            false => (listed, true),
        };
        let rules = Rules { overwrite: self.options.overwrite, keeps_attributes };
        matches!(decide(item, Some(&there), rules), Step::Keep | Step::Attributes)
    }
}
