//! What server 0 knows of the others, and whom it watches: pure.

use std::collections::BTreeMap;
use std::time::Duration;

use hayase_layout::ServerId;
use hayase_wire::PeerIdentity;
use hayase_wire::message::MembersNow;
use tokio::time::Instant;

use crate::limits::{STALL, SUSPICION, WATCH};

/// Server 0's part of the membership.
#[derive(Debug)]
pub(crate) struct Coordinator {
    known: BTreeMap<ServerId, Known>,
    /// Servers that somebody does not hear, since when that is so here too.
    watched: BTreeMap<ServerId, Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    start_id: Option<u64>,
    took: u64,
}

impl Coordinator {
    /// `known`: incarnations that must be somewhere, even if they are never heard; they are watched
    /// until they are.
    pub(crate) fn new(servers: u16, known: &[(ServerId, u64)], now: Instant) -> Self {
        let start_id = |server| known.iter().find(|(known, _)| *known == server).map(|(_, id)| *id);
        let others = || (1..servers).map(ServerId);
        Self {
            known: others().map(|s| (s, Known { start_id: start_id(s), took: 0 })).collect(),
            watched: others().filter(|s| start_id(*s).is_some()).map(|s| (s, now)).collect(),
        }
    }

    /// A server beats. True when that changes who is lost: another incarnation of a lost one is back.
    pub(crate) fn beat(&mut self, members: &mut MembersNow, from: PeerIdentity, took: u64) -> bool {
        if members.is_lost(from.server, from.start_id) {
            return false; // It is told so.
        }
        self.known.insert(from.server, Known { start_id: Some(from.start_id), took });
        self.watched.remove(&from.server);
        let before = members.lost.len();
        members.lost.retain(|(server, _)| *server != from.server);
        let is_back = members.lost.len() < before;
        members.epoch += u64::from(is_back);
        is_back
    }

    /// Somebody does not hear `server`, for [`SUSPICION`] by now.
    pub(crate) fn suspect(&mut self, members: &MembersNow, server: ServerId, now: Instant) {
        if self.known.contains_key(&server) && !members.is_server_lost(server) {
            let since = now.checked_sub(SUSPICION).unwrap_or(now);
            self.watched.entry(server).or_insert(since);
        }
    }

    /// It answers this server.
    pub(crate) fn answered(&mut self, server: ServerId) {
        self.watched.remove(&server);
    }

    pub(crate) fn watched(&self) -> Vec<ServerId> {
        self.watched.keys().copied().collect()
    }

    /// This server was silent itself: answers wait in its sockets.
    pub(crate) fn slept(&mut self, now: Instant) {
        self.watched.values_mut().for_each(|since| *since = now);
    }

    /// Who has been silent for too long, and whether for so long that it does not matter why.
    pub(crate) fn silent(&self, members: &MembersNow, now: Instant) -> Vec<(ServerId, bool)> {
        let has_been = |server: &ServerId| {
            !members.is_server_lost(*server)
                && self.known.get(server).is_some_and(|known| known.start_id.is_some())
        };
        self.watched
            .iter()
            .filter(|(server, _)| has_been(server))
            .map(|(server, since)| (*server, now.duration_since(*since)))
            .filter(|(_, silent)| *silent >= WATCH)
            .map(|(server, silent)| (server, silent >= STALL))
            .collect()
    }

