//! What can go wrong with a request, what helps, and how a person is told.
//!
//! Source: Amazon S3 API reference, "List of error codes"; what radosgw and MinIO answer besides.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use super::client::Client;
use super::credentials::CredentialSource;
use super::date;
use super::http::Exchange;
use super::limits::WHOLE_READS_MAX;
use super::xml::Element;
use crate::{Action, TierError};

/// Why one attempt failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nobody answers, or the answer broke off.
    Transport(io::Error),
    /// The server says no.
    Answer(Box<Answer>),
    /// Bytes came that are not those that were stored.
    Corrupt(String),
    /// All bytes of an object came, and are not those that its checksum is of.
    Mismatch(String),
    /// The object is another one than was meant.
    Changed,
    /// There is nothing to sign with.
    NoKeys(String),
    /// What answers is no S3 server.
    NotS3,
}

/// An answer with an error.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// S3's word for it; empty when the answer holds none (HEAD, proxies).
    pub(super) code: String,
    message: String,
    region: Option<String>,
    location: Option<String>,
    asked: Option<Duration>,
    date: Option<SystemTime>,
}

/// What may help.
#[derive(Debug, PartialEq)]
pub(super) enum Remedy {
    /// Try again, not sooner than asked.
    Wait { throttled: bool, asked: Option<Duration> },
    /// Sign with the server's clock.
    Clock(SystemTime),
    /// Sign for, and go to, another region.
    Region(String),
    /// Look for other keys.
    Keys,
    /// Nothing.
    None,
}

impl Answer {
    /// Reads what the server says, as far as it can be read.
    pub(super) fn read(exchange: &mut Exchange<'_>) -> Self {
        let head = exchange.head();
        let text = |name: &str| head.get(name).map(str::to_owned);
        let mut answer = Self {
            status: head.status,
            region: text("x-amz-bucket-region"),
            location: text("location"),
            asked: text("retry-after").and_then(|s| s.parse().ok()).map(Duration::from_secs),
            date: head.get("date").and_then(date::parse_http),
            ..Self::default()
        };
        let document = exchange.document().unwrap_or_default();
        if let Ok(root) = Element::parse(&document) {
            answer.take(&root);
        }
        answer
    }

    /// The error that an answer with status 200 may hold, too.
    pub(super) fn of_element(root: &Element) -> Option<Self> {
        let mut answer = Self { status: 200, ..Self::default() };
        answer.take(root);
        (!answer.code.is_empty()).then_some(answer)
    }

    fn take(&mut self, root: &Element) {
        if root.name == "Error" {
            root.text_of("Code").unwrap_or("").trim().clone_into(&mut self.code);
            root.text_of("Message").unwrap_or("").trim().clone_into(&mut self.message);
            self.region = root.text_of("Region").map(str::to_owned).or(self.region.take());
        }
    }

    pub(super) fn is_missing(&self) -> bool {
        self.status == 404 && matches!(self.code.as_str(), "" | "NoSuchKey" | "NoSuchObject")
    }

    /// A condition of ours was not met.
    pub(super) fn is_unmet(&self) -> bool {
        self.status == 412 || self.code == "PreconditionFailed"
    }

    /// The server does not know what was asked of it, for example a condition.
    fn is_unsupported(&self) -> bool {
        self.status == 501 || self.code == "NotImplemented"
    }

    fn remedy(&self) -> Remedy {
        let wait = |throttled| Remedy::Wait { throttled, asked: self.asked };
        match self.code.as_str() {
            "SlowDown" | "TooManyRequests" | "RequestLimitExceeded" | "Throttling" => wait(true),
            "RequestTimeout"
            | "InternalError"
            | "OperationAborted"
            | "ConditionalRequestConflict"
            | "BadDigest"
            | "XAmzContentSHA256Mismatch"
            | "IncompleteBody" => wait(false),
            "RequestTimeTooSkewed" => self.date.map_or(Remedy::None, Remedy::Clock),
            "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => Remedy::Keys,
            _ => match (self.status, &self.region) {
                (301 | 307 | 400, Some(region)) => Remedy::Region(region.clone()),
                (429 | 503, _) => wait(true),
                (408 | 500 | 502 | 504, _) => wait(false),
                _ => Remedy::None,
            },
        }
    }
}

