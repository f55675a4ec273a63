//! Words and signs of Rust source, with the code of tests left out: enough to see items, paths and parameters.
//!
//! Not here: a grammar. A rule looks at a few words around a place; what it takes for a path or an
//! item is said there. Input is what [`crate::code_only`] leaves.

/// A word (`node`, `impl`, `0x10`), a sign (`{`), or one of the pairs `::`, `->`, `=>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// As it stands in the source.
    pub text: &'a str,
    /// Its first byte in the source.
    pub at: usize,
}

impl Token<'_> {
    /// A name or a keyword, not a sign or a number.
    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// All of them, in order. A lifetime is one token, with its quote.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let len = token_len(rest, first);
        let at = code.len() - rest.len();
        if !first.is_whitespace() {
            found.push(Token { text: &code[at..at + len], at });
        }
        rest = &rest[len..];
    }
    found
}

fn token_len(rest: &str, first: char) -> usize {
    let word_end = |from: usize| {
        let end = rest[from..].find(|c: char| !c.is_alphanumeric() && c != '_');
        end.map_or(rest.len(), |end| from + end)
    };
    if first.is_alphanumeric() || first == '_' {
        return word_end(0);
    }
    if first == '\'' {
        return word_end(1).max(1);
    }
    let pair = ["::", "->", "=>"].into_iter().any(|pair| rest.starts_with(pair));
    if pair { 2 } else { first.len_utf8() }
}

/// The place after the bracket that closes the one at `open`; the end when none does.
pub fn after_bracket(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The place after generics `<..>` that begin at `open`; `open` itself when none do.
pub fn after_generics(tokens: &[Token<'_>], open: usize) -> usize {
    if tokens.get(open).is_none_or(|token| token.text != "<") {
        return open;
    }
    let (mut depth, mut at) = (0, open);
    while at < tokens.len() {
        match tokens[at].text {
            "<" => depth += 1,
            ">" => depth -= 1,
            // A constant in braces, the arguments of `Fn(..)`, an array.
            "(" | "[" | "{" => at = after_bracket(tokens, at) - 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// `code` with every item blanked that is compiled for tests only; all of it when the file begins
/// with `#![cfg(test)]`. Lines and columns stay.
pub fn without_tests(code: &str) -> String {
    let tokens = tokens(code);
    let mut bytes = code.as_bytes().to_vec();
    let mut at = 0;
    while at < tokens.len() {
        let Some((end, inner)) = attribute(&tokens, at) else {
            at += 1;
            continue;
        };
        if !is_for_tests(&tokens[at..end]) {
            at = end;
            continue;
        }
        let stop = if inner { tokens.len() } else { after_item(&tokens, end) };
        let last = tokens.get(stop).map_or(code.len(), |token| token.at);
        for byte in bytes[tokens[at].at..last].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
        at = stop;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of the attribute that begins at `at`, and whether it is one of what is around it (`#![..]`).
fn attribute(tokens: &[Token<'_>], at: usize) -> Option<(usize, bool)> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.text == text);
    let inner = is(at + 1, "!");
    let open = at + 1 + usize::from(inner);
    (is(at, "#") && is(open, "[")).then(|| (after_bracket(tokens, open), inner))
}

/// `#[cfg(test)]`, `#[cfg(all(test, ..))]`, `#[cfg(any(test, ..))]`; not `#[cfg(not(test))]`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let has = |word: &str| attribute.iter().any(|token| token.text == word);
    has("cfg") && has("test") && !has("not")
}

/// The place after the item, field or statement that begins at `at`, its other attributes among it.
fn after_item(tokens: &[Token<'_>], mut at: usize) -> usize {
    while let Some((end, _)) = attribute(tokens, at) {
        at = end;
    }
    let start = at;
    let mut kind = start;
    if tokens.get(kind).is_some_and(|token| token.text == "pub") {
        kind += 1;
        if tokens.get(kind).is_some_and(|token| token.text == "(") {
            kind = after_bracket(tokens, kind);
        }
    }
    let kind = tokens.get(kind).map_or("", |token| token.text);
    let has_value = ["use", "const", "static", "let", "type"].contains(&kind);
    let has_body = [
        "fn",
        "impl",
        "mod",
        "struct",
        "enum",
        "trait",
        "unsafe",
        "async",
        "extern",
        "macro_rules",
    ]
    .contains(&kind);
    while at < tokens.len() {
        match tokens[at].text {
            ";" => return at + 1,
            "," if !has_value && !has_body => return at + 1,
            ")" | "]" | "}" => return at,
            "{" if !has_value => return after_bracket(tokens, at),
            "(" | "[" | "{" => at = after_bracket(tokens, at),
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(code: &str) -> Vec<&str> {
        tokens(code).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn words_and_signs_are_told_apart() {
        assert_eq!(words("a::b->c=>d"), ["a", "::", "b", "->", "c", "=>", "d"]);
        assert_eq!(words("&'a str, x_1"), ["&", "'a", "str", ",", "x_1"]);
        assert_eq!(words("0x10..n"), ["0x10", ".", ".", "n"]);
    }

    #[test]
    fn brackets_and_generics_end() {
        let code = tokens("<A, F: Fn(A) -> B, const N: usize> x");
        assert_eq!(code[after_generics(&code, 0)].text, "x");
        let code = tokens("{ a { b } } c");
        assert_eq!(code[after_bracket(&code, 0)].text, "c");
    }

    #[test]
    fn code_of_tests_is_left_out() {
        let check = |code: &str, left: &[&str]| assert_eq!(words(&without_tests(code)), left);
        check("a; #[cfg(test)] mod tests { b } c", &["a", ";", "c"]);
        check("#[cfg(test)] use x::{y}; c", &["c"]);
        check("#[cfg(test)] #[derive(Debug)] pub(crate) struct X<A, B> { a: A } c", &["c"]);
        check("{ #[cfg(test)] pub(crate) a: X, b }", &["{", "b", "}"]);
        check("{ #[cfg(test)] a: X }", &["{", "}"]);
        check("#[cfg(any(test, x))] const A: B = B { c }; d", &["d"]);
        check(
            "#[cfg(not(test))] a",
            &["#", "[", "cfg", "(", "not", "(", "test", ")", ")", "]", "a"],
        );
        check("#![cfg(test)] a; b", &[]);
    }
}
