//! A merged index on the disk: it is written under a name that does not count, and gets its own when all of it is
//! durable. So one that does not end as it should is damaged, and never begun.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use hayase_layout::ByteCount;

use crate::format::block::split_entries;
use crate::format::{Entry, draw_block, draw_header};
use crate::names;
use crate::{Container, ContainerError, Snapshot};

/// A merged index that does not count yet.
#[derive(Debug)]
pub(super) struct Begun {
    name: String,
    file: File,
}

impl Container {
    /// Called before the part is made that the index will name: once another compaction has removed this name, no index
    /// will ever name that part.
    pub(super) fn begin_merged(&self) -> Result<Begun, ContainerError> {
        let name = names::begun(names::drawn());
        match self.directory().create_file(&name) {
            Ok(file) => Ok(Begun { name, file }),
            Err(source) => {
                let path = self.directory().shown(&name);
                Err(ContainerError::io("create the merged index", &path, source))
            }
        }
    }

    /// It never gets a name that counts.
    pub(super) fn forget_begun(&self, begun: &Begun) -> Result<(), ContainerError> {
        self.directory().remove(&begun.name)
    }

    /// All of it, durably.
    pub(super) fn fill_merged(
        &self,
        begun: &mut Begun,
        merged: &Snapshot,
        bytes_max: ByteCount,
    ) -> Result<(), ContainerError> {
        let (file, path) = (&mut begun.file, &self.directory().shown(&begun.name));
        let failed = |source| ContainerError::io("write the merged index", path, source);
        let limit = |what: String| ContainerError::Limit { path: path.to_owned(), what };
        let mut lists = split_entries(merged.entries()).map_err(|_| {
            limit("a view has more pieces than a block of an index may hold".to_owned())
        })?;
        lists.push(vec![summary(merged, path)?, Entry::Complete]);
        let header = draw_header(self.id());
        file.write_all(&header).map_err(failed)?;
        let mut bytes = header.len() as u64;
        for (number, list) in (0..).zip(&lists) {
            let block = draw_block(number, list);
            bytes += block.len() as u64;
            if bytes > bytes_max.get() {
                return Err(limit(format!("merged, the indexes have more than {bytes_max}")));
            }
            file.write_all(&block).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    }

    /// Gives it a name that counts. Behind an error it may have one all the same, as where a server of files did not
    /// answer; not where there was no room for it.
    pub(super) fn name_begun(&self, begun: &Begun) -> Result<(), ContainerError> {
        let name = names::merged(names::drawn());
        self.directory().rename_file(&begun.name, &name).map_err(|source| {
            ContainerError::io("name the merged index", &self.directory().shown(&name), source)
        })
    }
}

/// What an open for writing needs to know of this index.
fn summary(merged: &Snapshot, path: &Path) -> Result<Entry, ContainerError> {
    let is_plain = merged.cuts().is_empty() && merged.size_with(ByteCount::ZERO).is_zero();
    let size = if is_plain { Some(merged.size(path)?) } else { None };
    Ok(Entry::Summary { writers: merged.logs().len() as u64, latest: merged.latest(), size })
}
