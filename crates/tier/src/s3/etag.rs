//! Entity tags, by which a server names the version of an object.

/// An entity tag without its quotes, which some servers leave out.
pub(super) fn bare(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}
