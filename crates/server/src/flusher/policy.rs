//! What is flushed next: the oldest complete file, as many at once as there may be.
//!
//! Pure: no clock, no files. A file is complete since its last writer closed it; one that failed waits
//! for its time. One that was begun and could not go stands behind those that were not begun since: or a few that
//! wait for another file would take all streams again and again, and the one that they wait for would never go.
//! While the server is busy for the job, one stream goes on, so that it always moves;
//! when it is idle, or the job's time is over, all of them do (LLIO flushes while its servers are idle; this
//! keeps a floor).

use std::time::Duration;

use hayase_layout::InodeId;

/// One file that is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) ino: InodeId,
    /// For how long nobody has had it open for writing; `None` while somebody has.
    pub(crate) complete_for: Option<Duration>,
    /// How long ago it was begun and could not go: it waits for something else, and did not fail.
    pub(crate) in_vain_for: Option<Duration>,
    /// It stays open: after this it has waited long enough for its close, and goes as it stands. `None` when it waits
    /// for its close however long that takes.
    pub(crate) due_in: Option<Duration>,
    /// It failed, and is not to be tried before this has passed.
    pub(crate) retry_in: Duration,
}

impl Candidate {
    fn is_due(&self) -> bool {
        self.due_in.is_some_and(|wait| wait.is_zero())
    }

    /// For how long it has stood in line; `None` while somebody has it open.
    fn waits_for(&self) -> Option<Duration> {
        self.complete_for.map(|wait| self.in_vain_for.map_or(wait, |vain| vain.min(wait)))
    }
}

/// How things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Situation {
    /// Files under way.
    pub(crate) running: usize,
    /// Most of them at once on this node.
    pub(crate) streams: usize,
    /// The server has other things to do.
    pub(crate) is_busy: bool,
    /// The job's time is over: files that are still open go as they stand.
    pub(crate) is_late: bool,
}

/// Streams of one node so that the job's do not pass `job_streams` much; at least one.
pub(crate) fn streams_of_node(node_max: usize, job_streams: usize, nodes: u16) -> usize {
    (job_streams / usize::from(nodes.max(1))).clamp(1, node_max)
}

/// Which files begin now, in this order. O(n log n).
pub(crate) fn choose(mut candidates: Vec<Candidate>, now: Situation) -> Vec<InodeId> {
    // At the end what is here counts, not who has to wait for it.
    let most = if now.is_busy && !now.is_late { 1 } else { now.streams };
    let free = most.saturating_sub(now.running);
    candidates.retain(|file| {
        file.retry_in.is_zero() && (file.complete_for.is_some() || file.is_due() || now.is_late)
    });
    // The longest complete first, those still open last.
    candidates.sort_by_key(|file| (std::cmp::Reverse(file.waits_for()), file.ino));
    candidates.into_iter().take(free).map(|file| file.ino).collect()
}

/// How long nothing can begin, unless somebody closes or changes something; `None` when that alone counts. `late_in`:
/// when the job's time will be over.
pub(crate) fn next(candidates: &[Candidate], late_in: Option<Duration>) -> Option<Duration> {
    let of = |file: &Candidate| {
        let ready_in = match file.complete_for {
            Some(_) => Some(Duration::ZERO),
            None => file.due_in.into_iter().chain(late_in).min(),
        };
        ready_in.map(|wait| wait.max(file.retry_in))
    };
    candidates.iter().filter_map(of).min()
}

