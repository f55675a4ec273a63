//! Types that grow over many files: their methods, the traits that only they have, the functions that take them whole.

use std::collections::BTreeMap;

use crate::code_only;
use crate::modules::{Crate, Meaning};
use crate::token::{Token, after_bracket, after_generics, tokens};
use crate::tree::Tree;
use crate::uses::path_at;

/// A type with more methods than this is a giant.
pub const METHODS_MAX: usize = 40;

/// A giant of one crate.
#[derive(Debug, Default)]
pub struct Giant {
    /// Its name.
    pub name: String,
    /// `file: method`, also those of [`Giant::extensions`].
    pub methods: Vec<String>,
    /// `file: trait`: private to the crate and implemented for this type alone, in tests too. A
    /// trait with a second version, if only in a test, is a border and not an extension.
    pub extensions: Vec<String>,
    /// `file: function`: not the type's own, with a parameter that has the type in it.
    pub takers: Vec<String>,
}

/// One `impl` of product code.
struct Impl {
    file: String,
    /// `None` when the type is of another crate.
    target: Option<Meaning>,
    of_trait: Option<Meaning>,
    methods: Vec<String>,
    /// First and last byte.
    body: (usize, usize),
}

/// All giants of the crate in `folder`, in order of name.
pub fn giants(tree: &Tree, folder: &str, krate: &Crate) -> Vec<Giant> {
    let impls: Vec<Impl> =
        krate.files().flat_map(|(file, code)| impls_of(krate, file, code)).collect();
    let private = private_traits(krate);
    let all = implementors(tree, folder);
    let is_extension = |of: &Impl| {
        let Some(name) = &of.of_trait else { return false };
        private.contains(name) && all.get(&name.item) == Some(&1)
    };
    let mut own: BTreeMap<&Meaning, Vec<&Impl>> = BTreeMap::new();
    for of in impls.iter().filter(|of| of.of_trait.is_none() || is_extension(of)) {
        if let Some(target) = &of.target {
            own.entry(target).or_default().push(of);
        }
    }
    let methods = |impls: &[&Impl]| impls.iter().map(|of| of.methods.len()).sum::<usize>();
    own.retain(|_, impls| methods(impls) > METHODS_MAX);
    own.into_iter().map(|(name, impls)| giant(krate, name, &impls)).collect()
}

fn giant(krate: &Crate, name: &Meaning, impls: &[&Impl]) -> Giant {
    let mut found = Giant { name: name.item.clone(), ..Giant::default() };
    for of in impls {
        found.methods.extend(of.methods.iter().map(|method| format!("{}: {method}", of.file)));
        let extension = of.of_trait.iter().map(|of| format!("{}: {}", of.file, of.item));
        found.extensions.extend(extension);
    }
    for (file, code) in krate.files().filter(|(_, code)| code.contains(&name.item)) {
        let bodies: Vec<_> = impls.iter().filter(|of| of.file == file).map(|of| of.body).collect();
        found.takers.extend(takers(krate, file, code, name, &bodies));
    }
    found
}

/// Functions of `file` outside of `bodies` that take the type.
fn takers(
    krate: &Crate,
    file: &str,
    code: &str,
    name: &Meaning,
    bodies: &[(usize, usize)],
) -> Vec<String> {
    let tokens = tokens(code);
    let is_own = |at: usize| bodies.iter().any(|(start, end)| (*start..*end).contains(&at));
    let takes = |parameters: &[Token<'_>]| {
        (0..parameters.len()).any(|at| {
            let path = path_at(parameters, at);
            path.last() == Some(&name.item) && krate.meaning(file, &path).as_ref() == Some(name)
        })
    };
    let functions =
        (0..tokens.len()).filter(|&at| tokens[at].text == "fn" && !is_own(tokens[at].at));
    functions
        .filter(|&at| takes(parameters(&tokens, at)))
        .map(|at| format!("{file}: {}", tokens[at + 1].text))
        .collect()
}

