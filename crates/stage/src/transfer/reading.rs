//! Reading the source, so that a change under the reader and damage on the way are noticed, and the file is
//! read again.

use super::bytes::{Bytes, Version, is_passing};
use super::open_packs::OpenPacks;
use super::retries::Retries;
use super::stretch::PackStretch;
use crate::Place;
use crate::item::{Item, Kind};
use crate::limits::CHANGED_TRIES_MAX;
use crate::pack::{Location, PackError, Row};
use crate::plan::Task;
use crate::source::{Origin, Source};

/// The source, and its packs that are open.
pub(super) struct Reading<'a> {
    source: &'a Source,
    open_packs: OpenPacks,
    retries: &'a Retries<'a>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(source: &'a Source, retries: &'a Retries<'a>) -> Self {
        Self { source, open_packs: OpenPacks::default(), retries }
    }

    /// Where the source is.
    pub(super) fn place(&self) -> &'a Place {
        self.source.place()
    }

    /// Opens a file, with one try.
    pub(super) fn open(&self, task: &Task, version: Version) -> Result<Bytes, PackError> {
        Bytes::open(self.source, &self.open_packs, task, version)
    }

    /// Fails when the file is no longer what was opened.
    pub(super) fn check_unchanged(&self, bytes: &Bytes) -> Result<(), PackError> {
        bytes.check_unchanged(self.place())
    }

    /// Opens packs again when they are needed next: what was kept of one may be damaged.
    pub(super) fn forget_packs(&self) {
        self.open_packs.clear();
    }

    /// A directory with its mode and time.
    pub(super) fn directory(&self, task: &Task) -> Result<Item, PackError> {
        match (&task.item.kind, &task.origin) {
            (Kind::Directory, Origin::Object(_)) => self.told_directory(&task.item),
            _ => Ok(task.item.clone()),
        }
    }

    /// A listed directory with the mode and time that its mark says.
    pub(super) fn told_directory(&self, listed: &Item) -> Result<Item, PackError> {
        self.retries.again(|| Ok(self.place().told_directory(listed)?))
    }

    /// The bytes of a pack from one entry to another, by one read, into `buffer`.
    pub(super) fn stretch(
        &self,
        first: Location,
        last: Location,
        buffer: Vec<u8>,
    ) -> Result<PackStretch, PackError> {
        let mut buffer = Some(buffer);
        self.retries.again(|| self.read_stretch(first, last, buffer.take().unwrap_or_default()))
    }

    fn read_stretch(
        &self,
        first: Location,
        last: Location,
        buffer: Vec<u8>,
    ) -> Result<PackStretch, PackError> {
        let set = self.source.set().expect("an entry lies in a set");
        PackStretch::read(self.open_packs.get(set, first.pack)?, (first, last), buffer)
    }

    /// An entry that did not come whole with others: damage that was done on the way is not there when it is
    /// read again.
    pub(super) fn entry_again(&self, row: &Row, at: Location) -> Result<Vec<u8>, PackError> {
        self.open_packs.clear();
        self.until_whole(|| {
            let mut alone = self.read_stretch(at, at, Vec::new())?;
            alone.open_through(at)?;
            Ok(alone.entry(row)?.into_owned())
        })
    }

    /// A whole object of at most `bytes_max`, as it was at one moment; a link where it stands for one.
    pub(super) fn read_object(
        &self,
        task: &Task,
        bytes_max: u64,
    ) -> Result<(Item, Vec<u8>), PackError> {
        let mut version = Version::Listed;
        self.until_whole(|| {
            let bytes = self.open(task, version);
            // A version that was replaced since it was listed is not the one to insist on.
            version = Version::Present;
            let bytes = bytes?;
            let len = bytes.len(&task.item);
            if len > bytes_max {
                return Err(PackError::Changed { name: task.item.name.to_string() });
            }
            let mut data = Vec::new();
            bytes.read(0, usize::try_from(len).unwrap_or(usize::MAX), &mut data)?;
            self.check_unchanged(&bytes)?;
            let item = bytes.item_of(&task.item, &data)?;
            // What the store knows of it the tier compared.
            bytes.check_row(&item, crate::checksum::of(&data))?;
            Ok((item, data))
        })
    }

    /// Reads a file by `read`, again and again while the tier is unreachable, and a few times where the
    /// file changed meanwhile or did not come as it was stored.
    pub(super) fn until_whole<T>(
        &self,
        mut read: impl FnMut() -> Result<T, PackError>,
    ) -> Result<T, PackError> {
        let mut tries = 1;
        loop {
            match self.retries.again(&mut read) {
                Err(error) if is_passing(&error) && tries < CHANGED_TRIES_MAX => {
                    self.open_packs.clear();
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }
}
