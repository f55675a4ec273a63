//! Directories and symbolic links as objects: `dir/` without bytes, and a mode that says "link".

use super::S3;
use super::client::Request;
use super::object::{self, Stands};
use super::upload;
use crate::{Action, Attributes, Key, Marks, TierError};

/// By which other tools know a directory.
const DIRECTORY_TYPE: &str = "application/x-directory";

/// Permission bits of a mark whose writer did not say any.
const DIRECTORY_MODE: u32 = 0o755;
const LINK_MODE: u32 = 0o777;

impl S3 {
    /// The key of a directory's mark.
    fn mark(&self, action: Action, key: &Key) -> Result<String, TierError> {
        let full = format!("{}/", self.full(action, key)?);
        object::check_length(&full).map_err(|what| TierError::NotObject {
            action,
            path: format!("s3://{}/{full}", self.client.settings.bucket),
            what,
        })?;
        Ok(full)
    }

    fn put_mark(
        &self,
        action: Action,
        full: &str,
        (stands, attributes): (Stands, Attributes),
        bytes: &[u8],
    ) -> Result<(), TierError> {
        let mut headers = self.client.encryption_headers(true);
        headers.extend(object::attribute_headers(stands, attributes));
        if stands == Stands::Directory {
            headers.push(("content-type".into(), DIRECTORY_TYPE.into()));
        }
        let failed = |fault| self.client.failed(action, full, fault);
        upload::put_mark(&self.client, full, headers, bytes).map_err(failed)
    }
}

fn with_mode(attributes: Attributes, mode: u32) -> Attributes {
    Attributes { mode: attributes.mode.or(Some(mode)), ..attributes }
}

impl Marks for S3 {
    fn directory(&self, key: &Key) -> Result<Attributes, TierError> {
        let full = self.mark(Action::Directory, key)?;
        let seen = object::head(&self.client, &full)
            .map_err(|fault| self.client.failed(Action::Directory, &full, fault))?;
        Ok(seen.told.attributes)
    }

    fn mark_directory(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        let full = self.mark(Action::MakeDirectory, key)?;
        let attributes = with_mode(attributes, DIRECTORY_MODE);
        self.put_mark(Action::MakeDirectory, &full, (Stands::Directory, attributes), b"")
    }

    fn unmark_directory(&self, key: &Key) -> Result<(), TierError> {
        let full = self.mark(Action::Delete, key)?;
        let request = Request::new("DELETE", Some(&full));
        self.client
            .call(&request, self.client.settings.attempts, |_| Ok(()))
            .map_err(|fault| self.client.failed(Action::Delete, &full, fault))
    }

    fn mark_link(&self, key: &Key, target: &[u8], attributes: Attributes) -> Result<(), TierError> {
        let full = self.full(Action::MakeLink, key)?;
        let attributes = with_mode(attributes, LINK_MODE);
        self.put_mark(Action::MakeLink, &full, (Stands::Link, attributes), target)
    }
}
