//! Every duration of the protocol that is ordered against one of another process or node, and what orders them.
//!
//! Here: the values, and for each order that the protocol relies on an assertion with its reason: a value that breaks one
//! does not compile. The protocol is described in `docs/design/001-coherence.md`.
//! Not here: pauses, patience and delays that only one process knows ([`crate::deadline`], `limits.rs` of `hayase_server`,
//! `hayase_client` and `hayase_fuse`), and counts and bytes.

use std::time::Duration;

/// Whether each of these is shorter than the next one.
const fn ascending(times: &[Duration]) -> bool {
    let mut next = 1;
    while next < times.len() {
        if times[next - 1].as_nanos() >= times[next].as_nanos() {
            return false;
        }
        next += 1;
    }
    true
}

const fn sum(one: Duration, other: Duration) -> Duration {
    one.saturating_add(other)
}

// Connections

/// For one address of a peer to accept.
pub const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// From the first byte of a handshake to the last.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(2);

/// A relay that did not reach a server is not asked for that server again within this time.
pub const RELAY_PAUSE: Duration = Duration::from_secs(1);

/// Between two pings while calls are unanswered.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// A peer that owes answers and is silent for this time is dead.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);
const _: () =
    assert!(ascending(&[HEARTBEAT, SILENCE_MAX]), "a live peer is pinged before it counts as dead");

/// A peer that stops in the middle of a frame, sending or receiving, is dead after this time.
pub const STALL_MAX: Duration = Duration::from_secs(10);

/// User timeout of TCP: bytes in flight that no kernel acknowledges for this time mean that the link was cut.
pub const LINK_LOSS_WAIT: Duration = Duration::from_secs(10);

/// A server whose kernel does not answer is gone after this time, without a wake-up of either process while it does: of the
/// connections of the coordinator alone, and of those only the ones whose frames carry no payload. The others may wait
/// longer for a peer that takes nothing because its disk is slow.
pub const PEER_LOSS_WAIT: Duration = Duration::from_secs(2);

// Requests between servers

/// How long a request to another server may take before its caller gets EIO.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// The same for a request that waits for recalls on third nodes.
pub const OPEN_DEADLINE: Duration = Duration::from_secs(10);

/// The same for one that waits for disks or for the tier, for example fsync(2).
pub const SYNC_DEADLINE: Duration = Duration::from_secs(60);

/// A node that does not answer a recall within this time has lost its session.
pub const RECALL_DEADLINE: Duration = Duration::from_secs(3);
const _: () = assert!(
    ascending(&[RECALL_DEADLINE, CALL_DEADLINE, OPEN_DEADLINE, SYNC_DEADLINE]),
    "a request that waits for a recall is answered before its caller gives up; one that waits for more has more time"
);
const _: () = assert!(
    RELAY_PAUSE.as_millis() * 3 < CALL_DEADLINE.as_millis(),
    "a call outlives the memory of a refusal: a server that is back is asked again after a pause and a try of its addresses"
);
const _: () = assert!(
    ascending(&[sum(CONNECT_WAIT, HANDSHAKE_WAIT), CALL_DEADLINE]),
    "a relay says whether it reached a server before the call that needs it ends"
);

/// A mount whose gathered bytes are in flight is asked again after this time whether they have arrived.
pub const RECALL_AGAIN: Duration = Duration::from_millis(20);
const _: () = assert!(
    ascending(&[RECALL_AGAIN, RECALL_DEADLINE]),
    "a gatherer is asked again before it is unresponsive"
);

/// Longest wait for a fetch or a flush within one message.
pub const FETCH_WAIT: Duration = Duration::from_secs(2);

/// The same for the end of the work on a recorded file that becomes a whole one.
pub const FLATTEN_WAIT: Duration = Duration::from_secs(2);
const _: () = assert!(
    ascending(&[FETCH_WAIT, CALL_DEADLINE]) && ascending(&[FLATTEN_WAIT, CALL_DEADLINE]),
    "a message that waits for a part of long work is answered before its caller gives up"
);

