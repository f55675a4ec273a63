//! Parts, open for reading: as many as the limit allows, kept open between reads.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use hayase_layout::{LocalExtent, WriterId};
use rustix::fs::OFlags;

use crate::directory::is_gone;
use crate::limits::PARTS_OPEN_MAX;
use crate::{Container, ContainerError, names};

/// See the module. Any number of threads may read.
#[derive(Debug)]
pub(crate) struct Parts {
    container: Container,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<WriterId, Arc<File>>,
    /// In the order in which they were opened.
    order: VecDeque<WriterId>,
}

impl Parts {
    pub(crate) fn new(container: Container) -> Self {
        Self { container, open: Mutex::default() }
    }

    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    pub(crate) fn get(&self, writer: WriterId) -> Result<Arc<File>, ContainerError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.files.get(&writer) {
            return Ok(Arc::clone(file));
        }
        let name = names::part(writer);
        let directory = self.container.directory();
        let file = directory.open_file(&name, OFlags::RDONLY).map_err(|error| {
            let path = directory.shown(&name);
            match is_gone(&error) {
                true => ContainerError::MissingPart { path },
                false => ContainerError::io("open the part", &path, error),
            }
        })?;
        if open.files.len() >= PARTS_OPEN_MAX
            && let Some(oldest) = open.order.pop_front()
        {
            open.files.remove(&oldest);
        }
        let file = Arc::new(file);
        open.files.insert(writer, Arc::clone(&file));
        open.order.push_back(writer);
        Ok(file)
    }

    fn close(&self, writer: WriterId) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.files.remove(&writer);
        open.order.retain(|other| *other != writer);
    }

    /// Fills `target`, which is as long as `local`; `ShortPart` when the part is not so long.
    pub(crate) fn read(
        &self,
        writer: WriterId,
        local: LocalExtent,
        target: &mut [u8],
    ) -> Result<(), ContainerError> {
        let mut file = self.get(writer)?;
        let mut read = file.read_exact_at(target, local.start().0);
        let is_old =
            |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof || is_gone(error);
        if read.as_ref().is_err_and(is_old) {
            // It may have grown since it was opened, or have been removed: an open is what makes NFS look.
            self.close(writer);
            file = self.get(writer)?;
            read = file.read_exact_at(target, local.start().0);
        }
        read.map_err(|error| {
            let path = self.container.directory().shown(&names::part(writer));
            match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    let found = file.metadata().map_or(0, |meta| meta.len());
                    ContainerError::ShortPart { path, needed: local.end().0, found }
                }
                _ if is_gone(&error) => ContainerError::MissingPart { path },
                _ => ContainerError::io("read the part", &path, error),
            }
        })
    }
}
