//! Flattening: the bytes of all parts in one part, in the order of the file.
//!
//! Here: what `hayase container compact --flatten` does, for files that are read often in another
//! decomposition, or that had very many writers.
//!
//! A writer of its own writes all bytes, and publishes them together with a cut to nothing before them: in
//! one block, so the file is at every moment the old one or the new one, which are equal. Afterwards
//! compaction finds that nothing is left of the others.

use hayase_layout::{ByteCount, Epoch, Extent, Found, GlobalOffset, NodeId, Rank, Write};

use crate::format::Entry;
use crate::limits::READ_BYTES_MAX;
use crate::writer::Writer;
use crate::{
    Compacted, Container, ContainerError, Durability, Finished, Identity, Reader, Snapshot, names,
    next_opening,
};

impl Container {
    /// Makes one part of all; nobody may be writing. Needs room for all bytes once more.
    ///
    /// `progress` is told how far it is. Durable when it returns; a kill leaves the file as it was, and
    /// perhaps a part that no index tells of.
    pub fn flatten(
        &self,
        progress: &mut dyn FnMut(ByteCount),
    ) -> Result<Compacted, ContainerError> {
        self.read_published(|reader, snapshot| self.write_flat(reader, snapshot, progress))?;
        self.compact(Finished::All)
    }

    /// Publishes what `reader` sees as the whole file.
    fn write_flat(
        &self,
        reader: &Reader,
        snapshot: &Snapshot,
        progress: &mut dyn FnMut(ByteCount),
    ) -> Result<(), ContainerError> {
        let (process, opening) = (std::process::id(), next_opening());
        let who = Identity { node: NodeId(0), process, opening, rank: Rank(0) };
        let epoch = Epoch(snapshot.latest().0 + 1);
        let mut writer = Writer::new(self.clone(), who, epoch);
        writer.advance(epoch)?;
        let switched = copy(reader, &mut writer, progress).and_then(|()| {
            let (nothing, size) = (ByteCount::ZERO, reader.size());
            let sizes = [Entry::Cut { epoch, size: nothing }, Entry::Grow { epoch, size }];
            writer.resize(&sizes, Durability::Durable)
        });
        if switched.is_err() && writer.has_files() && !writer.has_published() {
            self.directory().remove(&names::part(writer.id()))?;
        }
        switched?;
        writer.close(Durability::Durable)
    }
}

fn copy(
    reader: &Reader,
    writer: &mut Writer,
    progress: &mut dyn FnMut(ByteCount),
) -> Result<(), ContainerError> {
    let whole = Extent::between(GlobalOffset(0), GlobalOffset(reader.size().get()));
    let whole = whole.expect("sizes of files are offsets");
    let mut buffer = vec![0; READ_BYTES_MAX.get() as usize];
    for window in whole.chunks(READ_BYTES_MAX) {
        let extents = written(&reader.index().lookup(window));
        let len = reader.read_extents(extents.iter().copied(), &mut buffer)?;
        let mut rest = &buffer[..len];
        for extent in extents {
            let (now, later) = rest.split_at(extent.len().get() as usize);
            writer.write(Write::At(extent), now).map_err(|error| error.source)?;
            rest = later;
        }
        progress(ByteCount(window.end().0));
    }
    Ok(())
}

/// The bytes among what a lookup found, neighbours joined.
fn written(found: &[Found]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for found in found.iter().filter(|found| matches!(found, Found::Bytes(_))) {
        match extents.last_mut() {
            Some(last) if last.end() == found.extent().start() => {
                let joined = Extent::between(last.start(), found.extent().end());
                *last = joined.expect("both are valid, and one is behind the other");
            }
            _ => extents.push(found.extent()),
        }
    }
    extents
}
