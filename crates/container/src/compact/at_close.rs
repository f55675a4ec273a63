//! What the last process to close a container merges: new indexes always, merged ones when there are many alike.
//!
//! So an index is written again O(log n) times however often a file is opened, and there are O(log n) merged
//! ones (tiered merging, as in log-structured merge trees: O'Neil et al. 1996). Larger ones are not read.

use super::chosen_indexes;
use crate::catalogue::Catalogue;
use crate::limits::{INDEX_BYTES_MAX, INDEXES_UNMERGED_MAX, MERGED_ALIKE, MERGED_ALIKE_MAX};
use crate::names::{self, Kind};
use crate::{Compacted, Container, ContainerError, Finished, Joining};

impl Container {
    /// Merges the indexes of writers that closed when there are more than [`INDEXES_UNMERGED_MAX`] that no
    /// compaction has merged: for the last process to close a container. `None` when there are fewer; one listing
    /// then. Where the file was opened very often, small parts are joined too.
    pub fn compact_when_many(&self) -> Result<Option<Compacted>, ContainerError> {
        let names = self.directory().names()?;
        let of_kind = |is_wanted: fn(Kind) -> bool| {
            names.iter().filter(move |name| is_wanted(names::kind(name))).cloned()
        };
        let single = || of_kind(|kind| matches!(kind, Kind::Index(_)));
        if single().count() <= INDEXES_UNMERGED_MAX {
            return Ok(None);
        }
        let mut catalogue = Catalogue::default();
        if !catalogue.load_some(self, single())? {
            return Ok(None); // somebody else merges them
        }
        // Those of writers that were killed stay: they are no reason to merge the others each time.
        let closed = chosen_indexes(&catalogue, Finished::Closed);
        if closed.len() <= INDEXES_UNMERGED_MAX {
            return Ok(None);
        }
        let alike = self.alike(&closed, of_kind(|kind| matches!(kind, Kind::Merged(_))))?;
        // A file that was written once has its parts where they were written.
        let joining = if alike.is_empty() { Joining::NONE } else { Joining::AT_CLOSE };
        if !catalogue.load_some(self, alike)? {
            return Ok(None);
        }
        let snapshot = catalogue.snapshot(self)?;
        self.compact_known(&catalogue, &snapshot, Finished::Closed, joining).map(Some)
    }

    /// Which of the indexes `merged` are to be merged with those that are new.
    fn alike(
        &self,
        new: &[String],
        merged: impl Iterator<Item = String>,
    ) -> Result<Vec<String>, ContainerError> {
        let size = |name: &String| {
            let len = self.directory().len(name).map(Option::unwrap_or_default);
            len.map_err(|e| ContainerError::io("look at", &self.directory().shown(name), e))
        };
        let bytes = new.iter().map(size).sum::<Result<u64, _>>()?;
        let mut sized = merged
            .map(|name| Ok((size(&name)?, name)))
            .collect::<Result<Vec<_>, ContainerError>>()?;
        sized.sort_unstable();
        let sizes: Vec<u64> = sized.iter().map(|(size, _)| *size).collect();
        Ok(sized.into_iter().take(absorbed(bytes, &sizes)).map(|(_, name)| name).collect())
    }
}

/// How many of the merged indexes, by ascending size, are merged with new ones of `new` bytes.
fn absorbed(new: u64, sizes: &[u64]) -> usize {
    let (mut count, mut bytes) = (0, new);
    loop {
        let rest = &sizes[count..];
        let alike = rest.partition_point(|size| *size <= bytes.saturating_mul(MERGED_ALIKE));
        let all = bytes.saturating_add(rest[..alike].iter().sum());
        if alike < MERGED_ALIKE_MAX || all > INDEX_BYTES_MAX.get() {
            return count;
        }
        bytes = all;
        count += alike;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_that_are_merged_often_are_few_and_rarely_written() {
        let (mut sizes, mut written): (Vec<u64>, u64) = (Vec::new(), 0);
        for _ in 0..2000 {
            let count = absorbed(100, &sizes);
            let size = 100 + sizes.drain(..count).sum::<u64>();
            written += size;
            sizes.push(size);
            sizes.sort_unstable();
            assert!(sizes.len() <= 32, "{sizes:?}");
        }
        // What would make an index that nobody reads stays as it is.
        assert_eq!(absorbed(100, &[100; 7]), 0);
        assert_eq!(absorbed(100, &[100; 8]), 8);
        assert_eq!(absorbed(INDEX_BYTES_MAX.get() / 8, &[INDEX_BYTES_MAX.get() / 8; 8]), 0);
        assert_eq!(sizes.iter().sum::<u64>(), 2000 * 100);
        assert!(written <= 5 * 2000 * 100, "{written} bytes written");
    }
}
