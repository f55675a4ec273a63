//! An index that follows the log of one of its writers, while that process writes and reads in turns.
//!
//! Layers of falling size (the logarithmic method of Bentley and Saxe, 1980): what is new is a layer of its
//! own, and takes in those before it that are not twice as large. So following costs O(log n) for each record
//! over time, not O(n) for each read behind a write; a lookup asks O(log n) layers.

use std::{ops::Range, sync::Arc};

use super::{
    Index, IndexError, Logged,
    judged::Judged,
    layer::{Layer, Source},
};
use crate::{ByteCount, Record, View, ViewId};

/// See the module.
#[derive(Clone, Debug)]
pub struct GrowingIndex {
    index: Arc<Index>,
    log: Logged,
    /// Of each layer, from the first on, the records of the writer that it has.
    records: Vec<Range<usize>>,
}

impl GrowingIndex {
    /// Follows the writer of the last log of which `index` was made, which has the first `count` records of it.
    /// `None` when it was made of none. The part of that log must be of no other.
    pub fn new(index: Index, count: usize) -> Option<Self> {
        let (log, first) = (*index.logs.last()?, 0..count);
        Some(Self { index: Arc::new(index), log, records: vec![first] })
    }

    /// As it is now. Later changes are not in it.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The writer has `records` now, as its recorder keeps them, and those before the first `unchanged` are as
    /// they were. `view` knows its views. Fails as [`Index::new`] does, and has changed nothing then.
    pub fn follow(
        &mut self,
        records: &[Record],
        unchanged: usize,
        view: impl Fn(ViewId) -> Option<Arc<View>>,
    ) -> Result<(), IndexError> {
        if unchanged >= records.len() {
            return Ok(());
        }
        let mut kept = self.records.len();
        let mut first = unchanged;
        // The first layer has other writers too: it stays.
        while let Some(last) = self.records[..kept].last().filter(|_| kept > 1)
            && (last.start >= first || last.len() < 2 * (records.len() - first))
        {
            first = first.min(last.start);
            kept -= 1;
        }
        let old = &self.index;
        let source = Source { logged: self.log, records: &records[first..], view };
        let layer = Layer::new(std::iter::once(source), &old.bounds)?;
        let mut layers = old.layers[..kept].to_vec();
        layers.push(Arc::new(layer));
        let end = layers.iter().map(|layer| layer.end()).max().unwrap_or(0);
        self.index = Arc::new(Index {
            parts: Arc::clone(&old.parts),
            logs: Arc::clone(&old.logs),
            bounds: Arc::clone(&old.bounds),
            layers,
            judged: Judged::default(),
            size: ByteCount(end.max(old.bounds.size)),
        });
        self.records.truncate(kept);
        self.records.push(first..records.len());
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn layers(&self) -> usize {
        self.records.len()
    }
}
