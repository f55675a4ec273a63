//! What a caller of the tier can branch on, and what a person reads and can do, when a request has failed.
//!
//! Source: Amazon S3 API reference, "List of error codes"; what radosgw, MinIO and versitygw answer besides.

use std::io;

use super::client::Client;
use super::credentials::CredentialSource;
use super::fault::{Answer, Fault, Remedy, tls_fault};
use crate::{Action, TierError};

impl Client {
    /// The error that a caller of the tier sees.
    pub(super) fn failed(&self, action: Action, key: &str, fault: Fault) -> TierError {
        let path = format!("s3://{}/{key}", self.settings.bucket);
        fault.into_tier_error(action, path, self)
    }
}

impl Fault {
    /// Sorts it into what a caller can branch on, with what a person can do.
    fn into_tier_error(self, action: Action, path: String, client: &Client) -> TierError {
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
