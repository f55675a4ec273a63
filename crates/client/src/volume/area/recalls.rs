//! What the server asks of this node.

use std::sync::atomic::Ordering;

use hayase_layout::InodeId;
use hayase_wire::message::{Access, Callback, CallbackReply, Grants, StillOpen};

use super::{Area, Class, Drops};
use crate::limits::NAME_WAIT;
use crate::link::Callbacks;

impl Callbacks for Area {
    fn answer(&self, callback: Callback) -> CallbackReply {
        match callback {
            Callback::Recall { ino, bits } => CallbackReply::Recalled(self.recall(ino, bits)),
            Callback::InvalName { parent, name } => {
                if let Some(kernel) = self.kernel.get() {
                    kernel.forget_name(parent, &name, NAME_WAIT);
                }
                CallbackReply::Forgotten
            }
            Callback::LockGranted { ticket } => {
                self.granted(ticket);
                CallbackReply::Told
            }
            Callback::Ping => CallbackReply::Pong,
        }
    }

    fn lost(&self) {
        let mut known = Vec::new();
        self.inodes.for_each(|shard| {
            shard.stamps.stamp_all(&self.moments);
            shard.attributes.clear();
            for (ino, node) in &mut shard.nodes {
                node.lose_cache();
                known.push((*ino, drops(node.open.class(), true)));
            }
        });
        self.locks.lost();
        // After the stamps: what was asked before them begins nothing any more.
        self.made.end_all();
        for (ino, drops) in known {
            self.invalidate(ino, drops);
        }
    }
}

impl Area {
    /// First nothing is granted any more, then the kernel drops what it has, then this returns.
    fn recall(&self, ino: InodeId, bits: Grants) -> StillOpen {
        let (access, as_of, class) = {
            let mut shard = self.inodes.lock(ino);
            shard.stamps.stamp(ino, &self.moments);
            shard.attributes.remove(ino);
            if bits.cache {
                self.made.end(ino);
            }
            // Under the inode's lock: what it is asked for from now on has a higher number.
            let as_of = self.opens_asked.load(Ordering::SeqCst);
            let (access, class) = match shard.nodes.get_mut(&ino) {
                Some(node) => {
                    if bits.cache {
                        node.lose_cache();
                    }
                    let class = node.open.class();
                    let still_open = node.open.recall();
                    self.release_if_unheld(&mut shard, ino);
                    (still_open, class)
                }
                // Perhaps a file being created here, whose answer is on its way.
                None if self.creating.load(Ordering::SeqCst) > 0 => {
                    (Access { read: true, write: true }, None)
                }
                None => (Access::default(), None),
            };
            (access, as_of, class)
        };
        self.invalidate(ino, drops(class, bits.cache));
        StillOpen { access, as_of }
    }
}

/// A file of class L has no pages of its own in the mount.
fn drops(class: Option<Class>, pages: bool) -> Drops {
    if pages && class != Some(Class::Local) { Drops::Pages } else { Drops::Attributes }
}
