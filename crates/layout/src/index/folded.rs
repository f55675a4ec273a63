//! Folding a log: the same bytes at the same places, told by as few records as joining neighbours finds.
//!
//! Unlike the recorder, which folds one level while it writes, this takes any depth: it has all records
//! at hand, and time. Only neighbours of one epoch that follow each other in the part are joined, so the
//! order among records that overlap stays.

use std::{collections::BTreeSet, sync::Arc};

use crate::{Record, Selection, StreamExtent, ViewId, WriterLog};

use super::current_records;

impl WriterLog {
    /// The log with records that were replaced and views that no record names left out, and neighbours
    /// joined. O(n log n) in the records, whatever they select; an index of it finds the same.
    #[must_use]
    pub fn folded(&self) -> Self {
        let records = folded(&self.records);
        let named: BTreeSet<ViewId> = records.iter().filter_map(view_of).collect();
        let views = self.views.iter().filter(|(id, _)| named.contains(id));
        let views = views.map(|(id, view)| (*id, Arc::clone(view))).collect();
        Self { writer: self.writer, part: self.part, views, records }
    }
}

/// Records of one writer in as few as say the same; those that were replaced are left out. O(depth) each.
pub fn folded(records: &[Record]) -> Vec<Record> {
    let mut folded: Vec<Record> = Vec::new();
    for record in current_records(records) {
        let mut last = record.clone();
        while let Some(joined) = folded.last().and_then(|before| join(before, &last)) {
            folded.pop();
            last = joined;
        }
        folded.push(last);
    }
    folded
}

fn view_of(record: &Record) -> Option<ViewId> {
    match record.selection {
        Selection::View { view, .. } => Some(view),
        Selection::Run(_) => None,
    }
}

/// The one record that says both, where there is one.
fn join(first: &Record, next: &Record) -> Option<Record> {
    if first.epoch != next.epoch || first.end() != Some(next.place) {
        return None;
    }
    let selection = match (&first.selection, &next.selection) {
        (Selection::Run(run), Selection::Run(more)) => Selection::Run(run.join(more)?),
        (Selection::View { view, window }, Selection::View { view: other, window: more })
            if view == other && window.end() == more.start() =>
        {
            let window = StreamExtent::between(window.start(), more.end()).ok()?;
            Selection::View { view: *view, window }
        }
        _ => return None,
    };
    Some(Record { selection, place: first.place, epoch: first.epoch })
}
