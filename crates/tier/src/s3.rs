//! A bucket as a tier: objects of any S3 server, by requests that cost little CPU.
//!
//! A key of the tier is the object of the same name below the prefix. An object is replaced whole by the
//! server, so the contract's versions come for free, but not its snapshots: a reader that meets a newer
//! version says so ([`crate::TierError::Changed`], found by entity tag). What the writer says besides bytes travels as
//! metadata that s3fs and rclone know too, and comes back from [`crate::Reader::attributes`]; directories
//! and links are objects that stand for them ([`crate::Marks`]).
//!
//! Rooms: [`settings`] and [`credentials`] (what a person says), [`client`] (one request, signed and
//! repeated), `http` (the wire), `sign`, `fault` (what went wrong and what helps), `advice` (what a person reads of it), `list`, `reader`,
//! `upload`, `parts`, `answers` (decoders by themselves), `commit`, `kept` and `multipart`, `sweep`, `etag`, `removal`, `marks`, `checksum`, `probe` (what this server can do),
//! `limits`.
//! Not here: many small objects in one (packs), how many requests at once (`hayase-stage`).
//! Source: Amazon S3 API reference; measured choices in `docs/design`.

mod advice;
#[doc(hidden)]
pub mod answers;
mod aws;
mod checksum;
mod client;
mod commit;
mod credentials;
mod date;
mod etag;
mod fault;
mod http;
mod kept;
mod limits;
mod list;
mod marks;
mod multipart;
mod object;
mod parts;
mod percent;
mod probe;
mod reader;
mod removal;
mod settings;
mod sign;
mod sweep;
mod upload;
mod xml;

use std::sync::Arc;
use std::time::SystemTime;

use hayase_layout::ByteCount;

use self::client::Client;
use self::commit::{Conditional, Obeyed};
pub use self::credentials::{
    ContainerToken, CredentialSource, Credentials, Environment, WebIdentity,
};
pub use self::http::Proxies;
pub use self::settings::{
    Addressing, ConditionalWrites, Encryption, PayloadSignature, S3Settings, SettingsError,
    UploadChecksum,
};
use crate::{
    Action, Attributes, Capabilities, Key, ListRequest, Marks, ObjectMeta, Page, PartsUpload,
    Precondition, Reader, Tier, TierError, Traffic, Upload, UploadOf,
};

/// A bucket, or what lies below a prefix of one.
#[derive(Clone, Debug)]
pub struct S3 {
    client: Arc<Client>,
    conditional: Conditional,
}

impl S3 {
    /// Looks whether the bucket answers, and what the server can do.
    ///
    /// # Errors
    /// `Refused` with the setting to correct (credentials, endpoint, bucket, region, TLS), `Denied`
    /// when the bucket may not be read.
    pub fn attach(settings: S3Settings) -> Result<Self, TierError> {
        let client = Arc::new(Client::new(settings)?);
        let at = client.settings.prefix.clone();
        match client.knock() {
            // Who may not list may still read what they know by name.
            Err(fault) if fault.has_code("AccessDenied") => {}
            answer => answer.map_err(|fault| client.failed(Action::Attach, &at, fault))?,
        }
        let conditional =
            probe::conditional(&client).map_err(|f| client.failed(Action::Attach, &at, f))?;
        Ok(Self { client, conditional })
    }

    /// The whole key of an object; those that S3 can not have are refused.
    fn full(&self, action: Action, key: &Key) -> Result<String, TierError> {
        object::full_key(&self.client.settings, key).map_err(|what| TierError::NotObject {
            action,
            path: format!(
                "s3://{}/{}{key}",
                self.client.settings.bucket, self.client.settings.prefix
            ),
            what,
        })
    }

    /// The same where nothing is to be made: what can not be there is missing.
    fn existing(&self, action: Action, key: &Key) -> Result<String, TierError> {
        self.full(action, key).map_err(|error| match error {
            TierError::NotObject { action, path, .. } => TierError::Missing { action, path },
            other => other,
        })
    }
}