/// A write into an open file waits for room for this time at most.
pub const WRITE_WAIT: Duration = Duration::from_secs(20);
const _: () =
    assert!(ascending(&[WRITE_WAIT, SYNC_DEADLINE]), "a write gets ENOSPC before its own deadline");

/// Operations that hold names of a directory end within this time, or its names are not spread now.
pub const SPREAD_WAIT: Duration = Duration::from_millis(200);

/// The shards have taken their names within this time, or the names stay.
pub const HAND_OVER_WAIT: Duration = Duration::from_secs(2);
const _: () = assert!(
    ascending(&[sum(SPREAD_WAIT, HAND_OVER_WAIT), CALL_DEADLINE]),
    "requests that are kept from names that are being spread are served before their callers give up"
);

// Processes and their server

/// How long a process waits for an answer of its node's server.
pub const CALL_WAIT: Duration = Duration::from_secs(150);
const _: () = assert!(
    ascending(&[SYNC_DEADLINE, CALL_WAIT]),
    "the server answers, if only EIO, before its process takes it for gone"
);

/// How long a process waits for its server that ended: it is restarted. Then calls end with EIO.
pub const RESTART_WAIT: Duration = Duration::from_secs(15);

/// How long the answer to a recall may wait until gathered bytes are sent, and how long they are sent again when a mount ends.
pub const GATHER_RECALL_WAIT: Duration = Duration::from_secs(2);
const _: () = assert!(
    ascending(&[GATHER_RECALL_WAIT, RECALL_DEADLINE]),
    "a gatherer sends its window before it is unresponsive"
);

// Heartbeats and lost nodes

/// Between two heartbeats to server 0 while something is not settled.
pub const BEAT: Duration = Duration::from_secs(1);

/// The same while nothing happens: at least this, and [`REST_OF_EACH`] for each server of the job, so that server 0 gets
/// 33 heartbeats a second at most. Their connections show earlier which server is gone.
pub const REST: Duration = Duration::from_secs(5);
/// See [`REST`].
pub const REST_OF_EACH: Duration = Duration::from_millis(30);

/// For server 0 to answer a heartbeat, or for others to take what it declares.
pub const BEAT_DEADLINE: Duration = Duration::from_secs(1);

/// A server whose connection to server 0 ended, and that sent no heartbeat over another one for this time, is declared
/// lost, unless it proves that it runs.
pub const SILENCE: Duration = Duration::from_millis(2200);
const _: () = assert!(
    ascending(&[BEAT, SILENCE]),
    "a server that reconnects has sent a heartbeat before it is lost"
);
const _: () = assert!(
    ascending(&[PEER_LOSS_WAIT, SILENCE]),
    "a machine that is gone ends its connections before its server is declared lost"
);

/// A server that is connected, or answers a handshake, may only be slow: it is declared lost when it sent no heartbeat for
/// this many pauses between them, and at least for [`STALL`]. So 20 s after its last heartbeat, or, in a job of more than
/// 166 servers, 0.12 s for each of them.
pub const STALL_RESTS: u32 = 4;
/// See [`STALL_RESTS`].
pub const STALL: Duration = Duration::from_secs(20);
const _: () = assert!(
    STALL.as_millis() == STALL_RESTS as u128 * REST.as_millis(),
    "the least time is that of a small job: four pauses"
);
const _: () =
    assert!(STALL_RESTS as u128 * REST_OF_EACH.as_millis() == 120, "the manuals say 0.12 s");

/// A server that opens its storage for longer than this no longer counts as starting. Requests to it wait meanwhile.
pub const STARTING_MAX: Duration = Duration::from_secs(60);
const _: () = assert!(
    ascending(&[sum(STARTING_MAX, sum(OPEN_DEADLINE, SYNC_DEADLINE)), CALL_WAIT]),
    "a process waits for longer than its server does for a home that starts, is met, and then waits for its disk: a slot of \
     the process's memory is in use until the server has answered"
);

