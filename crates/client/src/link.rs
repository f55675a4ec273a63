//! Requests and answers between this process and its node's server.
//!
//! Here: the trait that [`crate::session`] and the server of the tests implement.
//! Not here: what is asked when ([`crate::volume::area`]).

use std::os::fd::OwnedFd;
use std::sync::Weak;

use hayase_layout::InodeId;
use hayase_wire::message::{
    Callback, CallbackReply, HeldLock, HeldOpen, NodeReply, NodeRequest, Refused, SlotRange,
};

/// An answer that is not a refusal.
#[derive(Debug)]
pub struct Reply {
    /// What the server says; never [`NodeReply::Refused`].
    pub message: NodeReply,
    /// The descriptor beside it.
    pub descriptor: Option<OwnedFd>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The server said no.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The server can not be reached, or broke off.
    #[error("talk to the node's server at {socket}")]
    Lost {
        /// Path of the socket.
        socket: String,
        /// What the socket said.
        source: std::io::Error,
    },
    /// The server answered something else.
    #[error("the server answered {request} with {found}")]
    Unexpected {
        /// What was asked.
        request: &'static str,
        /// What came.
        found: String,
    },
}

impl LinkError {
    /// For a reply of the wrong kind.
    pub fn unexpected(request: &'static str, found: &NodeReply) -> Self {
        let mut found = format!("{found:?}");
        found.truncate(found.char_indices().nth(80).map_or(found.len(), |(at, _)| at));
        Self::Unexpected { request, found }
    }
}

impl From<LinkError> for Refused {
    /// What has no errno of its own is `EIO`, with the reason in words.
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Refused(refused) => refused,
            LinkError::Lost { ref socket, ref source } => {
                Self::because(libc::EIO, format!("{error} ({socket}): {source}"))
            }
            LinkError::Unexpected { .. } => Self::because(libc::EIO, error.to_string()),
        }
    }
}

/// A request of the kernel that the server may answer itself ([`Link::hand_over`]).
pub struct HandOver {
    /// The kernel's number of it.
    pub unique: u64,
    /// One that must happen once.
    pub request: NodeRequest,
    /// Hears of its end, once, on a thread of the link; at once of [`Handed::NotTaken`].
    pub end: Box<dyn FnOnce(Handed) + Send>,
}

/// How a request ended that was handed over.
#[derive(Debug)]
pub enum Handed {
    /// The kernel was told of its success a moment ago; whose name it removed.
    Told(InodeId),
    /// The kernel waits for this answer.
    Answered(Result<NodeReply, LinkError>),
    /// There is no such way, or too many are under way: nothing has happened.
    NotTaken,
}

/// A way to the node's server; blocking, from any number of threads.
pub trait Link: Send + Sync + 'static {
    /// One request without bulk bytes.
    fn call(&self, request: &NodeRequest) -> Result<Reply, LinkError>;

    /// Puts `data` (at most [`Link::slot_bytes`]) into a slot and sends the request that names it.
    fn call_with(
        &self,
        data: &[u8],
        request: &mut dyn FnMut(SlotRange) -> NodeRequest,
    ) -> Result<Reply, LinkError>;

    /// Sends a request that names a slot of `len` bytes (at most [`Link::slot_bytes`]); when the
    /// answer is a [`NodeReply::Count`], `sink` sees so many bytes of the slot, once.
    fn call_into(
        &self,
        len: u32,
        request: &mut dyn FnMut(SlotRange) -> NodeRequest,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), LinkError>;

    /// The most bytes that travel beside one request.
    fn slot_bytes(&self) -> usize;

    /// `device` is where the kernel asks this process: the server may answer there from now on.
    fn answer_kernel_at(&self, _device: OwnedFd) {}

    /// Sends a request that the server answers to the kernel itself, and returns at once.
    fn hand_over(&self, request: HandOver) {
        (request.end)(Handed::NotTaken);
    }

    /// Waits while requests that were handed over to a server that ended are asked for again; false
    /// when there are none. A server that was started anew may not know of them before.
    fn until_asked_again(&self) -> bool {
        false
    }

    /// Who says what this process holds when the server was started anew.
    fn held_by(&self, _holder: Weak<dyn Callbacks>) {}

    /// Begins to pass the server's own requests to `callbacks`, for as long as both live.
    fn answer(&self, callbacks: Weak<dyn Callbacks>);
}

/// Who answers the server's requests.
pub trait Callbacks: Send + Sync + 'static {
    /// Runs on a thread of its own, one request at a time, and returns when it is done.
    fn answer(&self, callback: Callback) -> CallbackReply;

    /// The server no longer answers: whatever it granted is void. Returns when nothing of it is used
    /// any more.
    fn lost(&self);

    /// All opens and locks, as the server is to be told them.
    fn held(&self) -> (Vec<HeldOpen>, Vec<HeldLock>);

    /// Something that was held of these inodes could not be given back.
    fn not_given_back(&self, inodes: &[InodeId]);
}
