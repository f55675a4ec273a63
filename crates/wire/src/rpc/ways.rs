//! The addresses of one server, tried so that one from which nothing is heard holds up no other.
//!
//! Each is tried as soon as the one before has failed, or has not answered for a moment ([`CONNECT_STEP`]).
//! Source: RFC 8305 (Happy Eyeballs), section 5.

use std::rc::Rc;
use std::vec;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::LinkError;
use crate::deadline::CONNECT_STEP;
use crate::handshake::HandshakeError;
use crate::limits::ADDRESSES_MAX;
use crate::times::CONNECT_WAIT;
use crate::transport::{Address, Connection, Transport, TransportError};

/// Connections to one server, as they come about.
pub(super) struct Ways {
    transport: Rc<dyn Transport>,
    untried: vec::IntoIter<Address>,
    trying: JoinSet<Result<Connection, TransportError>>,
    error: LinkError,
}

impl Ways {
    /// Nothing is tried yet.
    pub(super) fn new(transport: &Rc<dyn Transport>, addresses: &[Address]) -> Self {
        let addresses: Vec<_> = addresses.iter().take(ADDRESSES_MAX).cloned().collect();
        Self {
            transport: Rc::clone(transport),
            untried: addresses.into_iter(),
            trying: JoinSet::new(),
            error: LinkError::NoAddress,
        }
    }

    /// The next connection; `None` where all addresses have had their turn.
    pub(super) async fn next(&mut self) -> Option<Connection> {
        loop {
            if self.trying.is_empty() && !self.try_next() {
                return None;
            }
            let has_more = self.untried.len() > 0;
            let tried = tokio::select! {
                biased;
                Some(tried) = self.trying.join_next() => tried,
                () = sleep(CONNECT_STEP), if has_more => {
                    self.try_next();
                    continue;
                }
            };
            match tried {
                Ok(Ok(connection)) => return Some(connection),
                Ok(Err(error)) => self.failed(error.into()),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
            self.try_next();
        }
    }

    fn try_next(&mut self) -> bool {
        let Some(address) = self.untried.next() else { return false };
        let transport = Rc::clone(&self.transport);
        self.trying.spawn_local(async move { connection(&*transport, &address).await });
        true
    }

    /// A connection was of no use.
    pub(super) fn failed(&mut self, error: LinkError) {
        if weight(&error) >= weight(&self.error) {
            self.error = error;
        }
    }

    /// Why none was of any.
    pub(super) fn into_error(self) -> LinkError {
        self.error
    }
}

/// Which of the errors of several addresses is that of the server. Somebody else may answer at one of them, and who
/// refuses at one may still be there at the one that does not answer.
fn weight(error: &LinkError) -> u8 {
    match error {
        LinkError::NoAddress => 0,
        LinkError::Handshake(HandshakeError::WrongServer { .. }) => 1,
        error if error.is_final() => 1,
        error if error.is_no_way() => 3,
        _ => 2,
    }
}

/// A connection to one address.
pub(super) async fn connection(
    transport: &dyn Transport,
    to: &Address,
) -> Result<Connection, TransportError> {
    let late = |_| {
        let source = std::io::ErrorKind::TimedOut.into();
        TransportError::Connect { to: to.clone(), source }
    };
    timeout(CONNECT_WAIT, transport.connect(to)).await.map_err(late)?
}