/// How long a file waits after that many failures in a row: doubling from `first`, at most `most`.
pub(crate) fn backoff(attempts: u32, first: Duration, most: Duration) -> Duration {
    first.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(ino: u64, complete: Option<u64>, retry: u64) -> Candidate {
        Candidate {
            ino: InodeId(ino),
            complete_for: complete.map(Duration::from_millis),
            in_vain_for: None,
            due_in: None,
            retry_in: Duration::from_millis(retry),
        }
    }

    const IDLE: Situation = Situation { running: 0, streams: 2, is_busy: false, is_late: false };

    fn check(now: Situation, expected: &[u64]) {
        let files =
            vec![file(1, Some(5), 0), file(2, None, 0), file(3, Some(90), 0), file(4, Some(99), 7)];
        let chosen: Vec<u64> = choose(files, now).iter().map(|ino| ino.0).collect();
        assert_eq!(chosen, expected, "{now:?}");
    }

    #[test]
    fn the_oldest_complete_file_is_first() {
        check(IDLE, &[3, 1]);
        check(Situation { running: 1, ..IDLE }, &[3]);
        check(Situation { running: 2, ..IDLE }, &[]);
        check(Situation { is_busy: true, ..IDLE }, &[3]);
        check(Situation { is_busy: true, running: 1, ..IDLE }, &[]);
        check(Situation { is_late: true, streams: 9, ..IDLE }, &[3, 1, 2]);
        check(Situation { is_late: true, is_busy: true, streams: 9, ..IDLE }, &[3, 1, 2]);
    }

    /// As many as there are streams, and all older than the file that they wait for.
    #[test]
    fn who_waits_for_another_file_does_not_keep_it_from_its_turn() {
        let in_vain = |ino, wait| Candidate {
            in_vain_for: Some(Duration::from_millis(1)),
            ..file(ino, Some(wait), 0)
        };
        let files = vec![in_vain(1, 90), in_vain(2, 80), file(3, Some(7), 0)];
        assert_eq!(choose(files, IDLE), [InodeId(3), InodeId(1)]);
    }

    #[test]
    fn a_file_that_stays_open_goes_when_it_is_due_after_those_that_are_complete() {
        let due = |ino| Candidate { due_in: Some(Duration::ZERO), ..file(ino, None, 0) };
        let files = vec![due(1), file(2, Some(1), 0), file(3, None, 0)];
        assert_eq!(choose(files, Situation { streams: 9, ..IDLE }), [InodeId(2), InodeId(1)]);
    }

    #[test]
    fn the_next_file_is_the_one_whose_time_comes_first() {
        let check = |files: &[Candidate], late_in: Option<u64>, expected: Option<u64>| {
            let found = next(files, late_in.map(Duration::from_millis));
            assert_eq!(found, expected.map(Duration::from_millis), "{files:?}");
        };
        let due =
            |ino, ms| Candidate { due_in: Some(Duration::from_millis(ms)), ..file(ino, None, 0) };
        check(&[], Some(5), None);
        check(&[file(1, None, 0)], None, None); // its close is told
        check(&[file(1, None, 0)], Some(70), Some(70));
        check(&[file(1, Some(3), 0), due(2, 9)], None, Some(0));
        check(&[file(1, Some(3), 40), due(2, 90)], None, Some(40));
        check(&[Candidate { retry_in: Duration::from_millis(95), ..due(2, 90) }], None, Some(95));
        check(&[due(2, 90)], Some(60), Some(60));
    }

    #[test]
    fn failures_wait_longer_and_longer_but_not_for_ever() {
        let wait = |attempts| backoff(attempts, Duration::from_secs(1), Duration::from_secs(60));
        let waits = [0, 1, 2, 3, 7, 40].map(|attempts| wait(attempts).as_secs());
        assert_eq!(waits, [1, 1, 2, 4, 60, 60]);
    }

    #[test]
    fn a_large_job_does_not_storm_the_tier() {
        for (nodes, expected) in [(1, 4), (16, 4), (64, 4), (128, 2), (1000, 1), (0, 4)] {
            assert_eq!(streams_of_node(4, 256, nodes), expected, "{nodes} nodes");
        }
    }

    proptest! {
        /// What is not begun is begun at `next` at the latest, if nothing is under way.
        #[test]
        fn nobody_is_slept_over(
            files in proptest::collection::vec(
                (proptest::option::of(0..9u64), 0..9u64, proptest::option::of(0..9u64)), 0..9),
        ) {
            let files: Vec<_> = files.into_iter().enumerate().map(|(ino, (complete, retry, due))| {
                let due_in = due.map(Duration::from_millis);
                Candidate { due_in, ..file(ino as u64, complete, retry) }
            }).collect();
            let after = |wait: Duration| files.iter().map(|file| Candidate {
                due_in: file.due_in.map(|due| due.saturating_sub(wait)),
                retry_in: file.retry_in.saturating_sub(wait),
                ..*file
            }).collect::<Vec<_>>();
            let first = (0..10).map(Duration::from_millis).find(|wait| !choose(after(*wait), IDLE).is_empty());
            prop_assert_eq!(next(&files, None), first);
        }

        /// Whatever is begun in vain each time, and however old it is: all have their turn.
        #[test]
        fn everybody_is_begun_in_time(
            complete in proptest::collection::vec(0..50u64, 1..20), streams in 1..5usize,
        ) {
            let rounds = complete.len().div_ceil(streams) as u64;
            let mut begun = vec![None; complete.len()];
            for round in 0..rounds {
                let ms = Duration::from_millis;
                let files = complete.iter().zip(0..).map(|(complete, ino)| Candidate {
                    in_vain_for: begun[ino].map(|at| ms(round - at)),
                    ..file(ino as u64, Some(complete + rounds + round), 0)
                });
                for chosen in choose(files.collect(), Situation { streams, ..IDLE }) {
                    begun[chosen.0 as usize] = Some(round);
                }
            }
            prop_assert!(begun.iter().all(Option::is_some), "{:?}", begun);
        }

        /// Never more than allowed; no file waits that is older than one that goes; and as long as one
        /// may go and none is under way, one goes.
        #[test]
        fn nobody_starves(
            files in proptest::collection::vec((proptest::option::of(0..100u64), 0..3u64), 0..20),
            running in 0..4usize, streams in 1..5usize, is_busy: bool, is_late: bool,
        ) {
            let files: Vec<_> = files.into_iter().enumerate()
                .map(|(ino, (complete, retry))| file(ino as u64, complete, retry)).collect();
            let now = Situation { running, streams, is_busy, is_late };
            let chosen = choose(files.clone(), now);
            prop_assert!(chosen.is_empty() || running + chosen.len() <= streams);
            let may = |file: &&Candidate| {
                file.retry_in.is_zero() && (is_late || file.complete_for.is_some())
            };
            prop_assert!(running > 0 || !chosen.is_empty() || files.iter().find(may).is_none());
            let went = |file: &Candidate| chosen.contains(&file.ino);
            for left in files.iter().filter(may).filter(|file| !went(file)) {
                for gone in files.iter().filter(|file| went(file)) {
                    prop_assert!(gone.complete_for >= left.complete_for);
                }
            }
        }
    }
}
