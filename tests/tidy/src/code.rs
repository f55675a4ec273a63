//! Rust source with its comments, strings and characters blanked, so that a word found is code.

/// Same lines, same columns of code; everything that is no code is spaces.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + no_code(&bytes[at..], at > 0 && is_word(bytes[at - 1]));
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Length of the comment, string or character that begins here; 0 when code does.
fn no_code(rest: &[u8], inside_word: bool) -> usize {
    if rest.starts_with(b"//") {
        return rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment(rest);
    }
    if !inside_word {
        let prefix = rest.iter().take_while(|byte| matches!(byte, b'b' | b'r' | b'c')).count();
        let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
        let raw = rest[..prefix].contains(&b'r');
        if raw && prefix <= 2 && rest.get(prefix + hashes) == Some(&b'"') {
            let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
            let body = prefix + hashes + 1;
            return find(&rest[body..], &close).map_or(rest.len(), |at| body + at + close.len());
        }
    }
    match rest[0] {
        b'"' => string(rest),
        b'\'' => character(rest),
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `'x'`, `'\n'`, `'\u{e9}'`; a lifetime is code.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return find(&rest[3.min(rest.len())..], b"'").map_or(rest.len(), |at| at + 4);
    }
    // One character of up to four bytes, then the closing quote.
    (2..=5)
        .find(|&at| rest.get(at) == Some(&b'\'') && one_character(&rest[1..at]))
        .map_or(0, |at| at + 1)
}

fn one_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().count() == 1)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Does `code` hold `word` as a word of its own (`unsafe`, not `unsafe_code`)?
pub fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).is_some_and(|at| is_word(code.as_bytes()[at]));
        let after = code.as_bytes().get(at + word.len()).copied().is_some_and(is_word);
        !before && !after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, has_unsafe: bool) {
        assert_eq!(has_word(&code_only(source), "unsafe"), has_unsafe, "{source}");
    }

    #[test]
    fn only_code_counts() {
        check("unsafe { f() }", true);
        check("let a = 'a'; unsafe { f() }", true);
        check("fn f<'a>(x: &'a str) -> &'a str { unsafe { g(x) } }", true);
        check("let q = '\"'; unsafe { f() } let r = '\"';", true);
        check("let s = \"a\\\"b\"; unsafe {}", true);
        check("/* a /* b */ c */ unsafe {}", true);
        check("let s = b'\\''; unsafe {}", true);
        check("// unsafe { f() }", false);
        check("/* unsafe */ fn f() {}", false);
        check("/* a /* b */ unsafe */ fn f() {}", false);
        check("let s = \"unsafe\";", false);
        check("let s = r#\"a \" unsafe\"#;", false);
        check("let s = b\"unsafe \\\" unsafe\";", false);
        check("#![deny(unsafe_code)]", false);
        check("fn not_unsafe() {}", false);
    }
}
