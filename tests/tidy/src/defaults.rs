//! Defaults in code: constants that are called so, and those of options that are written out.

use crate::code_only;
use crate::token::{Token, tokens, without_tests};

/// Words of a constant's name that say in what it counts, not what it is.
const UNITS: [&str; 6] = ["BYTES", "SECONDS", "MS", "US", "COUNT", "MIB"];

/// What the default is of, for each constant `X_DEFAULT` or `DEFAULT_X`: `STRIPE` of `STRIPE_BYTES_DEFAULT`.
/// Those of tests are left out.
pub fn default_constants(source: &str) -> Vec<String> {
    let code = without_tests(&code_only(source));
    let tokens = tokens(&code);
    let names = tokens.windows(2).filter(|pair| matches!(pair[0].text, "const" | "static"));
    names.filter_map(|pair| stem(pair[1].text)).collect()
}

fn stem(name: &str) -> Option<String> {
    let words: Vec<&str> = name.split('_').collect();
    let is_default = words.first() == Some(&"DEFAULT") || words.last() == Some(&"DEFAULT");
    let left = words.into_iter().filter(|word| *word != "DEFAULT" && !UNITS.contains(word));
    let left = left.collect::<Vec<_>>().join("_");
    (is_default && !left.is_empty()).then_some(left)
}

/// Lines on which a default of an option is a text or a number (`default_value = "1MiB"`) and no name.
pub fn literal_defaults(source: &str) -> Vec<usize> {
    let code = code_only(source);
    let tokens = tokens(&code);
    let keys = tokens.windows(3).filter(|three| is_key(three[0].text) && three[1].text == "=");
    let written_out = keys.filter(|three| is_literal(source, three));
    written_out.map(|three| code[..three[0].at].matches('\n').count() + 1).collect()
}

fn is_key(word: &str) -> bool {
    let key = word.strip_suffix("_t").unwrap_or(word);
    ["default_value", "default_values", "default_missing_value"].contains(&key)
}

/// A number or a sign in front of one follows, or a text, which stands in the source alone.
fn is_literal(source: &str, three: &[Token<'_>]) -> bool {
    let number = three[2].text.starts_with(|c: char| c.is_ascii_digit()) || three[2].text == "-";
    number || source[three[1].at..three[2].at].contains('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_tell_what_they_are_the_default_of() {
        let check = |source: &str, expected: &[&str]| {
            assert_eq!(default_constants(source), expected, "{source}");
        };
        check("pub const STRIPE_BYTES_DEFAULT: u64 = 1;", &["STRIPE"]);
        check(
            "const STRIPE_DEFAULT: u64 = 1; const DEFAULT_BYTES_MIN: u8 = 1;",
            &["STRIPE", "MIN"],
        );
        check("const STRIPE: u8 = 1; fn default() {} // const X_DEFAULT", &[]);
        check("#[cfg(test)] mod tests { const X_DEFAULT: u8 = 1; }", &[]);
    }

    #[test]
    fn defaults_that_are_written_out_are_found() {
        let check = |arguments: &str, found: bool| {
            let source = format!("struct A {{\n#[arg(long, {arguments})]\na: u8 }}");
            let expected: &[usize] = if found { &[2] } else { &[] };
            assert_eq!(literal_defaults(&source), expected, "{arguments}");
        };
        check("default_value = \"1MiB\"", true);
        check("default_value = \"1MiB\", value_parser = x", true);
        check("default_value_t = 4, value_parser = x", true);
        check("default_value_t = -1.5", true);
        check("default_missing_value = \"3\"", true);
        check("default_value_t = FANOUT_DEFAULT", false);
        check("default_value_t = KernelProfile::Native", false);
        check("default_value = size::typed(PACK_BYTES)", false);
        check("default_value = size::typed(\n    PACK_BYTES)", false);
        check("default_value_t", false);
        check("value_name = \"N\"", false);
    }
}