/// A server that cannot be connected to for this time gets no more time from calls that allow more.
pub const UNREACHABLE: Duration = Duration::from_secs(8);
const _: () = assert!(
    ascending(&[SILENCE, UNREACHABLE]),
    "longer than a restart takes: a server that is not back by then is lost"
);

/// Between two looks of a node at the homes that it uses.
pub const LOOK: Duration = Duration::from_millis(500);

/// A home that was silent for this time may declare this node's session lost soon: nothing that it granted is used any more.
pub const HOME_SILENCE: Duration = Duration::from_secs(2);
const _: () = assert!(
    ascending(&[LOOK, HOME_SILENCE]),
    "a home is asked several times before it counts as silent"
);
const _: () = assert!(
    ascending(&[HOME_SILENCE, SILENCE]),
    "a node that is cut off begins to give back before server 0 may declare it lost"
);
const _: () = assert!(
    ascending(&[sum(HOME_SILENCE, LOOK), RECALL_DEADLINE]),
    "a node that is cut off has given back what a home granted before that home stops waiting for a recall"
);

// Restarts

/// After a restart: how long those that hold something here have to report it, before others get it.
pub const GRACE: Duration = RECALL_DEADLINE;
const _: () = assert!(
    ascending(&[sum(HOME_SILENCE, LOOK), GRACE]),
    "a node that was cut off just before no longer uses what the earlier incarnation granted"
);
const _: () = assert!(
    ascending(&[GRACE, CALL_DEADLINE]),
    "a request that waits for the end of the grace is served"
);

/// A request for a lock waits for this time while a server may hold one that it has not reported; then EIO.
pub const LOCKS_KNOWN_WAIT: Duration = Duration::from_secs(4);
const _: () = assert!(
    ascending(&[LOCKS_KNOWN_WAIT, CALL_DEADLINE]),
    "the home says why a lock is not granted before the caller gives up"
);

/// Pages of files that are written here are waited for until the kernel has dropped them, after their home was restarted:
/// they may be locked by a write that waits for that home, which waits for this node's report. Afterwards reads ask the
/// home first.
pub const DROP_WAIT: Duration = Duration::from_secs(1);
const _: () = assert!(
    ascending(&[DROP_WAIT, GRACE]),
    "a node reports to a restarted home before its grace ends, also where a kernel keeps pages locked"
);

/// A restarted server looks for this time whether a request that it gets happened before.
pub const REPEATED_MAX: Duration = Duration::from_secs(30);
const _: () = assert!(
    ascending(&[sum(RESTART_WAIT, OPEN_DEADLINE), REPEATED_MAX]),
    "a process that waited for its server repeats a change of names no later"
);

// Leases and what kernels keep

/// Attributes are trusted for this time after they were asked for; the kernel may keep what it got at the last moment for
/// [`ATTR_TTL`] more. For that long the home is asked whether it lives, so it costs wake-ups of a node that does nothing
/// any more.
pub const ATTR_LEASE: Duration = Duration::from_secs(4);

/// How long the kernel keeps granted attributes without asking.
pub const ATTR_TTL: Duration = Duration::from_secs(1);

/// How long a home remembers a delegation of attributes.
pub const ATTR_GRANT: Duration = Duration::from_secs(10);
const _: () = assert!(
    ascending(&[sum(ATTR_LEASE, ATTR_TTL), ATTR_GRANT]),
    "a home remembers a delegation for longer than its node and the kernel there use it"
);

/// A home that was asked something within this time is asked whether it lives.
pub const HOME_IN_USE: Duration = Duration::from_secs(6);
const _: () = assert!(
    ascending(&[sum(ATTR_LEASE, ATTR_TTL), HOME_IN_USE]),
    "a home is watched for longer than what it granted lasts"
);

