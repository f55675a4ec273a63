//! What a server can do that servers differ in, tried on a hidden object that is removed again.

use std::sync::Arc;

use super::client::{Client, Request};
use super::fault::Fault;
use super::limits::TIDY_ATTEMPTS;
use super::multipart::Multipart;
use super::settings::ConditionalWrites;
use super::upload::object_headers;
use super::{CredentialSource, checksum::Sum};
use crate::Attributes;
use crate::key::TEMPORARY_PREFIX;

/// Where `If-None-Match: *` is obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conditional {
    /// Nowhere.
    Never,
    /// When an object is put with one request.
    Single,
    /// Also when parts are joined.
    Always,
}

/// Asks the settings, then the server.
///
/// # Errors
/// Only when the server can not be reached: one that refuses has no conditional writes for us.
pub(super) fn conditional(client: &Arc<Client>) -> Result<Conditional, Fault> {
    match client.settings.conditional {
        ConditionalWrites::Trusted => return Ok(Conditional::Always),
        ConditionalWrites::Off => return Ok(Conditional::Never),
        ConditionalWrites::Probe if client.is_aws() => return Ok(Conditional::Always),
        ConditionalWrites::Probe => {}
    }
    if matches!(client.settings.credentials, CredentialSource::Anonymous) {
        return Ok(Conditional::Never);
    }
    let hidden = String::from_utf8_lossy(TEMPORARY_PREFIX);
    let key = format!("{}{hidden}probe-{}", client.settings.prefix, client.token());
    let found = try_both(client, &key);
    let _ = client.call(&Request::new("DELETE", Some(&key)), TIDY_ATTEMPTS, |_| Ok(()));
    found
}

fn try_both(client: &Arc<Client>, key: &str) -> Result<Conditional, Fault> {
    let (first, second) = (obeys(put(client, key))?, obeys(put(client, key))?);
    if (first, second) != (Some(false), Some(true)) {
        return Ok(Conditional::Never);
    }
    let joined =
        Multipart::begin(client, key, Attributes::default(), None).and_then(|mut multipart| {
            multipart.send_all(b"probe")?;
            multipart.complete(5, true).map(drop)
        });
    Ok(if obeys(joined)? == Some(true) { Conditional::Always } else { Conditional::Single })
}

/// Whether the condition was found unmet; `None` when the server refused for another reason.
fn obeys(answer: Result<(), Fault>) -> Result<Option<bool>, Fault> {
    match answer {
        Ok(()) => Ok(Some(false)),
        Err(fault) if fault.is_unmet() => Ok(Some(true)),
        Err(fault @ Fault::Transport(_)) => Err(fault),
        Err(_) => Ok(None),
    }
}

fn put(client: &Client, key: &str) -> Result<(), Fault> {
    let pieces: [&[u8]; 1] = [b"probe"];
    let mut request = Request::new("PUT", Some(key))
        .headers(object_headers(client, Attributes::default()))
        .header("if-none-match", "*")
        .body(&pieces);
    let sum = Sum::of(client.settings.checksum, &pieces);
    request.headers.extend(sum.map(|sum| sum.header()));
    client.call(&request, client.settings.attempts.min(3), |_| Ok(()))
}
