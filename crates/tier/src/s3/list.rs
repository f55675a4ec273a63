//! Listings: pages of ours made of pages of the server, in bounded memory.
//!
//! Names travel percent-encoded, since XML can not hold all of them. Each page of the server is checked
//! for order; the next page of ours begins behind the last name of this one, not at a token of the server.

use super::client::{Client, Request};
use super::fault::Fault;
use super::limits::KEYS_PER_PAGE;
use super::xml::Element;
use super::{date, object, percent};
use crate::key::is_temporary;
use crate::{Action, Depth, Entry, EntryKind, Key, ListRequest, ObjectMeta, Page, TierError};

/// One name of a server's page.
#[derive(Debug)]
pub(super) struct Listed {
    /// The whole key, or what several keys begin with.
    name: Vec<u8>,
    /// `None`: several keys begin so.
    meta: Option<ObjectMeta>,
}

/// A page of the server, in order.
#[derive(Debug)]
pub(super) struct ServerPage {
    pub(super) names: Vec<Listed>,
    /// Where the next begins.
    pub(super) token: Option<String>,
}

pub(super) fn page(client: &Client, request: &ListRequest) -> Result<Page, TierError> {
    let root = client.settings.prefix.as_bytes();
    let Some(prefix) = utf8(root, &request.prefix) else { return Ok(Page::default()) };
    let limit = request.bounded_limit();
    let start = request.after.as_ref().map(|after| start_after(root, after, request.depth));
    let failed = |fault| client.failed(Action::List, &prefix, fault);
    let mut token: Option<String> = None;
    let mut entries: Vec<Entry> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    loop {
        let wanted = (limit - entries.len()).min(KEYS_PER_PAGE);
        let mut question = Request::new("GET", None)
            .query("list-type", "2")
            .query("encoding-type", "url")
            .query("max-keys", wanted.to_string())
            .query("prefix", prefix.clone());
        if request.depth == Depth::One {
            question = question.query("delimiter", "/");
        }
        question = match (&token, &start) {
            (Some(token), _) => question.query("continuation-token", token.clone()),
            (None, Some(start)) => question.query("start-after", start.clone()),
            (None, None) => question,
        };
        let page = ask(client, &question).map_err(failed)?;
        for listed in page.names {
            if listed.name < last {
                return Err(failed(Fault::Corrupt("the server lists names out of order".into())));
            }
            let again = std::mem::replace(&mut last, listed.name.clone()) == listed.name;
            let entry = entry(root, request, &listed).filter(|_| !again);
            let ahead = |entry: &Entry| request.after.as_ref().is_none_or(|a| entry.name > *a);
            let Some(entry) = entry.filter(ahead) else { continue };
            if entries.len() == limit {
                return Ok(Page { next: entries.last().map(|entry| entry.name.clone()), entries });
            }
            entries.push(entry);
        }
        match page.token {
            None => return Ok(Page { entries, next: None }),
            // Whether there is more than the token's promise is asked with the next page.
            Some(_) if entries.len() == limit => {
                return Ok(Page { next: entries.last().map(|entry| entry.name.clone()), entries });
            }
            Some(next) if token.as_ref() == Some(&next) => {
                return Err(failed(Fault::Corrupt("the server's listing does not move on".into())));
            }
            next => token = next,
        }
    }
}

/// A prefix of whole keys; `None` when no key can begin so.
fn utf8(root: &[u8], prefix: &[u8]) -> Option<String> {
    String::from_utf8([root, prefix].concat()).ok()
}

/// Of one level: behind a directory's name comes what lies behind all that is in it; names that come again
/// for another reason are left out by [`page`].
fn start_after(root: &[u8], after: &[u8], depth: Depth) -> String {
    let whole = [root, after].concat();
    // Behind bytes that no name of the server holds the server can not begin, only before them.
    let text = whole.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let is_passed = depth == Depth::One && text.len() == whole.len() && text.ends_with('/');
    let behind = if is_passed { "\u{10ffff}" } else { "" };
    format!("{text}{behind}")
}

fn ask(client: &Client, question: &Request<'_>) -> Result<ServerPage, Fault> {
    client.call(question, client.settings.attempts, |exchange| {
        let document = exchange.document().map_err(Fault::Transport)?;
        let root = Element::parse(&document).map_err(|why| {
            Fault::Corrupt(format!("cannot parse the listing of the server: {why}"))
        })?;
        parse(&root).map_err(Fault::Corrupt)
    })
}

pub(super) fn parse(root: &Element) -> Result<ServerPage, String> {
    let encoded = root.text_of("EncodingType") == Some("url");
    let decode = |text: &str| {
        if encoded { percent::decode(text) } else { text.as_bytes().to_vec() }
    };
    let mut names = Vec::new();
    for object in root.all("Contents") {
        let name = decode(object.text_of("Key").ok_or("a listed object has no name")?);
        let size = object.text_of("Size").and_then(|size| size.parse().ok());
        let size = size.ok_or("a listed object has no size")?;
        let modified = object.text_of("LastModified").and_then(date::parse_rfc3339);
        let meta = object::meta(size, modified, object.text_of("ETag"));
        names.push(Listed { name, meta: Some(meta) });
    }
    for prefix in root.all("CommonPrefixes") {
        let name = decode(prefix.text_of("Prefix").ok_or("a listed prefix has no name")?);
        names.push(Listed { name, meta: None });
    }
    names.sort_by(|a, b| a.name.cmp(&b.name));
    let truncated = root.text_of("IsTruncated") == Some("true");
    let token = root.text_of("NextContinuationToken").map(str::to_owned);
    match (truncated, token) {
        (true, None) => Err("the server's listing is cut off without a way to go on".into()),
        (true, token) => Ok(ServerPage { names, token }),
        (false, _) => Ok(ServerPage { names, token: None }),
    }
}

