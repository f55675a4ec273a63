//! The door of a listener: from a connection, which anybody can make, to a session, which takes the
//! job's secret.
//!
//! Who says nothing and who only repeats what was overheard have places of their own, so that
//! neither holds up those who know the secret, and the first can not even take the places of the second.

use std::cell::Cell;

use tokio::time::Instant;

use super::error::Chain;
use super::places::Places;
use crate::deadline::REFUSALS_PAUSE;
use crate::handshake::{self, Credentials, HandshakeError, Session};
use crate::limits::{HANDSHAKES_MAX, STRANGERS_MAX};
use crate::transport::Connection;

pub(super) struct Door {
    credentials: Credentials,
    strangers: Places,
    handshakes: Places,
    refusals: Refusals,
}

impl Door {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            strangers: Places::new(STRANGERS_MAX),
            handshakes: Places::new(HANDSHAKES_MAX),
            refusals: Refusals::default(),
        }
    }

    /// The session with the peer of a connection, if it is one, unless `refuses` says why it is not taken.
    pub(super) async fn admit(
        &self,
        connection: Connection,
        refuses: impl FnOnce() -> Option<String>,
    ) -> Option<Session> {
        let peer = connection.peer.clone();
        let session = self.shake_hands(connection, refuses).await;
        session.map_err(|error| self.refusals.tell(&peer, &error)).ok()
    }

    /// Tells the peer of a connection, if it is one, that this server is starting.
    pub(super) async fn put_off(&self, connection: Connection) {
        let peer = connection.peer.clone();
        let told = async {
            let heard = self.strangers.hold(handshake::hear(connection, &self.credentials)).await;
            let heard = heard.ok_or(HandshakeError::Displaced)??;
            let telling = handshake::answer_starting(heard, &self.credentials);
            self.handshakes.hold(telling).await.ok_or(HandshakeError::Displaced)?
        };
        if let Err(error) = told.await {
            self.refusals.tell(&peer, &error);
        }
    }

    async fn shake_hands(
        &self,
        connection: Connection,
        refuses: impl FnOnce() -> Option<String>,
    ) -> Result<Session, HandshakeError> {
        let heard = self.strangers.hold(handshake::hear(connection, &self.credentials)).await;
        let heard = heard.ok_or(HandshakeError::Displaced)??;
        let answering = handshake::answer(heard, &self.credentials, refuses);
        let session = self.handshakes.hold(answering).await;
        session.ok_or(HandshakeError::Displaced)?
    }
}

/// Who was refused, in the log: as many as come, at most one line in [`REFUSALS_PAUSE`].
#[derive(Default)]
struct Refusals {
    told_at: Cell<Option<Instant>>,
    untold: Cell<u64>,
}

impl Refusals {
    fn tell(&self, peer: &str, error: &HandshakeError) {
        match self.next_line() {
            Some(others) => {
                tracing::warn!(%peer, others, error = %Chain(error), "connection refused");
            }
            None => tracing::debug!(%peer, error = %Chain(error), "connection refused"),
        }
    }

    /// How many others were refused since the last line, when there may be one again.
    fn next_line(&self) -> Option<u64> {
        if self.told_at.get().is_some_and(|told_at| told_at.elapsed() < REFUSALS_PAUSE) {
            self.untold.set(self.untold.get() + 1);
            return None;
        }
        self.told_at.set(Some(Instant::now()));
        Some(self.untold.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn thousands_of_refusals_are_few_lines_that_count_them() {
        let refusals = Refusals::default();
        assert_eq!(refusals.next_line(), Some(0));
        assert!((0..5000).all(|_| refusals.next_line().is_none()));
        tokio::time::advance(REFUSALS_PAUSE).await;
        assert_eq!(refusals.next_line(), Some(5000));
        assert_eq!(refusals.next_line(), None);
    }
}