impl Fault {
    pub(super) fn remedy(&self) -> Remedy {
        let again = Remedy::Wait { throttled: false, asked: None };
        match self {
            Self::Answer(answer) => answer.remedy(),
            Self::Corrupt(_) | Self::Mismatch(_) => again,
            Self::Transport(error) if is_worth_another(error) => again,
            Self::Transport(_) | Self::Changed | Self::NoKeys(_) | Self::NotS3 => Remedy::None,
        }
    }

    /// How many attempts are worth it, of those that a person allows: on the way bytes change rarely, so a
    /// checksum that does not fit again and again is wrong itself.
    pub(super) fn attempts(&self, allowed: u32) -> u32 {
        match self {
            Self::Mismatch(_) => allowed.min(WHOLE_READS_MAX),
            _ => allowed,
        }
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Answer(answer) if answer.is_missing())
    }

    pub(super) fn is_unmet(&self) -> bool {
        matches!(self, Self::Answer(answer) if answer.is_unmet())
    }

    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Answer(answer) if answer.is_unsupported())
    }

    pub(super) fn has_code(&self, code: &str) -> bool {
        matches!(self, Self::Answer(answer) if answer.code == code)
    }

    /// Sorts it into what a caller can branch on, with what a person can do.
    pub(super) fn into_tier_error(
        self,
        action: Action,
        path: String,
        client: &Client,
    ) -> TierError {
        let refused =
            |what: String, help| TierError::Refused { action, path: path.clone(), what, help };
        match self {
            Self::Answer(answer) => answer.into_tier_error(action, path, client),
            Self::Changed => TierError::Changed { action, path },
            Self::Corrupt(what) | Self::Mismatch(what) => TierError::Corrupt { action, path, what },
            Self::NoKeys(why) => refused(
                format!("no credentials were found: {why}"),
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; public buckets can be read anonymously",
            ),
            Self::NotS3 => refused(
                format!("what answers at {} is no S3 server", client.endpoint()),
                "look at the endpoint: host, port, and http or https",
            ),
            Self::Transport(error) => {
                if let Some(why) = tls_fault(&error) {
                    return refused(
                        format!("no TLS with {}: {why}", client.endpoint()),
                        "for a server with its own certificate authority name its file (AWS_CA_BUNDLE); for one without TLS use http://",
                    );
                }
                if action == Action::Attach {
                    return refused(
                        format!("no S3 server answers at {}: {error}", client.endpoint()),
                        "look at the endpoint (AWS_ENDPOINT_URL): host, port, http or https, and whether this node may reach it",
                    );
                }
                TierError::Unavailable { action, path, source: error }
            }
        }
    }
}

impl Answer {
    fn into_tier_error(self, action: Action, path: String, client: &Client) -> TierError {
        if self.is_missing() {
            return TierError::Missing { action, path };
        }
        if let Some((what, help)) = self.setting_at_fault(client) {
            return TierError::Refused { action, path, what, help };
        }
        let source = || io::Error::other(self.to_string());
        let denied = || io::Error::new(io::ErrorKind::PermissionDenied, self.to_string());
        match (self.code.as_str(), self.status) {
            ("QuotaExceeded", _) => TierError::Quota { action, path },
            ("InsufficientStorage" | "XMinioStorageFull", _) | (_, 507) => {
                TierError::Full { action, path }
            }
            _ if self.is_unsupported() => TierError::Unsupported { action, path },
            (_, 401 | 403) => TierError::Denied { action, path, source: denied() },
            _ if matches!(self.remedy(), Remedy::Wait { .. }) => {
                TierError::Unavailable { action, path, source: source() }
            }
            _ => TierError::Io { action, path, source: source() },
        }
    }

