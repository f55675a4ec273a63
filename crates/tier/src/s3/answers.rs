//! What a server answers, decoded without a server: for `fuzz/`, which sends broken and hostile bytes.

use std::io;

use super::credentials;
use super::http;
use super::list;
use super::xml::Element;

/// Names of the listing in an XML document, and whether more follow.
///
/// # Errors
/// Why it is not a listing.
pub fn listing(document: &[u8]) -> Result<(usize, bool), String> {
    let page = list::parse(&Element::parse(document)?)?;
    Ok((page.names.len(), page.token.is_some()))
}

/// Status and length of the head of an HTTP answer; `None` where it is not complete.
///
/// # Errors
/// Why it is not a head.
pub fn head(bytes: &[u8]) -> io::Result<Option<(u16, usize)>> {
    Ok(http::parse_head(bytes)?.map(|(head, length)| (head.status, length)))
}

/// Whether the keys in an answer end, read as each of the three: what a `credential_process` prints, what a token service
/// answers, what a sign-on service answers. Or why they are none.
pub fn keys(text: &str) -> [Result<bool, String>; 3] {
    credentials::parsed(text).map(|keys| keys.map(|keys| keys.expires.is_some()))
}
