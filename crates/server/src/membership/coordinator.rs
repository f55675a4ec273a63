//! What server 0 knows of the others: pure.

use std::collections::BTreeMap;
use std::time::Duration;

use hayase_layout::ServerId;
use hayase_wire::PeerIdentity;
use hayase_wire::message::MembersNow;
use tokio::time::Instant;

use crate::limits::{BEAT, SILENCE, STALL, STALL_RESTS, STARTING_MAX, TELL_PAUSE_MAX};

/// Server 0's part of the membership.
#[derive(Debug)]
pub(super) struct Coordinator {
    heard: BTreeMap<ServerId, Heard>,
    /// Between two beats of one that has nothing to say.
    rest: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    /// When it beat last.
    at: Instant,
    start_id: Option<u64>,
    took: u64,
    /// Since when there is no connection of it; `None` while there is one.
    ended: Option<Instant>,
    /// Since when it says that it is starting.
    starting: Option<Instant>,
    told: Told,
}

/// What a server was told and took, and when it is told what came since.
#[derive(Clone, Copy, Debug)]
struct Told {
    news: News,
    at: Instant,
    /// Until the next time, if it does not take it.
    pause: Duration,
}

impl Told {
    fn nothing(now: Instant) -> Self {
        Self { news: News::default(), at: now, pause: BEAT }
    }
}

/// Which version of what there is to tell: epoch and release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    epoch: u64,
    released: u64,
}

impl From<&MembersNow> for News {
    fn from(members: &MembersNow) -> Self {
        Self { epoch: members.epoch, released: members.released }
    }
}

impl Heard {
    fn silent(&self, now: Instant) -> Option<Duration> {
        self.ended.map(|ended| now.duration_since(ended))
    }
}

impl Coordinator {
    /// Everybody counts as heard of just now; who must be somewhere is to connect.
    pub(super) fn new(
        servers: u16,
        known: &[(ServerId, u64)],
        rest: Duration,
        now: Instant,
    ) -> Self {
        let heard = |server| {
            let start_id = known.iter().find(|(known, _)| *known == server).map(|(_, id)| *id);
            let told = Told::nothing(now);
            (server, Heard { at: now, start_id, took: 0, ended: Some(now), starting: None, told })
        };
        Self { heard: (1..servers).map(ServerId).map(heard).collect(), rest }
    }

    /// A server beats. True when that changes who is lost: another incarnation of a lost one is back.
    pub(super) fn beat(
        &mut self,
        members: &mut MembersNow,
        from: PeerIdentity,
        took: u64,
        now: Instant,
    ) -> bool {
        if members.is_lost(from.server, from.start_id) {
            return false; // It is told so.
        }
        let before = self.heard.get(&from.server);
        let before = before.filter(|heard| heard.start_id == Some(from.start_id));
        // It hears now, whatever it did not hear before.
        let news = before.map(|heard| heard.told.news).unwrap_or_default();
        // A beat may come after one that was sent later: what was taken stays taken.
        let took = before.map_or(took, |heard| heard.took.max(took));
        let told = Told { news, ..Told::nothing(now) };
        let (start_id, ended, starting) = (Some(from.start_id), None, None);
        let heard = Heard { at: now, start_id, took, ended, starting, told };
        self.heard.insert(from.server, heard);
        let is_back = members.is_back(from.server);
        members.epoch += u64::from(is_back);
        is_back
    }

    /// The connection of an incarnation has ended; nothing was heard of it since then.
    pub(super) fn ended(&mut self, from: PeerIdentity, since: Instant) {
        if let Some(heard) = self.heard.get_mut(&from.server)
            && heard.start_id == Some(from.start_id)
        {
            heard.ended.get_or_insert(since);
        }
    }

    /// A server says that it is starting: until now it is not missed. False when it has said so for [`STARTING_MAX`].
    pub(super) fn starts(&mut self, server: ServerId, now: Instant) -> bool {
        let Some(heard) = self.heard.get_mut(&server) else { return false };
        let since = *heard.starting.get_or_insert(now);
        let is_in_time = now.duration_since(since) < STARTING_MAX;
        if is_in_time {
            (heard.at, heard.ended) = (now, heard.ended.map(|_| now));
        }
        is_in_time
    }

    /// Whether a server has a connection here.
    pub(super) fn hears(&self, server: ServerId) -> bool {
        let heard = self.heard.get(&server);
        heard.is_some_and(|heard| heard.start_id.is_some() && heard.ended.is_none())
    }

