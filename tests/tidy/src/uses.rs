//! What `use` brings in, and paths in code: `use a::{b, c::{self, D as E}, f::*};`, `crate::a::b(..)`.

use crate::token::{Token, after_bracket};

/// One name of a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// Words of the path: `["crate", "a", "B"]`.
    pub(crate) path: Vec<String>,
    /// How it is called here; `None` for all names of the path (`*`).
    pub(crate) name: Option<String>,
    /// Offered to others (`pub use`, `pub(crate) use`), not needed here.
    pub(crate) offered: bool,
}

/// The imports of the `use` whose keyword is at `at`, and the place after it.
pub(crate) fn imports(tokens: &[Token<'_>], at: usize) -> (Vec<Import>, usize) {
    let offered = at > 0 && matches!(tokens[at - 1].text, "pub" | ")");
    let end =
        tokens[at..].iter().position(|token| token.text == ";").map_or(tokens.len(), |n| at + n);
    let mut found = Vec::new();
    tree(&tokens[at + 1..end], &[], offered, &mut found);
    (found, end)
}

fn tree(tokens: &[Token<'_>], before: &[String], offered: bool, found: &mut Vec<Import>) {
    let mut path = before.to_vec();
    let mut name = None;
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].text {
            "::" => {}
            "{" => {
                let end = after_bracket(tokens, at);
                for part in parts(&tokens[at + 1..end - 1]) {
                    tree(part, &path, offered, found);
                }
                return;
            }
            "*" => {
                found.push(Import { path, name: None, offered });
                return;
            }
            "as" => {
                name = tokens.get(at + 1).map(|token| token.text.to_owned());
                break;
            }
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    let name = name.or_else(|| path.last().cloned());
    if !path.is_empty() {
        found.push(Import { path, name, offered });
    }
}

/// What commas divide, outside of brackets.
fn parts<'a, 'b>(tokens: &'a [Token<'b>]) -> Vec<&'a [Token<'b>]> {
    let (mut found, mut start, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        match tokens[at].text {
            "{" => at = after_bracket(tokens, at) - 1,
            "," => {
                found.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    found.push(&tokens[start..]);
    found
}

/// The words of the path that begins at `at` (`a::b::C`, without generics); empty in the middle of one.
pub(crate) fn path_at(tokens: &[Token<'_>], at: usize) -> Vec<String> {
    let inside = at > 0 && matches!(tokens[at - 1].text, "::" | ".");
    if inside || !tokens[at].is_word() {
        return Vec::new();
    }
    let mut path = vec![tokens[at].text.to_owned()];
    let mut next = at + 1;
    while next + 1 < tokens.len() && tokens[next].text == "::" && tokens[next + 1].is_word() {
        path.push(tokens[next + 1].text.to_owned());
        next += 2;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    fn check(code: &str, expected: &[&str]) {
        let tokens = tokens(code);
        let at = tokens.iter().position(|token| token.text == "use").unwrap();
        let (found, _) = imports(&tokens, at);
        let told = |import: &Import| {
            let name = import.name.as_deref().unwrap_or("*");
            let offered = if import.offered { "pub " } else { "" };
            format!("{offered}{}={name}", import.path.join("/"))
        };
        assert_eq!(found.iter().map(told).collect::<Vec<_>>(), expected, "{code}");
    }

    #[test]
    fn trees_of_imports_are_spread_out() {
        check("use a::B;", &["a/B=B"]);
        check("use a::{b, c::{self, D as E}, f::*};", &["a/b=b", "a/c=c", "a/c/D=E", "a/f=*"]);
        check("pub(crate) use a::B as C;", &["pub a/B=C"]);
        check("use super::super::a;", &["super/super/a=a"]);
        check("x; use a as _;", &["a=_"]);
    }

    #[test]
    fn paths_are_read_from_their_beginning() {
        let tokens = tokens("x.crate_a(crate::a::b::<T>(self::c))");
        let found: Vec<_> = (0..tokens.len()).map(|at| path_at(&tokens, at).join("/")).collect();
        let long: Vec<_> = found.into_iter().filter(|path| path.contains('/')).collect();
        assert_eq!(long, ["crate/a/b", "self/c"]);
    }
}
