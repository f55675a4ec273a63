//! Attributes: from memory, or from the server.

use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_wire::message::{FileKind, MetaChange, NodeReply, NodeRequest, Refused};

use super::gathering::Gatherer;
use super::known::Known;
use super::requests::Requests;
use crate::link::LinkError;
use crate::volume::Found;

/// Asks for attributes, and changes them.
pub(super) struct Attributes {
    pub(super) known: Arc<Known>,
    pub(super) requests: Requests,
    pub(super) gatherer: Arc<Gatherer>,
}

impl Attributes {
    pub(super) fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        self.gatherer.hand_on_untold(ino)?;
        let concerns_files = self.known.removals().concern_files();
        if let Some(found) = self.known.remembered(ino)
            && (!concerns_files || found.attr.kind == FileKind::Directory)
        {
            return Ok(found);
        }
        self.told_of_file(concerns_files, || self.ask_attributes(ino))
    }

    /// What the server says of a file. One that was started again may not have heard of removals whose
    /// success the one before told the kernel: then it is asked once more when it has.
    pub(super) fn told_of_file<T>(
        &self,
        concerns_files: bool,
        ask: impl Fn() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let told = ask()?;
        if concerns_files && self.requests.link().until_asked_again() { ask() } else { Ok(told) }
    }

    /// Of an inode that has a name which nobody is taking away: if it has no other, it lost none.
    pub(super) fn attributes_of_named(&self, ino: InodeId) -> Result<Found, Refused> {
        match self.known.remembered(ino) {
            Some(found) if found.attr.nlink == 1 => Ok(found),
            _ => self.attributes(ino),
        }
    }

    pub(super) fn ask_attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        let asked = self.known.asked();
        match self.requests.call(&NodeRequest::GetAttr { ino })?.message {
            NodeReply::Attr { attr, grants } => Ok(self.known.found(asked, attr, grants)),
            other => Err(LinkError::unexpected("GetAttr", &other).into()),
        }
    }

    pub(super) fn set_attributes(
        &self,
        ino: InodeId,
        change: &MetaChange,
    ) -> Result<Found, Refused> {
        let _cuts = change.size.map(|_| self.gatherer.cuts());
        self.gatherer.hand_on(ino)?;
        if change.size.is_some() {
            self.known.demote(ino);
        }
        if change.mtime.is_some() {
            // What this node estimates of a directory was before it.
            self.known.forget(ino);
        }
        let asked = self.known.asked();
        match self.requests.call(&NodeRequest::SetAttr { ino, change: *change })?.message {
            NodeReply::Attr { attr, grants } => Ok(self.known.learn_changed(asked, attr, grants)),
            other => Err(LinkError::unexpected("SetAttr", &other).into()),
        }
    }
}
