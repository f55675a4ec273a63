//! One request to the bucket: built, signed, sent, tried again where that helps.
//!
//! Invariants: every request is safe to repeat (the conditional ones recognise their own work, see
//! `upload`); what a failed attempt delivered is never used; the number of attempts is bounded.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use data_encoding::BASE64;
use md5::{Digest, Md5};
use ring::rand::{SecureRandom, SystemRandom};

use super::aws;
use super::checksum::Sums;
use super::credentials::{self, Provider};
use super::fault::{Answer, Fault, Remedy};
use super::http::{Exchange, Head, Manner, Pool, Target, client_config};
use super::limits::{PAUSE_FIRST, PAUSE_MAX};
use super::settings::{Encryption, Origin, PayloadSignature, S3Settings};
use super::sign::{self, Scope, Signable};
use super::{date, percent};
use crate::{Action, TierError, Traffic};

/// A request before it knows when and by whom it is signed.
#[derive(Debug, Default)]
pub(super) struct Request<'a> {
    pub(super) method: &'static str,
    /// The whole key, prefix included; `None` for the bucket itself.
    pub(super) key: Option<&'a str>,
    pub(super) query: Vec<(String, String)>,
    /// Names in lower case, without those that every request has.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: &'a [&'a [u8]],
    /// Longer than the usual silence, for calls that work long.
    pub(super) patience: Duration,
}

impl<'a> Request<'a> {
    pub(super) fn new(method: &'static str, key: Option<&'a str>) -> Self {
        Self { method, key, ..Self::default() }
    }

    pub(super) fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn headers(mut self, more: Vec<(String, String)>) -> Self {
        self.headers.extend(more);
        self
    }

    pub(super) fn body(mut self, body: &'a [&'a [u8]]) -> Self {
        self.body = body;
        self
    }
}

/// What requests to one bucket share.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) settings: S3Settings,
    origin: Origin,
    /// The region as far as known: the server may name another.
    region: RwLock<String>,
    provider: Provider,
    pool: Pool,
    /// Seconds that the server's clock is ahead of ours.
    skew: AtomicI64,
    random: SystemRandom,
    requests: AtomicU64,
    repeats: AtomicU64,
    throttled: AtomicU64,
    waits: AtomicU64,
    wait_micros: AtomicU64,
}

