//! Extended attributes: the file's own, and three of ours.
//!
//! `user.hayase.explain` (read only) tells as JSON how a file is served and why.
//! `user.hayase.layout` reads, sets and removes how a directory's new files are laid out:
//! `whole` or `striped:<bytes>:<width>`. Of a file it says how it is laid out; set to
//! `recorded:<inode of a directory>` an empty file becomes the one that is kept there by writer
//! (`hayase_container::area`), set to `whole` such a file becomes a plain one again.
//! `user.hayase.published` is set by a writer that has published, to the name of its index.
//! None is listed, so copying tools leave them alone.
//! Access control lists (`system.posix_acl_*`) come with the attributes; all other names of the system are refused.

use std::sync::Arc;

use fuser::{ReplyEmpty, ReplyXattr};
use hayase_client::open_file::Class;
use hayase_client::volume::{LocalUse, Volume};
use hayase_layout::acl::{ACCESS_NAME, is_acl};
use hayase_layout::{Acl, InodeId, Layout, PolicyError, StripePolicy};
use hayase_wire::message::{
    Attr, Explained, FileKind, MetaChange, Name, RecordedStep, Refused, XattrMode,
};
use serde_json::json;

use super::link::reply_empty;
use crate::errno::errno;
use crate::granted::Granted;
use crate::notify::Kernel;
use crate::passthrough::PassthroughState;
use crate::set_ids::Caller;

const EXPLAIN: &[u8] = b"user.hayase.explain";
const LAYOUT: &[u8] = b"user.hayase.layout";
const PUBLISHED: &[u8] = b"user.hayase.published";

/// Reads and sets extended attributes.
pub(crate) struct Xattrs {
    volume: Arc<dyn Volume>,
    kernel: Arc<Kernel>,
    granted: Arc<Granted>,
}

impl Xattrs {
    pub(crate) fn new(volume: Arc<dyn Volume>, kernel: Arc<Kernel>, granted: Arc<Granted>) -> Self {
        Self { volume, kernel, granted }
    }

