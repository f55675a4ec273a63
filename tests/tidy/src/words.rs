//! Words that do not come back in texts for users, each with what to write instead.
//!
//! Here: the list, where it matches, and what of a text counts: [`prose`] of a document or a help text,
//! [`error_texts`] of a source. Code, quotations and targets of links are left out.
//! Not here: comments and names in code.

use crate::code_only;

/// A word or phrase that does not come back.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Words with one space between them; `a|b` is either, `#` a number with a unit (`300MiB`).
    /// After `^` the first word must begin a clause that is not a question; after `,` a comma or `(` must come before it.
    pub phrase: &'static str,
    /// What to write instead.
    pub instead: &'static str,
    /// Words before the phrase that make it right.
    pub not_after: &'static [&'static str],
    /// Words after the phrase that make it right.
    pub not_before: &'static [&'static str],
}

const fn word(phrase: &'static str, instead: &'static str) -> Word {
    Word { phrase, instead, not_after: &[], not_before: &[] }
}

/// The list.
pub const WORDS: [Word; 18] = [
    word("told", "`is notified`, `gets the error`, `is reported`, `distinguished`"),
    word("tells", "`reports`, `shows`, `returns`, `says`"),
    word("anew", "`again`; of a process, `restarted`"),
    word("beside", "`next to`, `as well as`, `at the same time as`"),
    word("goes|go|going|went on", "`continues`, `keeps reading`"),
    word("comes|come|came to", "`reaches`, `is flushed`, `is sent to`"),
    word("^who", "name it: `a process that`, `the node that`, `a user who`"),
    word("to|of|by|for|from|than|as|behind who", "name it: `to the node that`, `by the user who`"),
    word("whoever", "name it: `any process that`, `the user who`"),
    Word {
        phrase: "is|are|was|were no",
        instead: "`is not a`, `invalid ...: expected ...`",
        not_after: &["there"],
        not_before: &["longer", "more", "other", "less"],
    },
    Word {
        phrase: "is|are|was|were none",
        instead: "`is not one`; name what it is not",
        not_after: &["there"],
        not_before: &[],
    },
    Word {
        phrase: "so long",
        instead: "`for that time`, `this long`",
        not_after: &[],
        not_before: &["as"],
    },
    word("mend|mends|mended", "`fix`, `repair`"),
    word("for ever", "`without end`; or say when it ends"),
    word("a moment ago", "`just`"),
    word("can not", "`cannot`"),
    word("of ours", "name it: `of Hayase`, `of this job`"),
    word(",as #", "`for example`"),
];

/// A phrase of the list in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Line of the text, from 1.
    pub line: usize,
    /// As it is written.
    pub text: String,
    /// What to write instead.
    pub instead: &'static str,
}

struct Token<'a> {
    text: &'a str,
    at: usize,
    /// What stands between the word before and this one.
    gap: &'a str,
}

/// Every phrase of [`WORDS`] in `text`, in order of the list.
pub fn found(text: &str) -> Vec<Found> {
    let tokens = words(text);
    let mut all = Vec::new();
    for word in &WORDS {
        let places =
            (0..tokens.len()).filter_map(|at| Some((at, matches(word, text, &tokens, at)?)));
        all.extend(places.map(|(first, last)| {
            let (start, end) = (tokens[first].at, tokens[last].at + tokens[last].text.len());
            let line = 1 + text[..start].matches('\n').count();
            let text = text[start..end].split_whitespace().collect::<Vec<_>>().join(" ");
            Found { line, text, instead: word.instead }
        }));
    }
    all
}

fn words(text: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '\'' || c == '_' || c == BLANK;
    let mut found = Vec::new();
    let (mut at, mut end) = (0, 0);
    while let Some(start) = text[at..].find(is_word).map(|start| at + start) {
        let len = text[start..].find(|c| !is_word(c)).unwrap_or(text.len() - start);
        found.push(Token { text: &text[start..start + len], at: start, gap: &text[end..start] });
        (at, end) = (start + len, start + len);
    }
    found
}