/// How long the kernel keeps a name.
pub const NAME_TTL: Duration = Duration::from_secs(1);

/// How long a node that looked a name up is notified of its end.
pub const NAME_GRANT: Duration = Duration::from_secs(2);

/// How long a mount counts a name as known to its kernel, which gets the answer a little later.
pub const NAME_TOLD: Duration = Duration::from_secs(2);
const _: () = assert!(
    ascending(&[NAME_TTL, NAME_GRANT]) && ascending(&[NAME_TTL, NAME_TOLD]),
    "a name counts as known for longer than a kernel keeps it"
);

/// A mount acknowledges that a name is to be forgotten after this time, done or not; at once in a directory in which its
/// kernel is changing names itself.
pub const NAME_FORGET_WAIT: Duration = Duration::from_millis(50);

/// The nodes that know a removed name acknowledge its end within this time, or it is left to [`NAME_TTL`].
pub const INVAL_NAME_WAIT: Duration = Duration::from_millis(80);
const _: () = assert!(
    ascending(&[NAME_FORGET_WAIT, INVAL_NAME_WAIT]),
    "a node finds out that its kernel is busy in a directory before its answer is missed"
);

/// A listing waits for probes of what it names for this time at most; what is not answered by then is reported all the
/// same, and nobody keeps it. A large request of another node, which uses the page cache then, waits as long.
pub const PROBES_MAX: Duration = Duration::from_millis(20);

/// Names of a listing that were fetched at once and not asked for yet are as good as new for this time.
pub const LISTING_FRESH: Duration = Duration::from_millis(50);
const _: () = assert!(
    ascending(&[PROBES_MAX, LISTING_FRESH]),
    "mounts keep the rest of a listing whose probes took their time"
);

/// How often pages of files that others may write are looked at, for the sake of mappings.
pub const MAPPING_LOOK: Duration = Duration::from_millis(500);
const _: () = assert!(
    MAPPING_LOOK.as_millis() * 2 <= 1000,
    "a mapping shows nothing older than two looks, and the manuals say 1 s"
);

/// After a program has closed what it wrote, mounts of its node are granted nothing of the file for this time.
pub const BESIDE_KEPT: Duration = CALL_DEADLINE;

// Operations over several servers

/// A server that carries an operation out over several servers has finished it, or given up, after this time.
pub const INTENT_AGE: Duration = Duration::from_secs(15);

/// A rename's hold on a name at its old shard ends by itself after this time.
pub const RENAME_HOLD: Duration = Duration::from_secs(15);
const _: () = assert!(
    ascending(&[OPEN_DEADLINE, INTENT_AGE]) && ascending(&[OPEN_DEADLINE, RENAME_HOLD]),
    "no step of an operation in `shared` is under way any more when another server finishes it, or its hold ends"
);

/// A request for a name that another operation holds waits for this time, then EIO: a rename whose coordinator is lost may
/// never end.
pub const NAME_HELD_WAIT: Duration = OPEN_DEADLINE;

/// A file of the cache area whose name is being changed is not flushed for this time at most: as long as a rename may hold its names.
pub const CACHE_HOLD: Duration = RENAME_HOLD;

/// A file whose name another one has, although no server said so, is given up after this time.
pub const TAKEN_WAIT: Duration = SYNC_DEADLINE;
const _: () = assert!(
    ascending(&[sum(RESTART_WAIT, OPEN_DEADLINE), TAKEN_WAIT]),
    "a program whose server was gone has the answer to its rename before"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ascend_only_where_each_is_longer() {
        let seconds = Duration::from_secs;
        assert!(ascending(&[seconds(1), seconds(2), seconds(3)]) && ascending(&[]));
        assert!(!ascending(&[seconds(1), seconds(1)]) && !ascending(&[seconds(2), seconds(1)]));
        assert!(!ascending(&[seconds(1), seconds(3), seconds(2)]));
        assert_eq!(sum(seconds(1), seconds(2)), seconds(3));
    }
}
