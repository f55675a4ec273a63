//! The decoders of what other programs wrote: networks, sockets, disks, users.

mod containers;
mod handshakes;
mod layouts;
mod ledgers;
mod messages;
mod names;
mod packs;
mod s3;
mod uploads;

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Target;

/// All of them.
pub const TARGETS: [Target; 24] = [
    Target { name: "hello", seeds: handshakes::changes, run: handshakes::changed_on_the_way },
    Target { name: "introduction", seeds: handshakes::introductions, run: handshakes::introduced },
    Target { name: "header", seeds: messages::headers, run: messages::header },
    Target { name: "peer-request", seeds: messages::peer_requests, run: messages::peer_request },
    Target { name: "peer-reply", seeds: messages::peer_replies, run: messages::peer_reply },
    Target { name: "node-request", seeds: messages::node_requests, run: messages::node_request },
    Target { name: "node-reply", seeds: messages::node_replies, run: messages::node_reply },
    Target { name: "callback", seeds: messages::callbacks, run: messages::callback },
    Target { name: "layout", seeds: layouts::layouts, run: layouts::layout },
    Target { name: "view", seeds: layouts::views, run: layouts::view },
    Target { name: "names", seeds: names::stores, run: names::store },
    Target { name: "ledger", seeds: ledgers::logs, run: ledgers::log },
    Target { name: "container-mark", seeds: containers::marks, run: containers::mark },
    Target { name: "container-index", seeds: containers::indexes, run: containers::index },
    Target { name: "container-snapshot", seeds: containers::snapshots, run: containers::snapshot },
    Target { name: "pack-row", seeds: packs::rows, run: packs::row },
    Target { name: "pack-index", seeds: packs::indexes, run: packs::index },
    Target { name: "pack", seeds: packs::packs, run: packs::pack },
    Target { name: "pack-key", seeds: packs::keys, run: packs::key },
    Target { name: "sealed", seeds: packs::sealed_objects, run: packs::sealed },
    Target { name: "s3-listing", seeds: s3::listings, run: s3::listing },
    Target { name: "s3-head", seeds: s3::heads, run: s3::head },
    Target { name: "s3-keys", seeds: s3::keys_answers, run: s3::keys },
    Target { name: "upload-journal", seeds: uploads::journals, run: uploads::journal },
];

/// One number for anything that says what was done.
fn way(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The way of a result: the kind of value, or the text of the error without its digits.
fn way_of<T, E: std::fmt::Display>(result: Result<T, E>, kind: impl FnOnce(&T) -> u64) -> u64 {
    match result {
        Ok(value) => way((true, kind(&value))),
        Err(error) => {
            let text = error.to_string();
            way((false, text.replace(|c: char| c.is_ascii_hexdigit(), "")))
        }
    }
}
