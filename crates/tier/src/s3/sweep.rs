//! Uploads in parts that others left: found in the server's list, and given up when they are old and nobody's.

use std::time::SystemTime;

use super::client::{Client, Request};
use super::fault::Fault;
use super::limits::KEYS_PER_PAGE;
use super::multipart::{abort, document};
use super::xml::Element;
use super::{date, kept, percent};
use crate::{Action, TierError};

/// Gives up uploads below `prefix` that were begun before `before`.
pub(super) fn sweep(
    client: &Client,
    prefix: &[u8],
    before: SystemTime,
) -> Result<usize, TierError> {
    let prefix = [client.settings.prefix.as_bytes(), prefix].concat();
    let Ok(prefix) = String::from_utf8(prefix) else { return Ok(0) };
    kept::sweep(client, &prefix, before);
    let failed = |fault| client.failed(Action::Sweep, &prefix, fault);
    let mut markers: Option<(String, String)> = None;
    let mut swept = 0;
    loop {
        let page = uploads(client, &prefix, markers.as_ref()).map_err(failed)?;
        for upload in page.all("Upload") {
            let begun = upload.text_of("Initiated").and_then(date::parse_rfc3339);
            let name = upload.text_of("Key").map(|key| name_of(&page, key));
            let named = name.zip(upload.text_of("UploadId"));
            let is_old = begun.is_some_and(|begun| begun < client.by_server(before));
            if let Some((key, id)) = named.filter(|(key, _)| is_old && !kept::is_live(client, key))
            {
                match abort(client, &key, id) {
                    Err(fault) if fault.has_code("NoSuchUpload") => {}
                    answer => answer.map(|()| swept += 1).map_err(failed)?,
                }
            }
        }
        if page.text_of("IsTruncated") != Some("true") {
            return Ok(swept);
        }
        let key = page.text_of("NextKeyMarker").map(|key| name_of(&page, key)).unwrap_or_default();
        let next = (key, page.text_of("NextUploadIdMarker").unwrap_or_default().to_owned());
        if markers.as_ref() == Some(&next) {
            return Err(failed(Fault::Corrupt("the server's listing does not move on".into())));
        }
        markers = Some(next);
    }
}

fn name_of(page: &Element, key: &str) -> String {
    match page.text_of("EncodingType") {
        Some("url") => String::from_utf8_lossy(&percent::decode(key)).into_owned(),
        _ => key.to_owned(),
    }
}

fn uploads(
    client: &Client,
    prefix: &str,
    markers: Option<&(String, String)>,
) -> Result<Element, Fault> {
    let mut request = Request::new("GET", None)
        .query("uploads", "")
        .query("encoding-type", "url")
        .query("max-uploads", KEYS_PER_PAGE.to_string())
        .query("prefix", prefix);
    if let Some((key, id)) = markers {
        request = request.query("key-marker", key.clone()).query("upload-id-marker", id.clone());
    }
    client.call(&request, client.settings.attempts, |exchange| {
        document(&exchange.document().map_err(Fault::Transport)?)
    })
}
