//! What can go wrong with a request, and what helps. Not here: what a person reads of it ([`super::advice`]).
//!
//! Source: Amazon S3 API reference, "List of error codes"; what radosgw and MinIO answer besides.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use super::date;
use super::http::Exchange;
use super::limits::WHOLE_READS_MAX;
use super::xml::Element;

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
    pub(super) message: String,
    pub(super) region: Option<String>,
    pub(super) location: Option<String>,
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
    pub(super) fn is_unsupported(&self) -> bool {
        self.status == 501 || self.code == "NotImplemented"
    }

    pub(super) fn remedy(&self) -> Remedy {
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
}

/// Neither of certificates nor refused by a proxy.
fn is_worth_another(error: &io::Error) -> bool {
    tls_fault(error).is_none() && error.kind() != io::ErrorKind::PermissionDenied
}

/// What TLS complains of, where that is the reason.
pub(super) fn tls_fault(error: &io::Error) -> Option<String> {
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
