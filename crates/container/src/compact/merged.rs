//! A merged index on the disk: it is written under a name that does not count, and gets its own when all of it is
//! durable. So one that does not end as it should is damaged, and never begun.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use hayase_layout::ByteCount;

use crate::directory::random;
use crate::format::block::split_entries;
use crate::format::{Entry, draw_block, draw_header};
use crate::limits::{INDEX_BYTES_MAX, NAME_TRIES_MAX};
use crate::names::{self, Kind};
use crate::{Container, ContainerError, Snapshot};

impl Container {
    /// Writes it, durably; under which name.
    pub(super) fn begin_merged(&self, merged: &Snapshot) -> Result<String, ContainerError> {
        self.begin_bounded(merged, INDEX_BYTES_MAX)
    }

    pub(super) fn begin_bounded(
        &self,
        merged: &Snapshot,
        bytes_max: ByteCount,
    ) -> Result<String, ContainerError> {
        let name = names::begun(random());
        let path = self.directory().shown(&name);
        let mut file = self
            .directory()
            .create_file(&name)
            .map_err(|source| ContainerError::io("create the merged index", &path, source))?;
        let filled = self.fill_merged(merged, &mut file, &path, bytes_max);
        if filled.is_err() {
            self.directory().remove(&name)?;
        }
        filled.map(|()| name)
    }

    fn fill_merged(
        &self,
        merged: &Snapshot,
        file: &mut File,
        path: &Path,
        bytes_max: ByteCount,
    ) -> Result<(), ContainerError> {
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

    /// Gives the index `begun` its name, durably: it counts.
    pub(super) fn publish_merged(&self, begun: &str) -> Result<(), ContainerError> {
        // What it names is durable before.
        self.directory().sync()?;
        let numbers =
            self.directory().names()?.into_iter().filter_map(|name| match names::kind(&name) {
                Kind::Merged(number) => Some(number),
                _ => None,
            });
        let mut number = numbers.max().unwrap_or(0);
        for _ in 0..NAME_TRIES_MAX {
            number = number.wrapping_add(1);
            let name = names::merged(number);
            match self.directory().rename_file(begun, &name) {
                Ok(()) => return self.directory().sync(),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // It may have happened all the same: what it names stays.
                Err(source) => {
                    let path = self.directory().shown(&name);
                    return Err(ContainerError::io("name the merged index", &path, source));
                }
            }
        }
        let what = format!("{NAME_TRIES_MAX} names for a merged index are taken");
        Err(ContainerError::Limit { path: self.path().to_owned(), what })
    }
}

/// What an open for writing needs to know of this index.
fn summary(merged: &Snapshot, path: &Path) -> Result<Entry, ContainerError> {
    let is_plain = merged.cuts().is_empty() && merged.size_with(ByteCount::ZERO).is_zero();
    let size = if is_plain { Some(merged.size(path)?) } else { None };
    Ok(Entry::Summary { writers: merged.logs().len() as u64, latest: merged.latest(), size })
}