/// Of the function whose `fn` is at `at`; none of a type `fn(..)`.
fn parameters<'a, 'b>(tokens: &'a [Token<'b>], at: usize) -> &'a [Token<'b>] {
    if tokens.get(at + 1).is_none_or(|name| !name.is_word()) {
        return &[];
    }
    let open = after_generics(tokens, at + 2);
    if tokens.get(open).is_none_or(|token| token.text != "(") {
        return &[];
    }
    &tokens[open + 1..after_bracket(tokens, open) - 1]
}

fn impls_of(krate: &Crate, file: &str, code: &str) -> Vec<Impl> {
    let tokens = tokens(code);
    let found = (0..tokens.len()).filter(|&at| is_impl(&tokens, at)).filter_map(|at| {
        let (header, body) = header_and_body(&tokens, at)?;
        let (of_trait, target) = divided(header);
        Some(Impl {
            file: file.to_owned(),
            target: krate.meaning(file, &type_path(target)),
            of_trait: of_trait.and_then(|words| krate.meaning(file, &type_path(words))),
            methods: methods(body),
            body: (body.first()?.at, body.last()?.at),
        })
        // An implementation of a trait of another crate is no method of ours.
        .filter(|of| of_trait.is_none() || of.of_trait.is_some())
    });
    found.collect()
}

/// `impl` as an item, not in a type (`-> impl Iterator`).
fn is_impl(tokens: &[Token<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| tokens[before].text);
    tokens[at].text == "impl" && matches!(before, None | Some("}" | "{" | ";" | "]" | "unsafe"))
}

/// What stands between `impl<..>` and `{`, and all of the braces.
fn header_and_body<'a, 'b>(
    tokens: &'a [Token<'b>],
    at: usize,
) -> Option<(&'a [Token<'b>], &'a [Token<'b>])> {
    let start = after_generics(tokens, at + 1);
    let open = start + tokens.get(start..)?.iter().position(|token| token.text == "{")?;
    Some((&tokens[start..open], &tokens[open..after_bracket(tokens, open)]))
}

/// `Trait for Type` as both, `Type` as the second; bounds (`where`) are left out.
fn divided<'a, 'b>(header: &'a [Token<'b>]) -> (Option<&'a [Token<'b>]>, &'a [Token<'b>]) {
    let end = header.iter().position(|token| token.text == "where").unwrap_or(header.len());
    let header = &header[..end];
    let is_for = |at: &usize| {
        header[*at].text == "for" && header.get(at + 1).is_none_or(|next| next.text != "<")
    };
    match (0..header.len()).find(is_for) {
        Some(at) => (Some(&header[..at]), &header[at + 1..]),
        None => (None, header),
    }
}