/// The last word of the phrase, when one begins at `first`.
fn matches(word: &Word, text: &str, tokens: &[Token<'_>], first: usize) -> Option<usize> {
    let phrase = word.phrase.trim_start_matches(['^', ',']);
    let mut last = first;
    for (number, wanted) in phrase.split(' ').enumerate() {
        last = first + number;
        let token = tokens.get(last)?;
        let follows = number == 0 || token.gap.trim().is_empty();
        if !follows || !wanted.split('|').any(|wanted| is(token.text, wanted)) {
            return None;
        }
    }
    let gap = tokens[first].gap;
    let place = match word.phrase.as_bytes()[0] {
        b'^' => begins_clause(gap, first) && !is_question(&text[tokens[first].at..]),
        b',' => gap.contains([',', '(']),
        _ => true,
    };
    let before = first.checked_sub(1).and_then(|at| tokens.get(at));
    let is_right = before.is_some_and(|token| word.not_after.iter().any(|not| is(token.text, not)))
        || tokens
            .get(last + 1)
            .is_some_and(|token| word.not_before.iter().any(|not| is(token.text, not)));
    (place && !is_right).then_some(last)
}

fn is(text: &str, wanted: &str) -> bool {
    match wanted {
        "#" => {
            text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(char::is_alphabetic)
        }
        wanted => text.eq_ignore_ascii_case(wanted),
    }
}

fn begins_clause(gap: &str, first: usize) -> bool {
    first == 0 || gap.contains(['.', ';', ':', '!', '?', '|', '(', '-', '*', '#'])
}

fn is_question(text: &str) -> bool {
    text.find(['.', '?', '!', '\n']).is_some_and(|end| text[end..].starts_with('?'))
}

/// Stands for what is blanked: a word that no phrase has.
const BLANK: char = '\u{a7}';

/// A document with blocks of code, inline code, quotations and targets of links blanked. Lines stay.
pub fn prose(document: &str) -> String {
    let mut fenced = false;
    let lines = document.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced { String::new() } else { without_quotes(line) }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// One line: pairs of backticks, quotes, and `](` with `)`.
fn without_quotes(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['`', '"', ']']) {
        let (open, close) = match &rest[at..] {
            rest if rest.starts_with("](") => ("](", ")"),
            rest if rest.starts_with("``") => ("``", "``"),
            rest if rest.starts_with('`') => ("`", "`"),
            rest if rest.starts_with('"') => ("\"", "\""),
            _ => ("]", ""),
        };
        let inner = at + open.len();
        let end = rest[inner..].find(close).map_or(inner, |end| inner + end + close.len());
        kept.push_str(&rest[..at]);
        kept.push(if end > inner && open != "](" { BLANK } else { ' ' });
        rest = &rest[end..];
    }
    kept + rest
}

/// Places of a source whose strings are errors that users read.
const ERRORS: [&str; 5] = ["#[error(", "bail!(", "ensure!(", "anyhow!(", "context("];

/// Strings in `#[error(..)]`, `bail!(..)`, `anyhow!(..)`, `.context(..)`, `.with_context(..)`, each with its line.
pub fn error_texts(source: &str) -> Vec<(usize, String)> {
    let code = code_only(source);
    let mut found = Vec::new();
    for open in ERRORS {
        for (at, _) in code.match_indices(open) {
            let start = at + open.len();
            let (mut depth, mut end) = (1, start);
            for (number, byte) in code.as_bytes()[start..].iter().enumerate() {
                depth += i32::from(*byte == b'(') - i32::from(*byte == b')');
                end = start + number;
                if depth == 0 {
                    break;
                }
            }
            let line = 1 + source[..at].matches('\n').count();
            found.extend(strings(&source[start..end]).into_iter().map(|text| (line, text)));
        }
    }
    found.sort();
    found
}

/// Contents of string literals, lines that are comments left out.
fn strings(code: &str) -> Vec<String> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\\", "").replace("\\\"", "");
    code.split('"')
        .skip(1)
        .step_by(2)
        .map(|text| without_quotes(&text.replace("\\\n", " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(usize, &str)]) {
        let found = found(&prose(text));
        let found: Vec<_> = found.iter().map(|found| (found.line, found.text.as_str())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn phrases_are_found_with_their_lines() {
        check("A server is told.\nIt goes\non.", &[(1, "told"), (2, "goes on")]);
        check("Started anew, Beside it.", &[(1, "anew"), (1, "Beside")]);
        check("`x` is no size, as 300MiB", &[(1, "is no"), (1, "as 300MiB")]);
        check("There is no size; it is no longer there, as 4 of 5 are", &[]);
        check("It waits so long; so long as it waits.", &[(1, "so long")]);
    }

    #[test]
    fn who_needs_a_noun() {
        check("Who reads waits.", &[(1, "Who")]);
        check("- Who reads\n| who reads |", &[(1, "Who"), (2, "who")]);
        check("given to who asks; whoever asks", &[(1, "to who"), (1, "whoever")]);
        check("a user who reads, and who writes", &[]);
        check("Who reads this page? A user.", &[]);
    }

    #[test]
    fn code_and_quotations_are_left_out() {
        check("`told` and \"is no job\" and [a](told.md) and ``a ` told``", &[]);
        check("```\ntold\n```\nanew", &[(4, "anew")]);
        check("[told](a.md)", &[(1, "told")]);
        check("is `told` none, \" and anew", &[(1, "anew")]);
    }

    #[test]
    fn texts_of_errors_are_found() {
        let source = "#[error(\"`{0}` is no size\", .0)]\nfn told() {\n  // told\n  bail!(\n    \"a \\\"told\\\" {}\", f(\"x\")\n  );\n\
                      y.with_context(|| format!(\"z\"))?; log!(\"anew\");\n}\n";
        let found: Vec<_> = error_texts(source);
        let expected = [(1, "\u{a7} is no size"), (4, "a told {}"), (4, "x"), (7, "z")];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    }
}