    /// How long until somebody who is watched may have been silent for too long.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Duration> {
        let due = self.watched.values().map(|since| (*since + WATCH).duration_since(now));
        // Who was looked at and only stalls is looked at again later.
        due.filter(|left| !left.is_zero()).min()
    }

    /// Declares these lost; false when there is nobody to declare.
    pub(crate) fn declare(&mut self, members: &mut MembersNow, silent: &[ServerId]) -> bool {
        let start_id = |server: &ServerId| Some((*server, self.known.get(server)?.start_id?));
        let lost: Vec<_> = silent.iter().filter_map(start_id).collect();
        for (server, _) in &lost {
            self.watched.remove(server);
        }
        members.epoch += u64::from(!lost.is_empty());
        members.lost.extend(&lost);
        !lost.is_empty()
    }

    /// The epoch that every living server has taken.
    pub(crate) fn taken_by_all(&self, members: &MembersNow) -> u64 {
        let living = self.known.iter().filter(|(server, _)| !members.is_server_lost(**server));
        living.map(|(_, known)| known.took).min().unwrap_or(members.epoch).min(members.epoch)
    }

    pub(crate) fn took(&mut self, server: ServerId, epoch: u64) {
        if let Some(known) = self.known.get_mut(&server) {
            known.took = known.took.max(epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(server: u16, start_id: u64) -> PeerIdentity {
        PeerIdentity { server: ServerId(server), start_id }
    }

    #[test]
    fn the_silent_are_declared_and_come_back_as_others() {
        let begin = Instant::now();
        let (mut coordinator, mut members) =
            (Coordinator::new(3, &[], begin), MembersNow::default());
        for server in [1, 2] {
            assert!(!coordinator.beat(&mut members, peer(server, 7), 0));
        }
        assert!(coordinator.silent(&members, begin + 10 * WATCH).is_empty(), "nobody misses them");
        for server in [1, 2, 3] {
            coordinator.suspect(&members, ServerId(server), begin + SUSPICION);
        }
        assert_eq!(coordinator.watched(), [ServerId(1), ServerId(2)], "there is no third");
        coordinator.suspect(&members, ServerId(1), begin + WATCH / 2);
        assert!(coordinator.silent(&members, begin + WATCH / 2).is_empty());
        coordinator.answered(ServerId(2));
        assert_eq!(coordinator.next_due(begin + WATCH / 4), Some(WATCH * 3 / 4));
        assert_eq!(coordinator.next_due(begin + WATCH), None, "it is looked at now");
        assert_eq!(coordinator.silent(&members, begin + WATCH), [(ServerId(1), false)]);
        assert_eq!(coordinator.silent(&members, begin + STALL), [(ServerId(1), true)]);
        assert!(coordinator.declare(&mut members, &[ServerId(1)]));
        assert_eq!((members.epoch, &members.lost[..]), (1, &[(ServerId(1), 7)][..]));
        coordinator.suspect(&members, ServerId(1), begin + SUSPICION);
        assert!(coordinator.silent(&members, begin + STALL).is_empty(), "it is said once");
        assert!(!coordinator.declare(&mut members, &[]));

        assert_eq!(coordinator.taken_by_all(&members), 0, "2 has not taken it");
        coordinator.beat(&mut members, peer(2, 7), 1);
        assert_eq!(coordinator.taken_by_all(&members), 1);

        assert!(!coordinator.beat(&mut members, peer(1, 7), 0), "the lost one is lost");
        assert!(members.is_lost(ServerId(1), 7));
        assert!(coordinator.beat(&mut members, peer(1, 8), 0), "another one is back");
        assert_eq!((members.epoch, members.lost.len()), (2, 0));
    }

    #[test]
    fn who_was_never_heard_is_declared_only_after_a_restart() {
        let begin = Instant::now();
        for (known, expected) in [(&[][..], false), (&[(ServerId(1), 7)][..], true)] {
            let members = MembersNow::default();
            let mut coordinator = Coordinator::new(2, known, begin);
            assert_eq!(!coordinator.watched().is_empty(), expected, "missed from the start");
            coordinator.suspect(&members, ServerId(1), begin + SUSPICION);
            assert!(coordinator.silent(&members, begin + WATCH / 2).is_empty());
            assert_eq!(!coordinator.silent(&members, begin + WATCH).is_empty(), expected);
        }
    }

    #[test]
    fn who_slept_itself_declares_nobody() {
        let begin = Instant::now();
        let (mut coordinator, mut members) =
            (Coordinator::new(2, &[], begin), MembersNow::default());
        coordinator.beat(&mut members, peer(1, 7), 0);
        coordinator.suspect(&members, ServerId(1), begin + SUSPICION);
        let woken = begin + 10 * WATCH;
        coordinator.slept(woken);
        assert!(coordinator.silent(&members, woken + WATCH / 2).is_empty());
        assert_eq!(coordinator.silent(&members, woken + WATCH), [(ServerId(1), false)]);
    }
}