    /// The setting that a person has to correct: what is wrong, and where to look.
    fn setting_at_fault(&self, client: &Client) -> Option<(String, &'static str)> {
        let (bucket, endpoint) = (&client.settings.bucket, client.endpoint());
        let said = &self.message;
        Some(match self.code.as_str() {
            // The others are the words of versitygw, and of servers made with s3s.
            "InvalidAccessKeyId" | "XAdminUserNotFound" | "NotSignedUp" => (
                format!("{endpoint} does not know {}", access_key(client)),
                "look at AWS_ACCESS_KEY_ID or the profile, and whether they belong to this endpoint",
            ),
            "SignatureDoesNotMatch" => (
                format!("the secret of {} is wrong for {endpoint}", access_key(client)),
                "look at AWS_SECRET_ACCESS_KEY or the profile: it is often cut off when copied",
            ),
            "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => (
                format!("the session of {} has ended: {said}", access_key(client)),
                "log in again; keys of a role or in a profile file are read again automatically",
            ),
            "RequestTimeTooSkewed" => (
                "the clock of this node and that of the server differ too much".into(),
                "set the clock (chronyc, timedatectl)",
            ),
            "NoSuchBucket" => (
                format!("no bucket `{bucket}` at {endpoint}"),
                "make the bucket, or look at its name, the endpoint and the region",
            ),
            "InvalidBucketName" => {
                (format!("{endpoint} takes no bucket `{bucket}`"), "look at the bucket's name")
            }
            code if code.starts_with("KMS.") || code == "InvalidEncryptionAlgorithmError" => (
                format!("the server does not support the requested encryption: {said}"),
                "look at the encryption's setting and the name of its key",
            ),
            _ if matches!(self.status, 301 | 307 | 308 | 400) && self.region.is_some() => (
                format!(
                    "the bucket `{bucket}` is in the region `{}`, not in `{}`",
                    self.region.as_deref().unwrap_or(""),
                    client.region()
                ),
                "name that region (AWS_REGION), or none",
            ),
            _ if matches!(self.status, 301 | 302 | 307 | 308) => (
                format!("{endpoint} sends us to {}", self.location.as_deref().unwrap_or("nowhere")),
                "use that endpoint, or the other addressing style (path, host)",
            ),
            _ => return None,
        })
    }
}

fn access_key(client: &Client) -> String {
    match &client.settings.credentials {
        CredentialSource::Keys(keys) => format!("the access key `{}`", keys.access_key),
        CredentialSource::Found(found) => match (&found.keys, &found.profile) {
            (Some(keys), None) => format!("the access key `{}`", keys.access_key),
            _ => "the access key that was found".into(),
        },
        CredentialSource::Anonymous => "an anonymous reader".into(),
    }
}

/// What TLS complains of, where that is the reason.
/// Neither of certificates nor refused by a proxy.
fn is_worth_another(error: &io::Error) -> bool {
    tls_fault(error).is_none() && error.kind() != io::ErrorKind::PermissionDenied
}

fn tls_fault(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(ToString::to_string)
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.as_str(), self.message.as_str()) {
            ("", _) => write!(f, "the server answers with status {}", self.status),
            (code, "") => f.write_str(code),
            (code, message) => write!(f, "{code}: {message}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => error.fmt(f),
            Self::Answer(answer) => answer.fmt(f),
            Self::Corrupt(what) | Self::Mismatch(what) | Self::NoKeys(what) => f.write_str(what),
            Self::Changed => f.write_str("it was replaced"),
            Self::NotS3 => f.write_str("no S3 server"),
        }
    }
}

impl Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, code: &str) -> Answer {
        Answer { status, code: code.into(), ..Answer::default() }
    }

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_is_not() {
        let wait = |throttled| Remedy::Wait { throttled, asked: None };
        for (status, code, expected) in [
            (503, "SlowDown", wait(true)),
            (503, "", wait(true)),
            (429, "", wait(true)),
            (500, "InternalError", wait(false)),
            (502, "", wait(false)),
            (200, "InternalError", wait(false)),
            (400, "RequestTimeout", wait(false)),
            (400, "BadDigest", wait(false)),
            (409, "ConditionalRequestConflict", wait(false)),
            (400, "ExpiredToken", Remedy::Keys),
            (403, "AccessDenied", Remedy::None),
            (403, "SignatureDoesNotMatch", Remedy::None),
            (404, "NoSuchKey", Remedy::None),
            (412, "PreconditionFailed", Remedy::None),
            (501, "NotImplemented", Remedy::None),
        ] {
            assert_eq!(answer(status, code).remedy(), expected, "{status} {code}");
        }
        let elsewhere = Answer { region: Some("eu-west-1".into()), ..answer(301, "") };
        assert_eq!(elsewhere.remedy(), Remedy::Region("eu-west-1".into()));
    }
}
