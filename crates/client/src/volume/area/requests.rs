//! Requests to the node's server.

use std::sync::Arc;

use hayase_wire::message::{NodeReply, NodeRequest, Refused};

use crate::link::{Link, LinkError, Reply};

/// The connection, as each part of a volume has it.
#[derive(Clone)]
pub(super) struct Requests(Arc<dyn Link>);

impl Requests {
    pub(super) fn new(link: Arc<dyn Link>) -> Self {
        Self(link)
    }

    /// The connection itself.
    pub(super) fn link(&self) -> &dyn Link {
        &*self.0
    }

    pub(super) fn call(&self, request: &NodeRequest) -> Result<Reply, Refused> {
        Ok(self.0.call(request)?)
    }

    /// A request that is answered by nothing else than that it is done.
    pub(super) fn call_done(
        &self,
        name: &'static str,
        request: &NodeRequest,
    ) -> Result<(), Refused> {
        match self.call(request)?.message {
            NodeReply::Done => Ok(()),
            other => Err(LinkError::unexpected(name, &other).into()),
        }
    }
}
