//! What this node knows of files that its processes read and write: layout and epochs.
//!
//! Learned from opens and attributes, refreshed when a part server calls it `Stale`. Never trusted
//! for sizes: those are asked of the home.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use hayase_layout::{InodeId, Layout};
use hayase_wire::message::{Attr, InodeRequest, PartRef, PeerReply, Refused};

use crate::node::Node;
use crate::refusals::unexpected;

/// Files known at once; all are forgotten when there are more.
const KNOWN_MAX: usize = 65_536;

/// Where a file's bytes lie.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) layout: Rc<Layout>,
    pub(crate) layout_epoch: u32,
    pub(crate) trunc_epoch: u32,
}

impl Known {
    pub(crate) fn part(&self, ino: InodeId, index: u16) -> PartRef {
        PartRef { ino, layout_epoch: self.layout_epoch, index }
    }
}

#[derive(Default)]
pub(crate) struct Files {
    known: RefCell<HashMap<InodeId, Known>>,
}

impl Files {
    pub(crate) fn learn(&self, attr: &Attr) {
        let mut known = self.known.borrow_mut();
        // The truncate epoch first: it never goes back, also where a copy of the cache area lies whole again.
        if let Some(file) = known.get_mut(&attr.ino)
            && (file.trunc_epoch, file.layout_epoch) >= (attr.trunc_epoch, attr.layout_epoch)
        {
            return;
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let file = Known {
            layout: Rc::new(attr.layout.clone()),
            layout_epoch: attr.layout_epoch,
            trunc_epoch: attr.trunc_epoch,
        };
        known.insert(attr.ino, file);
    }

    pub(crate) fn forget(&self, ino: InodeId) {
        self.known.borrow_mut().remove(&ino);
    }

    fn get(&self, ino: InodeId) -> Option<Known> {
        self.known.borrow().get(&ino).cloned()
    }
}

impl Node {
    /// Layout and epochs of a file, asked of its home when they are not known here.
    pub(crate) async fn file(self: &Rc<Self>, ino: InodeId) -> Result<Known, Refused> {
        if let Some(known) = self.files.get(ino) {
            return Ok(known);
        }
        self.learn_file(ino, InodeRequest::GetAttr { ino }).await
    }

    /// The same after a truncate overtook a call that begins anew now.
    pub(crate) async fn file_anew(self: &Rc<Self>, ino: InodeId) -> Result<Known, Refused> {
        self.files.forget(ino);
        self.learn_file(ino, InodeRequest::Overtaken { ino }).await
    }

    async fn learn_file(
        self: &Rc<Self>,
        ino: InodeId,
        request: InodeRequest,
    ) -> Result<Known, Refused> {
        match self.rpc.ask(ino.home(), request).await? {
            PeerReply::Attr { attr, .. } => {
                self.files.learn(&attr);
                Ok(Known {
                    layout: Rc::new(attr.layout),
                    layout_epoch: attr.layout_epoch,
                    trunc_epoch: attr.trunc_epoch,
                })
            }
            other => Err(unexpected(&other)),
        }
    }
}
