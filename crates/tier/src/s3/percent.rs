//! Percent encoding as signatures want it, and decoding as listings need it.
//!
//! Source: Amazon S3 API reference, "Authenticating requests (AWS signature version 4)", UriEncode;
//! RFC 3986, section 2.3.

/// Unreserved bytes stay, all others become `%XX` with capital letters; `/` stays where asked.
pub(super) fn encode(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for &byte in text.as_bytes() {
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if unreserved || (keep_slash && byte == b'/') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(hex_digit(byte >> 4));
            encoded.push(hex_digit(byte & 15));
        }
    }
    encoded
}

fn hex_digit(nibble: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(nibble)])
}

/// Undoes the encoding of listings (`encoding-type=url`), where a space may be `+`. What is no
/// valid escape stays as it is.
pub(super) fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let value = escape
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_unreserved_bytes_stay() {
        assert_eq!(encode("a-b_c.d~e/f", true), "a-b_c.d~e/f");
        assert_eq!(encode("a/b c+d%\u{e9}", false), "a%2Fb%20c%2Bd%25%C3%A9");
        assert_eq!(decode("a+b%2Bc%zz%"), b"a b+c%zz%");
    }

    proptest! {
        #[test]
        fn decoding_gives_the_text_back(text in any::<String>(), keep: bool) {
            let encoded = encode(&text, keep);
            prop_assert!(encoded.bytes().all(|b| b.is_ascii_graphic()));
            prop_assert_eq!(decode(&encoded), text.as_bytes());
        }

        #[test]
        fn decoding_anything_does_not_panic(text in any::<String>()) {
            let _ = decode(&text);
        }
    }
}
