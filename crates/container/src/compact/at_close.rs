//! What the last process to close a container merges: new indexes always, merged ones when there are many alike.
//!
//! So an index is written again O(log n) times however often a file is opened, and there are O(log n) merged
//! ones (tiered merging, as in log-structured merge trees: O'Neil et al. 1996). Larger ones are not read.

use crate::catalogue::Catalogue;
use crate::limits::{INDEXES_UNMERGED_MAX, MERGED_ALIKE, MERGED_ALIKE_MAX};
use crate::names::{self, Kind};
use crate::{Compacted, Container, ContainerError, Finished, Joining};

impl Container {
    /// Merges the indexes of writers that closed when there are more than [`INDEXES_UNMERGED_MAX`] that no
    /// compaction has merged, and joins their small parts: for whoever closes a container last. `None` when there
    /// are not so many; one listing then.
    pub fn compact_when_many(&self) -> Result<Option<Compacted>, ContainerError> {
        let names = self.directory().names()?;
        let (mut merged, mut single) = (Vec::new(), Vec::new());
        for name in names {
            match names::kind(&name) {
                Kind::Index(_) => single.push(name),
                Kind::Merged(_) => merged.push(name),
                _ => {}
            }
        }
        if single.len() <= INDEXES_UNMERGED_MAX {
            return Ok(None);
        }
        let size = |name: &String| {
            let len = self.directory().len(name).map(Option::unwrap_or_default);
            len.map_err(|e| ContainerError::io("look at", &self.directory().shown(name), e))
        };
        let bytes = single.iter().map(size).sum::<Result<u64, _>>()?;
        let sized = merged.into_iter().map(|name| Ok((size(&name)?, name)));
        let mut sized = sized.collect::<Result<Vec<_>, ContainerError>>()?;
        sized.sort_unstable();
        let sizes: Vec<u64> = sized.iter().map(|(size, _)| *size).collect();
        let alike = sized.into_iter().take(absorbed(bytes, &sizes)).map(|(_, name)| name);
        single.extend(alike);
        let mut catalogue = Catalogue::default();
        match catalogue.load_some(self, single)? {
            true => {
                let snapshot = catalogue.snapshot_of_some(self.path());
                let (finished, joining) = (Finished::Closed, Joining::AT_CLOSE);
                self.compact_known(&catalogue, &snapshot, finished, joining).map(Some)
            }
            false => Ok(None), // somebody else merges them
        }
    }
}

/// How many of the merged indexes, by ascending size, are merged with new ones of so many bytes.
fn absorbed(new: u64, sizes: &[u64]) -> usize {
    let (mut count, mut bytes) = (0, new);
    loop {
        let rest = &sizes[count..];
        let alike = rest.partition_point(|size| *size <= bytes.saturating_mul(MERGED_ALIKE));
        if alike < MERGED_ALIKE_MAX {
            return count;
        }
        bytes += rest[..alike].iter().sum::<u64>();
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
        assert_eq!(sizes.iter().sum::<u64>(), 2000 * 100);
        assert!(written <= 5 * 2000 * 100, "{written} bytes written");
    }
}
