//! Removing one object: whatever version is there, or the one that is known and no other.
//!
//! A server answers a DELETE in the same way whether or not an object was there, so both look first. Between that look
//! and a DELETE without a condition another version may come, which is lost then.

use super::client::{Client, Request};
use super::fault::Fault;
use super::object;

/// Two requests.
pub(super) fn any(client: &Client, key: &str) -> Result<(), Fault> {
    object::head(client, key)?;
    send(client, key, None)
}

/// Two requests. `is_obeyed`: whether this server obeys a condition on a DELETE.
///
/// # Errors
/// [`Fault::Changed`] when another version is there.
pub(super) fn version(
    client: &Client,
    key: &str,
    identity: u64,
    is_obeyed: bool,
) -> Result<(), Fault> {
    let seen = object::head(client, key)?;
    if seen.meta.identity != identity {
        return Err(Fault::Changed);
    }
    let Some(etag) = seen.etag.filter(|_| is_obeyed) else {
        return send(client, key, None);
    };
    match send(client, key, Some(etag)) {
        // It may have been removed by an attempt of ours whose answer was lost.
        Err(fault) if fault.is_unmet() || fault.is_missing() => match object::head(client, key) {
            Err(fault) if fault.is_missing() => Ok(()),
            // It is still the same: the server does not know its own tag.
            Ok(still) if still.meta.identity == identity => send(client, key, None),
            there => there.and(Err(Fault::Changed)),
        },
        // Believed without a try, of AWS or because a person said so: not every region, not every server.
        Err(fault) if fault.is_unsupported() => send(client, key, None),
        answer => answer,
    }
}

/// One request. With `etag` the server is asked to remove no other version.
pub(super) fn send(client: &Client, key: &str, etag: Option<String>) -> Result<(), Fault> {
    let mut request = Request::new("DELETE", Some(key));
    request.headers.extend(etag.map(|etag| ("if-match".to_owned(), etag)));
    client.call(&request, client.settings.attempts, |_| Ok(()))
}
