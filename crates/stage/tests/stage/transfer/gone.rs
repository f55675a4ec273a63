//! A server that goes away in the middle of a copy and comes back soon: the copy waits, and arrives whole.

use std::thread;
use std::time::{Duration, Instant};

use hayase_s3_server::Server;

use super::proxy::Proxy;
use super::*;

const FILES: usize = 240;
const FILE_BYTES: usize = 40_000;
const BYTES: u64 = (FILES * FILE_BYTES) as u64;

/// So that there is a middle: 9.6 MB take 1.6 s.
const BYTES_PER_SECOND: u64 = 6_000_000;

/// Ten attempts pause for 16 s on average, and for less than this in one case of some thousands; then there
/// are three more such tries around them.
const OUTAGE: Duration = Duration::from_secs(3);

/// Longest wait for the middle.
const PATIENCE: Duration = Duration::from_secs(60);

/// Copies, and cuts the line for a while when a sixth has arrived.
fn copy_while_gone(proxy: &Proxy, from: &Place, to: &Place) {
    let source = Source::open(from.clone(), None).unwrap();
    let options = Options { bandwidth: Some(BYTES_PER_SECOND), ..Options::default() };
    let (progress, random) = (Progress::default(), SystemRandom::new());
    let gone = || {
        let deadline = Instant::now() + PATIENCE;
        while Progress::get(&progress.bytes_moved) < BYTES / 6 {
            assert!(Instant::now() < deadline, "a sixth never arrived");
            thread::sleep(Duration::from_millis(1));
        }
        proxy.cut();
        thread::sleep(OUTAGE);
        let done = Progress::get(&progress.items_done);
        (done, proxy.mend())
    };
    let (summary, (done, refused)) = thread::scope(|scope| {
        let gone = scope.spawn(gone);
        let summary = transfer(&source, to, &options, &progress, &Silent, &random);
        (summary.unwrap(), gone.join().unwrap())
    });
    assert!(
        done < FILES as u64 && refused > 0,
        "{done} done, {refused} refused: not in the middle"
    );
    assert!(summary.is_complete() && !summary.is_stopped, "{summary:?}");
    assert_eq!(summary.failures_total, 0, "{summary:?}");
    assert!(summary.copied >= FILES as u64, "{summary:?}");
}

#[test]
fn a_copy_out_outlives_a_server_that_is_gone_for_a_while() {
    let server = Server::start(&hayase_s3_server::Options::default()).unwrap();
    let proxy = Proxy::start(server.address());
    let trees = Trees::new(|top| fill(top, FILES, FILE_BYTES));
    let store = of(proxy.patient_bucket());
    copy_while_gone(&proxy, &trees.from(), &store);
    copy_all(&store, &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
}

#[test]
fn a_copy_in_outlives_a_server_that_is_gone_for_a_while() {
    let server = Server::start(&hayase_s3_server::Options::default()).unwrap();
    let proxy = Proxy::start(server.address());
    let trees = Trees::new(|top| fill(top, FILES, FILE_BYTES));
    let store = of(proxy.patient_bucket());
    copy_all(&trees.from(), &store, &Options::default());
    copy_while_gone(&proxy, &store, &trees.to());
    assert_same(&trees.from, &trees.to);
}
