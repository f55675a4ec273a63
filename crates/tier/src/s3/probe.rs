//! What a server can do that servers differ in, tried on a hidden object that is removed again.

use std::sync::Arc;

use super::client::{Client, Request};
use super::commit::{Condition, Conditional, Obeyed, object_headers};
use super::fault::Fault;
use super::limits::TIDY_ATTEMPTS;
use super::multipart::Multipart;
use super::settings::ConditionalWrites;
use super::{CredentialSource, checksum::Sum, object, removal};
use crate::Attributes;
use crate::key::TEMPORARY_PREFIX;

/// Asks the settings, then the server.
///
/// # Errors
/// Only when the server can not be reached: one that refuses has no conditional writes for us.
pub(super) fn conditional(client: &Arc<Client>) -> Result<Conditional, Fault> {
    match client.settings.conditional {
        ConditionalWrites::Trusted => return Ok(Conditional::ALWAYS),
        ConditionalWrites::Off => return Ok(Conditional::NEVER),
        ConditionalWrites::Probe if client.is_aws() => return Ok(Conditional::ALWAYS),
        ConditionalWrites::Probe => {}
    }
    if matches!(client.settings.credentials, CredentialSource::Anonymous) {
        return Ok(Conditional::NEVER);
    }
    let hidden = String::from_utf8_lossy(TEMPORARY_PREFIX);
    let key = format!("{}{hidden}probe-{}", client.settings.prefix, client.token());
    let found = Probe { client, key: &key }.run();
    let _ = client.call(&Request::new("DELETE", Some(&key)), TIDY_ATTEMPTS, |_| Ok(()));
    found
}

/// An entity tag that no object has.
const NO_ETAG: &str = "\"00000000000000000000000000000000\"";

/// A hidden object to try conditions on.
struct Probe<'a> {
    client: &'a Arc<Client>,
    key: &'a str,
}

impl Probe<'_> {
    fn run(&self) -> Result<Conditional, Fault> {
        let unmet = Condition::Absent;
        let (first, second) = (obeys(self.put(&unmet))?, obeys(self.put(&unmet))?);
        if first != Some(false) {
            return Ok(Conditional::NEVER);
        }
        let absent = self.obeyed(second == Some(true), &unmet)?;
        Ok(Conditional { absent, matches: self.matches()?, removals: self.removals()? })
    }

    /// The object is there: a tag of none is refused, and its own is taken.
    fn matches(&self) -> Result<Obeyed, Fault> {
        let unmet = Condition::Matches(NO_ETAG.to_owned());
        let is_refused = obeys(self.put(&unmet))? == Some(true);
        let Some(etag) = object::head(self.client, self.key)?.etag else {
            return Ok(Obeyed::Never);
        };
        let is_taken = is_refused && obeys(self.put(&Condition::Matches(etag)))? == Some(false);
        self.obeyed(is_taken, &unmet)
    }

    /// The object is there: with a tag of none it stays, with its own it goes.
    fn removals(&self) -> Result<bool, Fault> {
        let remove = |etag: String| obeys(removal::send(self.client, self.key, Some(etag)));
        let is_refused = remove(NO_ETAG.to_owned())? == Some(true);
        let etag = match object::head(self.client, self.key) {
            Err(fault @ Fault::Transport(_)) => return Err(fault),
            there => there.ok().and_then(|seen| seen.etag), // None: it went all the same
        };
        match etag.filter(|_| is_refused) {
            Some(etag) => Ok(remove(etag)? == Some(false)),
            None => Ok(false),
        }
    }

    /// `single`: what one request came to; joined, the condition is tried here.
    fn obeyed(&self, single: bool, unmet: &Condition) -> Result<Obeyed, Fault> {
        match single {
            false => Ok(Obeyed::Never),
            true if obeys(self.join(unmet))? == Some(true) => Ok(Obeyed::Always),
            true => Ok(Obeyed::Single),
        }
    }

    fn put(&self, condition: &Condition) -> Result<(), Fault> {
        let pieces: [&[u8]; 1] = [b"probe"];
        let mut request = Request::new("PUT", Some(self.key))
            .headers(object_headers(self.client, Attributes::default()))
            .body(&pieces);
        request.headers.extend(condition.header());
        let sum = Sum::of(self.client.settings.checksum, &pieces);
        request.headers.extend(sum.map(|sum| sum.header()));
        self.client.call(&request, self.client.settings.attempts.min(3), |_| Ok(()))
    }

    fn join(&self, condition: &Condition) -> Result<(), Fault> {
        let mut multipart = Multipart::begin(self.client, self.key, Attributes::default(), None)?;
        multipart.send_all(b"probe")?;
        multipart.complete(5, condition).map(drop)
    }
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