impl Client {
    /// Checks settings; speaks to nobody yet.
    pub(super) fn new(settings: S3Settings) -> Result<Self, TierError> {
        let shown = format!("s3://{}/{}", settings.bucket, settings.prefix);
        let refused = |what: String, help| TierError::Refused {
            action: Action::Attach,
            path: shown.clone(),
            what,
            help,
        };
        let origin = settings
            .check()
            .map_err(|error| refused(error.to_string(), "correct the URL or the setting"))?;
        let secret = matches!(settings.encryption, Encryption::CustomerKey(_));
        if secret && !origin.tls && !settings.customer_key_in_clear {
            return Err(refused(
                "the endpoint has no TLS, and would be sent the encryption key in clear".into(),
                "use https://, or say that sending the key in clear is intended",
            ));
        }
        let tls = match origin.tls {
            true => Some(client_config(settings.ca_file.as_deref()).map_err(|why| {
                refused(
                    why,
                    "install ca-certificates, or name a file of certificates (AWS_CA_BUNDLE)",
                )
            })?),
            false => None,
        };
        let (patience, acknowledge_at_once) = (settings.patience, settings.acknowledge_at_once);
        Ok(Self {
            region: RwLock::new(
                settings.region.clone().unwrap_or_else(|| aws::FIRST_REGION.into()),
            ),
            provider: Provider::new(settings.credentials.clone()),
            pool: Pool::new(tls, Manner { patience, acknowledge_at_once }),
            origin,
            settings,
            skew: AtomicI64::new(0),
            random: SystemRandom::new(),
            requests: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wait_micros: AtomicU64::new(0),
        })
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            repeats: self.repeats.load(Ordering::Relaxed),
            throttled: self.throttled.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            wait_micros: self.wait_micros.load(Ordering::Relaxed),
            carried: self.pool.carried(),
        }
    }

    pub(super) fn is_aws(&self) -> bool {
        self.origin.is_aws()
    }

    pub(super) fn region(&self) -> String {
        self.region.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For people: the endpoint as it is used now.
    pub(super) fn endpoint(&self) -> String {
        self.origin.shown(&self.region())
    }

    /// 16 random bytes in hexadecimal.
    pub(super) fn token(&self) -> String {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).expect("the kernel gives random bytes");
        data_encoding::HEXLOWER.encode(&bytes)
    }

    /// Sends until `consume` has what it wants, the server refuses for good, or `attempts` are over.
    /// `consume` sees successful answers only and must begin anew each time.
    pub(super) fn call<T>(
        &self,
        request: &Request<'_>,
        attempts: u32,
        mut consume: impl FnMut(&mut Exchange<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut moved = false;
        let mut attempt = 1;
        loop {
            let mut keys_used = String::new();
            self.requests.fetch_add(1, Ordering::Relaxed);
            let fault = match self.attempt(request, &mut keys_used, &mut consume) {
                Ok(done) => return Ok(done),
                Err(fault) => fault,
            };
            let (remedy, attempts) = (fault.remedy(), fault.attempts(attempts));
            match &remedy {
                Remedy::Clock(time) => self.adopt_clock(*time),
                Remedy::Region(name) if !moved && self.adopt_region(name) => moved = true,
                Remedy::Keys if self.provider.renew(&keys_used) => {}
                Remedy::Wait { throttled, .. } if attempt < attempts => {
                    let counter = if *throttled { &self.throttled } else { &self.repeats };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                _ => return Err(fault),
            }
            if attempt >= attempts.max(2) {
                return Err(fault);
            }
            tracing::debug!(%fault, attempt, method = request.method, key = request.key, "again");
            if let Remedy::Wait { asked, .. } = remedy {
                thread::sleep(pause(attempt, self.fraction(), asked));
            }
            attempt += 1;
        }
    }

    /// A number from 0 to 1.
    fn fraction(&self) -> f64 {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes).expect("the kernel gives random bytes");
        f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
    }

    fn adopt_clock(&self, theirs: SystemTime) {
        let seconds = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
        };
        self.skew.store(seconds(theirs) - seconds(SystemTime::now()), Ordering::Relaxed);
    }

    /// False when a person named the region: then it is theirs to correct.
    fn adopt_region(&self, name: &str) -> bool {
        let mut region = self.region.write().unwrap_or_else(PoisonError::into_inner);
        let adopt = self.settings.region.is_none();
        if adopt {
            name.clone_into(&mut region);
        }
        adopt
    }

    fn now(&self) -> SystemTime {
        self.by_server(SystemTime::now())
    }

    /// What the server's clock shows at a time of ours, as far as it told that they differ.
    pub(super) fn by_server(&self, time: SystemTime) -> SystemTime {
        let skew = self.skew.load(Ordering::Relaxed);
        let by = Duration::from_secs(skew.unsigned_abs());
        if skew < 0 { time.checked_sub(by).unwrap_or(SystemTime::UNIX_EPOCH) } else { time + by }
    }

    fn attempt<T>(
        &self,
        request: &Request<'_>,
        keys_used: &mut String,
        consume: &mut impl FnMut(&mut Exchange<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let region = self.region();
        let head = self.signed_head(request, &region, keys_used)?;
        let (tls, host, port) = (self.origin.tls, self.origin.host(&region), self.origin.port());
        let proxy = self.settings.proxies.to(tls, &host, port).map_err(|why| {
            Fault::Transport(io::Error::new(io::ErrorKind::PermissionDenied, why))
        })?;
        let target = Target { tls, host, port, address: self.settings.connect_to, proxy };
        let patience = request.patience.max(self.settings.patience);
        let begin = Instant::now();
        let mut exchange = self
            .pool
            .exchange(&target, head.as_bytes(), request.body, patience)
            .map_err(Fault::Transport)?;
        if !(200..300).contains(&exchange.head().status) {
            return Err(Fault::Answer(Box::new(Answer::read(&mut exchange))));
        }
        if request.key.is_some() && request.body.is_empty() {
            let micros = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.wait_micros.fetch_add(micros, Ordering::Relaxed);
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        consume(&mut exchange)
    }

    fn signed_head(
        &self,
        request: &Request<'_>,
        region: &str,
        keys_used: &mut String,
    ) -> Result<String, Fault> {
        let now = self.now();
        let keys = self.provider.current(now).map_err(Fault::NoKeys)?;
        let path = percent::encode(&self.origin.path(request.key), true);
        let mut headers = request.headers.clone();
        headers.push(("host".into(), self.origin.authority(region)));
        let time = date::compact(now);
        if let Some(keys) = keys {
            *keys_used = credentials::identity(&keys);
            let payload = self.payload_hash(request.body);
            headers.push(("x-amz-date".into(), time.clone()));
            headers.push(("x-amz-content-sha256".into(), payload.clone()));
            if let Some(token) = &keys.session_token {
                headers.push(("x-amz-security-token".into(), token.clone()));
            }
            let signable = Signable {
                method: request.method,
                path: &path,
                query: &request.query,
                headers: &headers,
                payload: &payload,
            };
            let scope = Scope { time: &time, region, service: "s3" };
            headers.push(("authorization".into(), sign::authorization(&signable, scope, &keys)));
        }
        if let Some((name, _)) = headers.iter().find(|(_, value)| value.contains(['\r', '\n'])) {
            return Err(Fault::NoKeys(format!("what was given for `{name}` holds a line break")));
        }
        let length: usize = request.body.iter().map(|piece| piece.len()).sum();
        if matches!(request.method, "PUT" | "POST") {
            headers.push(("content-length".into(), length.to_string()));
        }
        let query = sign::query(&request.query);
        let mark = if query.is_empty() { "" } else { "?" };
        let mut head = format!("{} {path}{mark}{query} HTTP/1.1\r\n", request.method);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Ok(head)
    }

    fn payload_hash(&self, body: &[&[u8]]) -> String {
        let unsigned = match self.settings.payload {
            PayloadSignature::Auto => self.origin.tls,
            PayloadSignature::Signed => false,
            PayloadSignature::Unsigned => true,
        };
        match body {
            [] => sign::EMPTY.into(),
            _ if unsigned => sign::UNSIGNED.into(),
            pieces => sign::sha256_of(pieces),
        }
    }

    /// What an answer tells of all bytes of its object. With TLS, which vouches for the way, the entity tag
    /// is spared: MD5 would cost more than all else.
    pub(super) fn sums(&self, head: &Head) -> Sums {
        let sums = Sums::of(head);
        match self.settings.etag_is_md5 && !self.origin.tls {
            true => sums,
            false => sums.without_md5(),
        }
    }

    /// Headers of encryption: for requests that make an object, or for all others about its bytes.
    pub(super) fn encryption_headers(&self, makes_object: bool) -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| {
            (format!("x-amz-server-side-encryption{name}"), value.to_owned())
        };
        match &self.settings.encryption {
            Encryption::CustomerKey(key) => vec![
                pair("-customer-algorithm", "AES256"),
                pair("-customer-key", &BASE64.encode(key)),
                pair("-customer-key-md5", &BASE64.encode(&Md5::digest(key))),
            ],
            Encryption::ServerKeys if makes_object => vec![pair("", "AES256")],
            Encryption::KeyService(id) if makes_object => {
                let id = id.iter().map(|id| pair("-aws-kms-key-id", id));
                std::iter::once(pair("", "aws:kms")).chain(id).collect()
            }
            Encryption::BucketDefault | Encryption::ServerKeys | Encryption::KeyService(_) => {
                vec![]
            }
        }
    }

    /// Asks for one name below the prefix: enough to learn what is wrong with the settings.
    pub(super) fn knock(&self) -> Result<(), Fault> {
        let request = Request::new("GET", None)
            .query("list-type", "2")
            .query("max-keys", "1")
            .query("prefix", self.settings.prefix.clone());
        self.call(&request, 3, |exchange| {
            let page = exchange.document().map_err(Fault::Transport)?;
            match super::xml::Element::parse(&page) {
                Ok(root) if root.name == "ListBucketResult" => Ok(()),
                _ => Err(Fault::NotS3),
            }
        })
    }
}

/// Full jitter: anything up to a bound that doubles; a server's own wish is its lower end.
///
/// Source: Marc Brooker, "Exponential backoff and jitter", AWS architecture blog, 2015.
fn pause(attempt: u32, fraction: f64, asked: Option<Duration>) -> Duration {
    let bound = PAUSE_FIRST.saturating_mul(1 << attempt.min(10)).min(PAUSE_MAX);
    (asked.unwrap_or_default() + bound.mul_f64(fraction.clamp(0.0, 1.0))).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_are_spread() {
        assert_eq!(pause(1, 1.0, None), Duration::from_millis(100));
        assert_eq!(pause(3, 0.5, None), Duration::from_millis(200));
        assert_eq!(pause(30, 1.0, None), PAUSE_MAX);
        assert_eq!(pause(1, 0.0, Some(Duration::from_secs(2))), Duration::from_secs(2));
        assert_eq!(pause(1, 0.0, Some(Duration::from_secs(2000))), PAUSE_MAX);
    }
}
