//! XML answers as a small tree; depth and size are bounded.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

use super::limits::XML_DEPTH_MAX;

/// An element without its attributes and name space, of which S3 says nothing we need.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Element {
    pub(super) name: String,
    /// All text directly inside.
    pub(super) text: String,
    pub(super) children: Vec<Element>,
}

impl Element {
    /// Reads a document; an explanation when it is none.
    pub(super) fn parse(document: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(document).map_err(|_| "it is not UTF-8")?;
        let mut reader = Reader::from_str(text);
        let mut open = vec![Self::default()];
        loop {
            let event = reader.read_event().map_err(|error| error.to_string())?;
            let top = open.last_mut().expect("the document itself is never closed");
            match event {
                Event::Start(tag) => {
                    if open.len() > XML_DEPTH_MAX {
                        return Err("it is nested too deeply".into());
                    }
                    open.push(Self::named(tag.local_name().as_ref()));
                }
                Event::Empty(tag) => top.children.push(Self::named(tag.local_name().as_ref())),
                Event::End(_) => {
                    let done = open.pop().expect("the reader checks that tags match");
                    open.last_mut().ok_or("it closes what it did not open")?.children.push(done);
                }
                Event::Text(text) => {
                    top.text.push_str(&text.decode().map_err(|error| error.to_string())?);
                }
                Event::CData(data) => {
                    top.text.push_str(&data.decode().map_err(|error| error.to_string())?);
                }
                Event::GeneralRef(reference) => top.text.push_str(&resolve(&reference)?),
                Event::Eof => break,
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) | Event::DocType(_) => {}
            }
        }
        let mut roots = open.pop().map(|document| document.children).unwrap_or_default();
        match (open.is_empty(), roots.pop(), roots.is_empty()) {
            (true, Some(root), true) => Ok(root),
            _ => Err("it is cut off, or holds no element".into()),
        }
    }

    fn named(name: &[u8]) -> Self {
        Self { name: String::from_utf8_lossy(name).into_owned(), ..Self::default() }
    }

    /// Children of this name, in order.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Text of the first child of this name.
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Some(letter) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(letter.into());
    }
    let name = reference.decode().map_err(|error| error.to_string())?;
    let known = resolve_predefined_entity(&name).map(str::to_owned);
    known.ok_or_else(|| format!("it holds the unknown entity &{name};"))
}

/// Text between tags.
pub(super) fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_keep_their_text_and_order() {
        let document =
            b"<?xml version=\"1.0\"?>\n<a xmlns=\"u\"><b>1 &amp; &#x41;</b><c/><b>2</b></a>";
        let root = Element::parse(document).unwrap();
        assert_eq!(root.text_of("b"), Some("1 & A"));
        assert_eq!(root.all("b").map(|b| b.text.as_str()).collect::<Vec<_>>(), ["1 & A", "2"]);
        assert_eq!(
            (root.name.as_str(), root.text_of("c"), root.text_of("d")),
            ("a", Some(""), None)
        );
    }

    #[test]
    fn broken_documents_are_explained() {
        let deep = "<a>".repeat(100);
        for bad in ["", "text", "<a>", "<a></b>", "<a/><b/>", "<a>&x;</a>", "</a>", &deep] {
            assert!(Element::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Element::parse(b"<a>\xff</a>").is_err());
    }

    proptest! {
        #[test]
        fn text_survives_escaping(text in "[^\\x00-\\x1f]*") {
            let document = format!("<a><k>{}</k></a>", escape(&text));
            let root = Element::parse(document.as_bytes()).unwrap();
            prop_assert_eq!(root.text_of("k"), Some(text.as_str()));
        }
    }
}