    /// It was this server that was silent: what the others sent meanwhile waits in its sockets.
    pub(super) fn slept(&mut self, now: Instant) {
        for heard in self.heard.values_mut() {
            heard.at = now;
            heard.ended = heard.ended.map(|_| now);
        }
    }

    /// Who has been silent for too long, and whether for so long that it does not matter why.
    pub(super) fn silent(&self, members: &MembersNow, now: Instant) -> Vec<(ServerId, bool)> {
        self.watched(members)
            .map(|(server, heard)| {
                let has_stalled = now.duration_since(heard.at) >= self.stall();
                (server, heard.silent(now).is_some_and(|silent| silent >= SILENCE), has_stalled)
            })
            .filter(|(_, is_silent, has_stalled)| *is_silent || *has_stalled)
            .map(|(server, _, has_stalled)| (server, has_stalled))
            .collect()
    }

    /// How long until somebody may have been silent for too long; soon enough to see that we slept
    /// ourselves.
    pub(super) fn next_look(&self, members: &MembersNow, now: Instant) -> Duration {
        let due = self.watched(members).map(|(_, heard)| {
            let ended = heard.ended.map(|ended| ended + SILENCE);
            let due = ended.unwrap_or(heard.at + self.stall()).saturating_duration_since(now);
            // Was looked at: it runs and does not beat.
            if due.is_zero() { BEAT } else { due }
        });
        let longest = self.longest_look();
        due.min().unwrap_or(longest).min(longest)
    }

    /// A bit longer than between two beats: while these come, nobody has to look.
    pub(super) fn longest_look(&self) -> Duration {
        self.rest + BEAT
    }

    /// Declares these lost; false when there is nobody to declare.
    pub(super) fn declare(&self, members: &mut MembersNow, silent: &[ServerId]) -> bool {
        let start_id = |server: &ServerId| Some((*server, self.heard.get(server)?.start_id?));
        let lost: Vec<_> = silent.iter().filter_map(start_id).collect();
        members.epoch += u64::from(!lost.is_empty());
        members.lost.extend(&lost);
        !lost.is_empty()
    }

    /// The epoch that every living server has taken.
    pub(super) fn taken_by_all(&self, members: &MembersNow) -> u64 {
        let living = self.heard.iter().filter(|(server, _)| !members.is_server_lost(**server));
        living.map(|(_, heard)| heard.took).min().unwrap_or(members.epoch).min(members.epoch)
    }

    /// Living servers that have not taken the latest, and are due to be told.
    pub(super) fn to_tell(&self, members: &MembersNow, now: Instant) -> Vec<ServerId> {
        let due = self.untold(members).filter(|(_, told)| told.at <= now);
        due.map(|(server, _)| server).collect()
    }

    /// How long until somebody is due to be told; `None` when all living have taken the latest.
    pub(super) fn next_telling(&self, members: &MembersNow, now: Instant) -> Option<Duration> {
        let next = self.untold(members).map(|(_, told)| told.at).min()?;
        Some(next.saturating_duration_since(now))
    }

    fn untold(&self, members: &MembersNow) -> impl Iterator<Item = (ServerId, Told)> {
        let news = News::from(members);
        let living = self.heard.iter().filter(|(server, _)| !members.is_server_lost(**server));
        living.map(|(server, heard)| (*server, heard.told)).filter(move |(_, t)| t.news != news)
    }

    /// A server was told and has taken it.
    pub(super) fn took(&mut self, server: ServerId, news: News, now: Instant) {
        if let Some(heard) = self.heard.get_mut(&server) {
            heard.took = heard.took.max(news.epoch);
            heard.told = Told { news, ..Told::nothing(now) };
        }
    }

    /// A server was told and did not answer.
    pub(super) fn did_not_take(&mut self, server: ServerId, now: Instant) {
        if let Some(heard) = self.heard.get_mut(&server) {
            let told = &mut heard.told;
            told.at = now + told.pause;
            told.pause = (told.pause * 2).min(TELL_PAUSE_MAX);
        }
    }

    /// Living servers that were started.
    fn watched(&self, members: &MembersNow) -> impl Iterator<Item = (ServerId, &Heard)> {
        let living = self.heard.iter().filter(|(server, _)| !members.is_server_lost(**server));
        living.filter(|(_, heard)| heard.start_id.is_some()).map(|(server, heard)| (*server, heard))
    }