impl Tier for S3 {
    fn capabilities(&self) -> Capabilities {
        let part = self.client.settings.part_bytes;
        Capabilities {
            attributes: false,
            snapshots: false,
            any_bytes: false,
            write_window: Some(part),
            resumes: self.client.settings.kept_in.is_some(),
            absent_max: match self.conditional.absent {
                Obeyed::Never => None,
                Obeyed::Single => Some(part),
                Obeyed::Always => Some(ByteCount(u64::MAX)),
            },
            compares: self.conditional.matches == Obeyed::Always,
            ..Capabilities::CORE
        }
    }

    fn describe(&self) -> String {
        let settings = &self.client.settings;
        format!("s3://{}/{} at {}", settings.bucket, settings.prefix, self.client.endpoint())
    }

    fn endpoint(&self) -> Option<String> {
        Some(self.client.endpoint())
    }

    fn traffic(&self) -> Traffic {
        self.client.traffic()
    }

    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        list::page(&self.client, request)
    }

    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        let full = self.existing(Action::Stat, key)?;
        object::head(&self.client, &full)
            .map(|seen| seen.meta)
            .map_err(|fault| self.client.failed(Action::Stat, &full, fault))
    }

    fn stat_as_written(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        let full = self.existing(Action::Stat, key)?;
        let seen = object::head(&self.client, &full)
            .map_err(|fault| self.client.failed(Action::Stat, &full, fault))?;
        let Attributes { mode, mtime } = seen.told.attributes;
        let (mode, mtime) = (mode.unwrap_or(seen.meta.mode), mtime.unwrap_or(seen.meta.mtime));
        Ok(ObjectMeta { mode, mtime, ..seen.meta })
    }

    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        let full = self.existing(Action::Open, key)?;
        reader::open(&self.client, full)
    }

    fn open_listed(&self, key: &Key, meta: ObjectMeta) -> Result<Box<dyn Reader>, TierError> {
        let full = self.existing(Action::Open, key)?;
        Ok(reader::listed(&self.client, full, meta))
    }

    fn put(
        &self,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        precondition: Precondition,
    ) -> Result<ObjectMeta, TierError> {
        let full = self.full(Action::Commit, key)?;
        upload::put(&self.client, &full, attributes, data, (precondition, self.conditional))
    }

    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        let full = self.full(Action::Begin, key)?;
        Ok(upload::begin(&self.client, full, attributes, self.conditional))
    }

    fn upload_memory(&self, size: u64) -> u64 {
        upload::memory(&self.client, size)
    }

    fn begin_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        sizes: (u64, u64),
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        let full = self.full(Action::Begin, key)?;
        parts::begin(&self.client, full, attributes, sizes, self.conditional)
    }

    fn resume_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        of: UploadOf,
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        let full = self.full(Action::Begin, key)?;
        parts::resume(&self.client, full, attributes, of, self.conditional)
    }

    fn unfinished_part_bytes(&self, key: &Key, size: u64) -> Option<u64> {
        let full = self.existing(Action::Begin, key).ok()?;
        kept::unfinished_part_bytes(&self.client, &full, size)
    }

    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.stat(key)?;
        if attributes == Attributes::default() {
            return Ok(());
        }
        // Only a copy onto itself could do it, which changes the version under every reader.
        let path =
            format!("s3://{}/{}{key}", self.client.settings.bucket, self.client.settings.prefix);
        Err(TierError::Unsupported { action: Action::SetAttributes, path })
    }

    fn delete(&self, key: &Key) -> Result<(), TierError> {
        let full = self.existing(Action::Delete, key)?;
        removal::any(&self.client, &full)
            .map_err(|fault| self.client.failed(Action::Delete, &full, fault))
    }

    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        let full = self.existing(Action::Delete, key)?;
        removal::version(&self.client, &full, identity, self.conditional.removals)
            .map_err(|fault| self.client.failed(Action::Delete, &full, fault))
    }

    fn marks(&self) -> Option<&dyn Marks> {
        Some(self)
    }

    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        sweep::sweep(&self.client, prefix, before)
    }
}
