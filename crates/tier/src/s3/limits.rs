//! Every bound of the S3 client, with its reason.

use std::time::Duration;

/// Connections open at once, in use or waiting; a caller beyond it waits for one.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// A connection that nobody used for this long is closed: servers drop theirs after 20 s to 60 s.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(15);

/// One that was used within this time is used again without a look whether the server has hung up; where it
/// has, the request is sent again on a new connection.
pub(super) const FRESH_MAX: Duration = Duration::from_millis(50);

/// Longest head of an answer.
pub(super) const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Most header lines of an answer.
pub(super) const HEADERS_MAX: usize = 100;

/// Longest answer that is not an object's bytes: a page of 1000 keys of 1024 bytes, each escaped to three.
pub(super) const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Deepest nesting of an XML answer.
pub(super) const XML_DEPTH_MAX: usize = 16;

/// An attempt may take this long, and a second for each [`RATE_MIN`] bytes, whatever trickles in.
pub(super) const ATTEMPT_MAX: Duration = Duration::from_secs(60);

/// Bytes per second below which a transfer counts as hanging.
pub(super) const RATE_MIN: u64 = 128 * 1024;

/// Joining the parts of a large object may take the server minutes.
pub(super) const JOIN_PATIENCE: Duration = Duration::from_secs(600);

/// First pause before another attempt; doubles each time.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// Longest pause, also when the server asks for more.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Attempts of calls that only tidy up.
pub(super) const TIDY_ATTEMPTS: u32 = 2;

/// A whole object that several requests brought and whose checksum does not fit is read so often.
pub(super) const WHOLE_READS_MAX: u32 = 3;

/// Credentials are fetched again when they end within this time.
pub(super) const RENEW_BEFORE: Duration = Duration::from_secs(300);

/// Time for the service of the node that hands out credentials; it is near or absent.
pub(super) const METADATA_PATIENCE: Duration = Duration::from_secs(2);

/// Time for a service on the internet that hands out keys of a role.
pub(super) const TOKEN_SERVICE_PATIENCE: Duration = Duration::from_secs(10);

/// How often such a service is asked when it is busy, and the first pause; each next one is twice as long.
pub(super) const BUSY_TRIES: u32 = 3;
/// See above.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(300);

/// What took longer than this to say where keys are is not asked again within [`KEYS_REST`].
pub(super) const KEYS_QUICK: Duration = Duration::from_millis(100);
/// See above.
pub(super) const KEYS_REST: Duration = Duration::from_secs(30);

/// Time for a program that prints keys; it may ask somebody over the network.
pub(super) const CREDENTIAL_PROCESS_PATIENCE: Duration = Duration::from_secs(60);

/// What such a program may print.
pub(super) const CREDENTIAL_PROCESS_BYTES_MAX: usize = 64 << 10;

/// Names of one page as servers give them.
pub(super) const KEYS_PER_PAGE: usize = 1000;

/// Longest key that S3 has, the prefix of the tier included.
pub(super) const OBJECT_KEY_BYTES_MAX: usize = 1024;

/// Smallest part but the last.
pub(super) const PART_BYTES_MIN: u64 = 5 << 20;

/// Largest part we make, since parts lie in memory.
pub(super) const PART_BYTES_MAX: u64 = 512 << 20;

/// Most parts of an object.
pub(super) const PARTS_MAX: u32 = 10_000;

/// After so many parts the next ones are twice as large, so that 10,000 are enough for 2.5 TiB.
pub(super) const PARTS_PER_SIZE: u32 = 1000;

/// An object that is in memory goes by one request up to so many parts' size: a pack of the usual size and
/// its index, which in parts would cost five requests.
pub(super) const PUT_PARTS_MAX: usize = 3;

/// Longest record of an upload that outlives its process: a key, each byte escaped, and names.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 10;