/// The path of a type, past `&`, lifetimes, `mut` and `dyn`.
fn type_path(words: &[Token<'_>]) -> Vec<String> {
    let skipped = |token: &Token<'_>| !token.is_word() || ["mut", "dyn"].contains(&token.text);
    let start = words.iter().position(|token| !skipped(token));
    start.map_or_else(Vec::new, |start| path_at(words, start))
}

/// Names of the functions directly in the braces.
fn methods(body: &[Token<'_>]) -> Vec<String> {
    let (mut found, mut at) = (Vec::new(), 1);
    while at + 1 < body.len() {
        match body[at].text {
            "(" | "[" | "{" => {
                at = after_bracket(body, at);
                continue;
            }
            "fn" => found.push(body[at + 1].text.to_owned()),
            _ => {}
        }
        at += 1;
    }
    found
}

/// Traits that other crates cannot name: not `pub`.
fn private_traits(krate: &Crate) -> Vec<Meaning> {
    let mut found = Vec::new();
    for (file, code) in krate.files() {
        let tokens = tokens(code);
        let names = tokens.windows(2).enumerate().filter(|(_, pair)| pair[0].text == "trait");
        let private =
            names.filter(|(at, _)| at.checked_sub(1).is_none_or(|at| tokens[at].text != "pub"));
        found.extend(
            private
                .map(|(_, pair)| Meaning { file: file.to_owned(), item: pair[1].text.to_owned() }),
        );
    }
    found
}

/// How often each trait is implemented, by its last word, in all files of the crate, tests among them.
fn implementors(tree: &Tree, folder: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for path in tree.paths().filter(|path| path.starts_with(folder) && path.ends_with(".rs")) {
        let code = code_only(&tree.read(path));
        let tokens = tokens(&code);
        for at in (0..tokens.len()).filter(|&at| is_impl(&tokens, at)) {
            let of_trait = header_and_body(&tokens, at).and_then(|(header, _)| divided(header).0);
            if let Some(name) = of_trait.and_then(|words| type_path(words).pop()) {
                *found.entry(name).or_default() += 1;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(count: usize) -> String {
        (0..count).map(|n| format!("fn m{n}(&self) {{ if x {{ fn inner() {{}} }} }}\n")).collect()
    }

    fn found(files: &[(&str, String)]) -> Vec<Giant> {
        let files = files.iter().map(|(file, text)| (format!("x/src/{file}"), text.clone()));
        let tree = Tree::of(files.collect());
        giants(&tree, "x", &Crate::read(&tree, "x"))
    }

    /// Methods, extensions and takers of the only giant.
    fn check(rest: &str, expected: (usize, usize, usize)) {
        let door =
            format!("mod a; pub struct Big<T>(T);\nimpl<T: Fn() -> u8> Big<T> {{ {} }}", many(40));
        let giants = found(&[("lib.rs", door), ("a.rs", rest.to_owned())]);
        let sizes: Vec<_> = giants
            .iter()
            .map(|giant| (giant.methods.len(), giant.extensions.len(), giant.takers.len()))
            .collect();
        assert_eq!(sizes, [expected], "{rest}");
    }

    #[test]
    fn methods_are_counted_over_all_files() {
        check("impl crate::Big<u8> { fn a() {} fn b(&self) {} }", (42, 0, 0));
        check("use super::Big as B; impl B<u8> where u8: Copy { fn a() {} }", (41, 0, 0));
    }

    #[test]
    fn no_giant_has_forty_methods_or_fewer() {
        let own = |count| format!("struct Big;\nimpl Big {{ {} }}", many(count));
        assert!(found(&[("lib.rs", own(40))]).is_empty());
        assert_eq!(found(&[("lib.rs", own(41))]).len(), 1);
        let tests = format!("{}\n#[cfg(test)]\nimpl Big {{ {} }}", own(40), many(40));
        assert!(found(&[("lib.rs", tests)]).is_empty());
    }

    #[test]
    fn extension_traits_have_one_type() {
        let start = "use crate::Big; impl Big<u8> { fn a() {} }";
        check(&format!("{start} trait E {{}} impl E for Big<u8> {{ fn e() {{}} }}"), (42, 1, 0));
        check(&format!("{start} pub(crate) trait E {{}} impl E for Big<u8> {{}}"), (41, 1, 0));
        check(
            &format!("{start} pub trait E {{}} impl E for Big<u8> {{ fn e() {{}} }}"),
            (41, 0, 0),
        );
        check(
            &format!("{start} trait E {{}} impl E for Big<u8> {{}} impl E for u8 {{}}"),
            (41, 0, 0),
        );
        let double = "#[cfg(test)] mod tests { impl super::E for Fake {} }";
        check(&format!("{start} trait E {{}} impl E for Big<u8> {{}} {double}"), (41, 0, 0));
        check(&format!("{start} impl std::fmt::Debug for Big<u8> {{ fn fmt() {{}} }}"), (41, 0, 0));
    }

    #[test]
    fn takers_are_functions_of_others() {
        let start = "use crate::Big; impl Big<u8> { fn a(other: &Big<u8>) {} }";
        check(&format!("{start} fn f(b: &Big<u8>) {{}}"), (41, 0, 1));
        check(
            &format!(
                "{start} fn f<T>(n: u8, b: &Rc<Big<T>>) {{}} struct S; impl S {{ fn g(&self, b: Arc<Big<u8>>) {{}} }}"
            ),
            (41, 0, 2),
        );
        check(
            &format!("{start} fn f() -> Big<u8> {{}} fn g(x: Bigger, f: fn(u8)) {{}}"),
            (41, 0, 0),
        );
        check("impl crate::Big<u8> { fn a() {} } struct Big; fn f(b: &Big) {}", (41, 0, 0));
    }
}