    /// Silence of one that is connected, after which it does not matter why.
    fn stall(&self) -> Duration {
        STALL.max(STALL_RESTS * self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_secs(5);

    fn peer(server: u16, start_id: u64) -> PeerIdentity {
        PeerIdentity { server: ServerId(server), start_id }
    }

    /// Of three servers, both others connected.
    fn three(begin: Instant) -> (Coordinator, MembersNow) {
        let mut coordinator = Coordinator::new(3, &[], REST, begin);
        let mut members = MembersNow::default();
        for server in [1, 2] {
            assert!(!coordinator.beat(&mut members, peer(server, 7), 0, begin));
        }
        (coordinator, members)
    }

    #[test]
    fn who_is_gone_is_declared_and_comes_back_as_another() {
        let begin = Instant::now();
        let (mut coordinator, mut members) = three(begin);
        assert!(coordinator.silent(&members, begin + REST).is_empty(), "they are connected");
        coordinator.ended(peer(1, 7), begin);
        coordinator.ended(peer(2, 6), begin); // An earlier life.
        coordinator.ended(peer(1, 7), begin + SILENCE / 2); // Its other connection.
        let late = begin + SILENCE;
        assert!(coordinator.silent(&members, begin + SILENCE / 2).is_empty());
        assert_eq!(coordinator.silent(&members, late), [(ServerId(1), false)]);
        assert!(coordinator.declare(&mut members, &[ServerId(1)]));
        assert_eq!((members.epoch, &members.lost[..]), (1, &[(ServerId(1), 7)][..]));
        assert!(coordinator.silent(&members, late).is_empty(), "it is said once");
        assert!(!coordinator.declare(&mut members, &[]));

        assert_eq!(coordinator.taken_by_all(&members), 0, "2 has not taken it");
        coordinator.beat(&mut members, peer(2, 7), 1, late);
        assert_eq!(coordinator.taken_by_all(&members), 1);
        coordinator.beat(&mut members, peer(2, 7), 0, late);
        assert_eq!(coordinator.taken_by_all(&members), 1, "an earlier beat that came late");

        assert!(!coordinator.beat(&mut members, peer(1, 7), 0, late), "the lost one is lost");
        assert!(members.is_lost(ServerId(1), 7));
        assert!(coordinator.beat(&mut members, peer(1, 8), 0, late), "another one is back");
        assert_eq!((members.epoch, members.lost.len()), (2, 0));
        assert_eq!((members.loss_of(ServerId(1)), members.loss_of(ServerId(2))), (Some(7), None));
    }

    #[test]
    fn who_connects_again_lives_and_who_is_connected_and_silent_is_lost_in_the_end() {
        let begin = Instant::now();
        let (mut coordinator, mut members) = three(begin);
        coordinator.ended(peer(1, 7), begin);
        coordinator.beat(&mut members, peer(1, 7), 0, begin + SILENCE / 2);
        assert!(coordinator.silent(&members, begin + SILENCE).is_empty());
        let stalled = begin + STALL;
        assert_eq!(coordinator.silent(&members, stalled), [(ServerId(2), true)]);
        let both = [(ServerId(1), true), (ServerId(2), true)];
        assert_eq!(coordinator.silent(&members, stalled + SILENCE), both);
    }

    #[test]
    fn who_says_that_it_is_starting_is_not_missed_for_a_while() {
        let begin = Instant::now();
        let (mut coordinator, mut members) = three(begin);
        assert!(coordinator.hears(ServerId(1)));
        coordinator.ended(peer(1, 7), begin);
        assert!(!coordinator.hears(ServerId(1)));
        let mut now = begin + SILENCE;
        while now < begin + STARTING_MAX {
            assert_eq!(coordinator.silent(&members, now), [(ServerId(1), false)]);
            assert!(coordinator.starts(ServerId(1), now));
            assert!(coordinator.silent(&members, now + SILENCE / 2).is_empty(), "a gap is none");
            coordinator.beat(&mut members, peer(2, 7), 0, now);
            now += SILENCE;
        }
        assert!(!coordinator.starts(ServerId(1), now + SILENCE));
        coordinator.beat(&mut members, peer(1, 8), 0, now);
        coordinator.ended(peer(1, 8), now);
        assert!(coordinator.starts(ServerId(1), now), "another start");
    }

    #[test]
    fn in_a_large_job_silence_is_longer() {
        let begin = Instant::now();
        let mut coordinator = Coordinator::new(3, &[], 10 * REST, begin);
        let mut members = MembersNow::default();
        coordinator.beat(&mut members, peer(1, 7), 0, begin);
        assert!(coordinator.silent(&members, begin + STALL).is_empty(), "it was to rest");
        let stalled = begin + STALL_RESTS * 10 * REST;
        assert_eq!(coordinator.silent(&members, stalled), [(ServerId(1), true)]);
    }

    #[test]
    fn the_next_look_is_when_somebody_is_due() {
        let begin = Instant::now();
        let (mut coordinator, members) = three(begin);
        let looks = |coordinator: &Coordinator, after: Duration| {
            coordinator.next_look(&members, begin + after)
        };
        assert_eq!(looks(&coordinator, Duration::ZERO), REST + BEAT, "all are connected");
        coordinator.ended(peer(1, 7), begin);
        assert_eq!(looks(&coordinator, SILENCE / 4), SILENCE * 3 / 4);
        assert_eq!(looks(&coordinator, SILENCE), BEAT, "it is there and does not beat");
        coordinator.ended(peer(2, 7), begin + SILENCE / 2);
        assert_eq!(looks(&coordinator, SILENCE + SILENCE / 4), SILENCE / 4);
    }

    #[test]
    fn who_does_not_take_the_news_is_told_again_later_and_later_and_nobody_else_is() {
        let begin = Instant::now();
        let (mut coordinator, mut members) = three(begin);
        assert_eq!(coordinator.next_telling(&members, begin), None, "there is no news");
        (members.epoch, members.released) = (1, 0);
        assert_eq!(coordinator.to_tell(&members, begin), [ServerId(1), ServerId(2)]);
        coordinator.took(ServerId(1), News::from(&members), begin);
        let (mut at, mut pause) = (begin, BEAT);
        for _ in 0..8 {
            assert_eq!(coordinator.to_tell(&members, at), [ServerId(2)]);
            coordinator.did_not_take(ServerId(2), at);
            assert!(coordinator.to_tell(&members, at).is_empty());
            assert_eq!(coordinator.next_telling(&members, at), Some(pause));
            at += pause;
            pause = (pause * 2).min(TELL_PAUSE_MAX);
        }
        assert_eq!(pause, TELL_PAUSE_MAX);
        coordinator.did_not_take(ServerId(2), at);
        members.released = 1;
        assert_eq!(coordinator.to_tell(&members, at), [ServerId(1)], "news for who takes it");
        coordinator.beat(&mut members, peer(2, 7), 0, at);
        let both = [ServerId(1), ServerId(2)];
        assert_eq!(coordinator.to_tell(&members, at), both, "who beats hears");
        for server in both {
            coordinator.took(server, News::from(&members), at);
        }
        assert_eq!(coordinator.next_telling(&members, at), None);
        coordinator.beat(&mut members, peer(2, 7), 1, at);
        assert_eq!(coordinator.next_telling(&members, at), None, "it has taken it");
        coordinator.beat(&mut members, peer(2, 8), 0, at);
        assert_eq!(coordinator.to_tell(&members, at), [ServerId(2)], "another one knows nothing");
        members.lost.push((ServerId(2), 8));
        assert_eq!(coordinator.next_telling(&members, at), None, "who is lost is told nothing");
    }

    #[test]
    fn who_was_never_heard_is_declared_only_after_a_restart() {
        let begin = Instant::now();
        for (known, expected) in [(&[][..], false), (&[(ServerId(1), 7)][..], true)] {
            let members = MembersNow::default();
            let coordinator = Coordinator::new(2, known, REST, begin);
            assert!(coordinator.silent(&members, begin + SILENCE / 2).is_empty());
            assert_eq!(!coordinator.silent(&members, begin + SILENCE).is_empty(), expected);
        }
    }

    #[test]
    fn who_slept_itself_declares_nobody() {
        let begin = Instant::now();
        let (mut coordinator, members) = three(begin);
        coordinator.ended(peer(1, 7), begin);
        let woken = begin + 10 * STALL;
        coordinator.slept(woken);
        assert!(coordinator.silent(&members, woken + SILENCE / 2).is_empty());
        assert_eq!(coordinator.silent(&members, woken + SILENCE), [(ServerId(1), false)]);
    }
}