/// What a name is to a caller of the tier; `None` when it is not to be seen.
fn entry(root: &[u8], request: &ListRequest, listed: &Listed) -> Option<Entry> {
    let name = listed.name.strip_prefix(root)?.to_vec();
    let hidden = name.split(|&byte| byte == b'/').any(is_temporary);
    // An empty object `dir/` stands for the directory, and the one asked for is not in itself.
    let directory = name.strip_suffix(b"/");
    let marks = directory.is_some() && listed.meta.is_none_or(|meta| meta.size.get() == 0);
    let itself = marks && name == request.prefix;
    let unasked = marks && request.depth == Depth::All && !request.marks;
    if name.is_empty() || hidden || itself || unasked {
        return None;
    }
    let kind = match (Key::new(directory.unwrap_or(&name)), listed.meta) {
        (Err(_), _) => EntryKind::Other("its name cannot be a file name"),
        (Ok(_), _) if marks => EntryKind::Directory,
        (Ok(_), Some(_)) if directory.is_some() => EntryKind::Other("its name ends with a slash"),
        (Ok(_), Some(meta)) => EntryKind::Object(meta),
        (Ok(_), None) => EntryKind::Other("the server lists it as a prefix without a slash"),
    };
    Some(Entry { name, kind })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(root: &str, request: &ListRequest, name: &str, size: Option<u64>) -> String {
        let meta = size.map(|size| object::meta(size, None, None));
        match entry(root.as_bytes(), request, &Listed { name: name.into(), meta }) {
            None => "-".into(),
            Some(Entry { name, kind: EntryKind::Object(_) }) => String::from_utf8(name).unwrap(),
            Some(Entry { name, kind: EntryKind::Directory }) => {
                format!("dir {}", String::from_utf8(name).unwrap())
            }
            Some(Entry { kind: EntryKind::Other(why), .. }) => why.into(),
        }
    }

    #[test]
    fn names_are_objects_directories_or_neither() {
        let (all, one) = (ListRequest::all("d/"), ListRequest::one_level("d/"));
        let marked = ListRequest { marks: true, ..ListRequest::all("d/") };
        let strange = "its name cannot be a file name";
        for (request, name, size, expected) in [
            (&all, "p/d/a", Some(5), "d/a"),
            (&all, "p/d/", Some(0), "-"),
            (&all, "p/d/e/", Some(0), "-"),
            (&marked, "p/d/e/", Some(0), "dir d/e/"),
            (&marked, "p/d/", Some(0), "-"),
            (&one, "p/d/", Some(0), "-"),
            (&one, "p/d/e/", None, "dir d/e/"),
            (&all, "p/d/e/", Some(7), "its name ends with a slash"),
            (&all, "p/d//x", Some(7), strange),
            (&all, "p/d/../x", Some(7), strange),
            (&one, "p/d//", None, strange),
            (&all, "p/d/.hayase-partial-probe-1", Some(1), "-"),
            (&one, "p/d/.hayase-partial-1/", None, "-"),
            (&all, "elsewhere", Some(1), "-"),
        ] {
            assert_eq!(seen("p/", request, name, size), expected, "{name}");
        }
    }

    #[test]
    fn the_next_page_begins_behind_a_whole_directory() {
        assert_eq!(start_after(b"p/", b"a", Depth::One), "p/a");
        // What lies in a directory that is marked comes after the mark.
        assert_eq!(start_after(b"p/", b"d/", Depth::All), "p/d/");
        let behind = start_after(b"p/", b"d/", Depth::One);
        assert!(behind.as_str() > "p/d/\u{10fffe}" && behind.as_str() < "p/d0");
        assert_eq!(start_after(b"p/", b"d\x80/", Depth::One), "p/d");
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(
            parts in prop::collection::vec(("[a-z]{1,3}|Contents|CommonPrefixes", any_field(), any_field()), 0..9),
            top in prop::collection::vec(any_field(), 0..4),
        ) {
            let inner: String = parts.iter().map(|(name, a, b)| format!("<{name}>{a}{b}</{name}>")).collect();
            let document = format!("<R>{}{inner}</R>", top.concat());
            if let Ok(page) = parse(&Element::parse(document.as_bytes()).unwrap()) {
                prop_assert!(page.names.is_sorted_by(|a, b| a.name <= b.name));
            }
        }
    }

    /// A field of a listing with a text that fits, or does not.
    fn any_field() -> impl Strategy<Value = String> {
        let name =
            "Key|Size|Prefix|ETag|LastModified|IsTruncated|EncodingType|NextContinuationToken";
        (name, "true|url|[0-9]{1,25}|%[0-9a-f]{0,2}|[a-z+/]{0,4}")
            .prop_map(|(name, text)| format!("<{name}>{text}</{name}>"))
    }

    #[test]
    fn listings_are_read_or_refused() {
        let parsed = |text: &str| parse(&Element::parse(text.as_bytes()).unwrap());
        let good = "<R><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
                    <NextContinuationToken>t</NextContinuationToken>\
                    <Contents><Key>b%2B+c</Key><Size>3</Size></Contents>\
                    <CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></R>";
        let page = parsed(good).unwrap();
        let names: Vec<_> = page.names.iter().map(|listed| listed.name.as_slice()).collect();
        assert_eq!((names, page.token.as_deref()), (vec![&b"a/"[..], b"b+ c"], Some("t")));
        assert!(parsed("<R><IsTruncated>true</IsTruncated></R>").is_err());
        assert!(parsed("<R><Contents><Key>a</Key></Contents></R>").is_err());
        assert!(parsed("<R><Contents><Size>1</Size></Contents></R>").is_err());
    }
}