    /// `size` 0 asks for the length.
    pub(crate) fn getxattr(&self, ino: InodeId, name: &Name, size: u32, reply: ReplyXattr) {
        let value = match name.as_slice() {
            EXPLAIN => self.explain(ino),
            LAYOUT if self.volume.has_layouts() => {
                self.volume.attributes(ino).map(|found| layout_text(&found.attr).into())
            }
            list if is_acl(list) && self.granted.checks_acls() => acl(&*self.volume, ino, name),
            name if name.starts_with(b"system.") => Err(Refused::new(libc::EOPNOTSUPP)),
            name => self.volume.xattr(ino, name),
        };
        match value {
            Ok(value) => reply_sized(&value, size, reply),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    pub(crate) fn setxattr(
        &self,
        ino: InodeId,
        (name, value): (&Name, &[u8]),
        flags: i32,
        caller: Caller,
        reply: ReplyEmpty,
    ) {
        let result = match name.as_slice() {
            EXPLAIN => Err(Refused::because(libc::EPERM, "user.hayase.explain is read only")),
            LAYOUT if self.volume.has_layouts() => self.set_layout(ino, value),
            PUBLISHED if self.volume.has_layouts() => self.published(ino, value),
            list if is_acl(list) && self.granted.checks_acls() => {
                set_acl(&*self.volume, ino, (name, value), caller)
            }
            name if name.starts_with(b"system.") => Err(Refused::new(libc::EOPNOTSUPP)),
            name => {
                xattr_mode(flags).and_then(|mode| self.volume.set_xattr(ino, name, value, mode))
            }
        };
        reply_empty(result, reply);
    }

    pub(crate) fn listxattr(&self, ino: InodeId, size: u32, reply: ReplyXattr) {
        match self.volume.list_xattrs(ino) {
            Ok(names) => {
                let mut list = Vec::new();
                for name in names {
                    list.extend_from_slice(&name);
                    list.push(0);
                }
                reply_sized(&list, size, reply);
            }
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    pub(crate) fn removexattr(&self, ino: InodeId, name: &Name, reply: ReplyEmpty) {
        let result = match name.as_slice() {
            EXPLAIN => Err(Refused::because(libc::EPERM, "user.hayase.explain is read only")),
            LAYOUT if self.volume.has_layouts() => self.set_policy(ino, None),
            list if is_acl(list) && self.granted.checks_acls() => {
                self.volume.remove_xattr(ino, name)
            }
            name if name.starts_with(b"system.") => Err(Refused::new(libc::EOPNOTSUPP)),
            name => self.volume.remove_xattr(ino, name),
        };
        reply_empty(result, reply);
    }

    fn published(&self, ino: InodeId, index: &[u8]) -> Result<(), Refused> {
        let index = String::from_utf8(index.to_vec()).map_err(|_| Refused::new(libc::EINVAL))?;
        self.volume.recorded(ino, RecordedStep::Published { index })
    }

    fn set_layout(&self, ino: InodeId, value: &[u8]) -> Result<(), Refused> {
        if let Some(container) = parse_recorded(value) {
            return self.volume.recorded(ino, RecordedStep::Begin { container });
        }
        let policy = parse_layout(value)?;
        let attr = self.volume.attributes(ino)?.attr;
        match (policy, attr.layout) {
            (None, Layout::Recorded { .. }) => {
                self.volume.recorded(ino, RecordedStep::Flatten { keep: None })
            }
            _ => self.set_policy(ino, policy),
        }
    }

    /// Of a directory's new files: a file that is there keeps its layout.
    fn set_policy(&self, ino: InodeId, policy: Option<StripePolicy>) -> Result<(), Refused> {
        if self.volume.attributes(ino)?.attr.kind != FileKind::Directory {
            return Err(Refused::because(libc::ENOTDIR, "layouts are set on directories"));
        }
        let change = MetaChange { policy: Some(policy), ..MetaChange::default() };
        self.volume.set_attributes(ino, &change).map(drop)
    }

    fn explain(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        let (explained, here) = self.volume.explain(ino)?;
        let text = explain_json(&explained, here, self.kernel.backings.state());
        Ok(text.to_string().into_bytes())
    }
}

/// An access control list, which comes with the attributes: where these may be kept, the kernel's question costs no
/// message, whether the inode has a list or not. (But for the first one about a file or directory that a tier had.)
fn acl(volume: &dyn Volume, ino: InodeId, name: &Name) -> Result<Vec<u8>, Refused> {
    let attr = volume.lasting_attributes(ino)?;
    let acl = attr.acls.as_ref().and_then(|acls| acls.get(name));
    acl.map(Acl::to_value).ok_or_else(|| Refused::new(libc::ENODATA))
}

/// As with chmod(2), a caller outside of the file's group does not keep its set-group-id bit. (The kernel says so with
/// `FUSE_SETXATTR_ACL_KILL_SGID`, which fuser 0.18 does not hand over.)
fn set_acl(
    volume: &dyn Volume,
    ino: InodeId,
    (name, value): (&Name, &[u8]),
    caller: Caller,
) -> Result<(), Refused> {
    volume.set_xattr(ino, name, value, XattrMode::Set)?;
    if name != ACCESS_NAME {
        return Ok(());
    }
    let attr = volume.lasting_attributes(ino)?;
    if attr.mode & libc::S_ISGID != 0 && !caller.keeps_group(attr.gid) {
        let mode = Some(attr.mode & !libc::S_ISGID);
        volume.set_attributes(ino, &MetaChange { mode, ..MetaChange::default() })?;
    }
    Ok(())
}

fn explain_json(
    explained: &Explained,
    here: LocalUse,
    passthrough: PassthroughState,
) -> serde_json::Value {
    let attr = &explained.attr;
    let opens: Vec<_> = explained
        .opens
        .iter()
        .map(|(node, read, write, class)| {
            json!({"node": node.0, "read": read, "write": write, "class": class})
        })
        .collect();
    let parts: Vec<_> = explained
        .parts
        .iter()
        .map(|(server, bytes)| json!({"server": server, "bytes_allocated": bytes}))
        .collect();
    let tier = explained.cache.as_ref().map(|line| {
        json!({
            "path": String::from_utf8_lossy(&line.path),
            "state": line.state,
            "errno": line.errno,
            "attempts": line.attempts,
        })
    });
    json!({
        "ino": attr.ino.0,
        "home": attr.ino.home().0,
        "layout": layout_text(attr),
        "size": attr.size,
        "state": explained.state,
        "opens": opens,
        "parts": parts,
        "tier": tier,
        "here": {
            "class": here.class.map(|class| match class {
                Class::Local => "local",
                Class::Remote => "remote",
            }),
            "why": why(attr, here, passthrough),
            "readers": here.readers,
            "writers": here.writers,
            "cache": here.cache,
            "passthrough": match here.class {
                Some(Class::Local) => passthrough.describe(),
                Some(Class::Remote) | None if passthrough == PassthroughState::Used => {
                    "not for this file now"
                }
                Some(Class::Remote) | None => passthrough.describe(),
            },
        },
    })
}

fn why(attr: &Attr, here: LocalUse, passthrough: PassthroughState) -> String {
    match (here.class, &attr.layout) {
        (None, _) => "not open on this node".to_owned(),
        (Some(Class::Local), _) => {
            format!("its part is on this node; passthrough {}", passthrough.describe())
        }
        (Some(Class::Remote), Layout::Striped { .. }) => {
            "its parts are on several nodes".to_owned()
        }
        (Some(Class::Remote), Layout::Recorded { .. }) => {
            "written through MPI-IO: each writer's part is on the writer's node".to_owned()
        }
        (Some(Class::Remote), _) if passthrough != PassthroughState::Used => format!(
            "its part is on server {}; passthrough is {}",
            attr.ino.home(),
            passthrough.describe()
        ),
        (Some(Class::Remote), _) => format!(
            "its part is on server {}; if that is this node, another node had the file open when it was opened here",
            attr.ino.home()
        ),
    }
}

/// Of a file: how it is laid out; of a directory: how its new files will be.
fn layout_text(attr: &Attr) -> String {
    match (&attr.layout, attr.policy) {
        (Layout::Striped { stripe, servers }, _) => {
            format!("striped:{}:{}", stripe.get(), servers.len())
        }
        (Layout::Recorded { .. }, _) => "recorded".to_owned(),
        (_, Some(policy)) if attr.kind == FileKind::Directory => policy.to_string(),
        _ => "whole".to_owned(),
    }
}

fn parse_recorded(value: &[u8]) -> Option<InodeId> {
    let number = std::str::from_utf8(value).ok()?.strip_prefix("recorded:")?;
    number.parse().ok().map(InodeId)
}

fn parse_layout(value: &[u8]) -> Result<Option<StripePolicy>, Refused> {
    let wrong = |why: &str| Refused::because(libc::EINVAL, why);
    match std::str::from_utf8(value) {
        Ok("whole") => Ok(None),
        Ok(text) => text.parse().map(Some).map_err(|error: PolicyError| wrong(&error.to_string())),
        Err(_) => Err(wrong("a layout is `whole` or `striped:<bytes>:<width>`")),
    }
}

fn xattr_mode(flags: i32) -> Result<XattrMode, Refused> {
    match flags {
        0 => Ok(XattrMode::Set),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Refused::new(libc::EINVAL)),
    }
}

fn reply_sized(value: &[u8], size: u32, reply: ReplyXattr) {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(fuser::Errno::ERANGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_written_and_read() {
        let check = |text: &str, policy: Option<(u64, u16)>| {
            let parsed = parse_layout(text.as_bytes()).unwrap();
            assert_eq!(parsed.map(|policy| (policy.stripe.get(), policy.width)), policy);
        };
        check("whole", None);
        check("striped:1048576:8", Some((1 << 20, 8)));
        check("striped:4096:0", Some((4096, 0)));
        for wrong in ["", "striped", "striped:1", "striped:1:2", "striped:4097:2", "striped:0:1"] {
            assert_eq!(parse_layout(wrong.as_bytes()).unwrap_err().errno, libc::EINVAL, "{wrong}");
        }
    }

    #[test]
    fn explain_says_why() {
        let mut attr = hayase_client::testing::attr(5);
        let explained = |attr: &Attr| Explained {
            attr: attr.clone(),
            state: "writing".to_owned(),
            opens: vec![(hayase_layout::NodeId(1), true, false, "direct".to_owned())],
            parts: vec![(0, 4096)],
            cache: None,
        };
        let open = LocalUse { class: Some(Class::Local), readers: 1, writers: 0, cache: false };
        let json = explain_json(&explained(&attr), open, PassthroughState::Used);
        assert_eq!(json["here"]["class"], "local");
        assert_eq!(json["here"]["why"], "its part is on this node; passthrough used");
        assert_eq!(json["opens"][0]["node"], 1);
        assert_eq!(json["layout"], "whole");
        attr.layout = Layout::Striped {
            stripe: hayase_layout::ByteCount::mib(1),
            servers: vec![hayase_layout::ServerId(0), hayase_layout::ServerId(1)],
        };
        let remote = LocalUse { class: Some(Class::Remote), ..open };
        let json = explain_json(&explained(&attr), remote, PassthroughState::Used);
        assert_eq!(json["here"]["passthrough"], "not for this file now");
        assert!(json["tier"].is_null());
        assert_eq!(json["layout"], "striped:1048576:2");
        assert_eq!(json["here"]["why"], "its parts are on several nodes");
        attr.layout = Layout::Whole;
        let line = hayase_wire::message::CacheLine {
            path: b"a/b".to_vec(),
            state: "in-tier".to_owned(),
            bytes: 7,
            errno: 0,
            attempts: 0,
        };
        let explained = Explained { cache: Some(line), ..explained(&attr) };
        let json = explain_json(&explained, remote, PassthroughState::NotOffered);
        assert_eq!(
            (&json["tier"]["path"], &json["tier"]["state"]),
            (&"a/b".into(), &"in-tier".into())
        );
        let off = "off: the kernel (or the kernel profile) does not offer it";
        assert_eq!(json["here"]["passthrough"], off);
        assert_eq!(json["here"]["why"], format!("its part is on server 0; passthrough is {off}"));
    }
}
