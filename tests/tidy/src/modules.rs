//! The modules of one crate: which file holds which, what each imports, and which file a path means.
//!
//! Code of tests is left out: items and files behind `#[cfg(test)]`.
//! Not seen: what macros make, `#[path]` (no crate of ours has it in `src`).

use std::collections::{BTreeMap, BTreeSet};

use crate::circles::Graph;
use crate::token::{Token, after_bracket, tokens, without_tests};
use crate::tree::Tree;
use crate::uses::{Import, imports, path_at};
use crate::{code_only, has_word};

/// Longest way over imports of imports: a circle of `use` ends here.
const STEPS_MAX: usize = 16;

/// One crate.
#[derive(Debug, Default)]
pub struct Crate {
    name: String,
    modules: Vec<Module>,
    /// Product code of each file: comments, texts and tests blanked.
    code: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
    items: BTreeSet<String>,
    paths: BTreeSet<Vec<String>>,
}

/// What a path means: an item of a file, or the whole of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meaning {
    /// Where it is written.
    pub file: String,
    /// Its name; empty for a module.
    pub item: String,
}

impl Crate {
    /// The crate in `folder` (`crates/layout`).
    pub fn read(tree: &Tree, folder: &str) -> Self {
        let name = folder.rsplit('/').next().unwrap_or(folder).to_owned();
        let mut found = Self { name, ..Self::default() };
        for root in ["lib.rs", "main.rs"] {
            let file = format!("{folder}/src/{root}");
            if tree.has(&file) {
                found.add_file(tree, &file, &format!("{folder}/src"), None);
            }
        }
        found
    }

    /// The last part of its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Each file with its product code.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.code.iter().map(|(file, code)| (file.as_str(), code.as_str()))
    }

    /// Reads a file as a module whose children lie in the folder `below`.
    fn add_file(&mut self, tree: &Tree, file: &str, below: &str, parent: Option<usize>) -> usize {
        let code = without_tests(&code_only(&tree.read(file)));
        self.code.insert(file.to_owned(), code.clone());
        self.add_module(tree, file, below, parent, &tokens(&code))
    }

    fn add_module(
        &mut self,
        tree: &Tree,
        file: &str,
        below: &str,
        parent: Option<usize>,
        tokens: &[Token<'_>],
    ) -> usize {
        let own = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        let (mut at, mut depth) = (0, 0usize);
        while at < tokens.len() {
            match tokens[at].text {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                "mod" if depth == 0 => {
                    at = self.add_child(tree, file, below, own, &tokens[at + 1..], at + 1);
                    continue;
                }
                "use" => {
                    let (found, end) = imports(tokens, at);
                    self.modules[own].imports.extend(found);
                    at = end;
                }
                word if depth == 0 && names_item(word) => {
                    let name = tokens.get(at + 1).filter(|token| token.is_word());
                    self.modules[own].items.extend(name.map(|token| token.text.to_owned()));
                }
                _ => {
                    let path = path_at(tokens, at);
                    if path.len() > 1 {
                        self.modules[own].paths.insert(path);
                    }
                }
            }
            at += 1;
        }
        own
    }

    /// `rest` follows the word `mod` and begins at `offset`; gives the place after the declaration.
    fn add_child(
        &mut self,
        tree: &Tree,
        file: &str,
        below: &str,
        own: usize,
        rest: &[Token<'_>],
        offset: usize,
    ) -> usize {
        let Some(name) = rest.first().filter(|token| token.is_word()) else { return offset };
        let deeper = format!("{below}/{}", name.text);
        let (child, len) = if rest.get(1).is_some_and(|token| token.text == "{") {
            let end = after_bracket(rest, 1);
            (Some(self.add_module(tree, file, &deeper, Some(own), &rest[2..end - 1])), end)
        } else {
            let places = [format!("{deeper}.rs"), format!("{deeper}/mod.rs")];
            let place = places.iter().find(|place| tree.has(place));
            (place.map(|place| self.add_file(tree, place, &deeper, Some(own))), 2)
        };
        if let Some(child) = child {
            self.modules[own].children.insert(name.text.to_owned(), child);
        }
        offset + len
    }

    /// Which files need which others of this crate.
    ///
    /// An arrow is an import (`use`), or a path in code, that means something in another file; names
    /// that a door offers lead to the file in which they are written. No arrows are the declaration
    /// of a child (`mod x;`), what a door offers to others (`pub use`), and what a room takes from the
    /// doors that it lies behind (`super::X`, written in the parent's file or above).
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (own, module) in self.modules.iter().enumerate() {
            let needed = module.imports.iter().filter(|import| !import.offered);
            let paths = needed.map(|import| &import.path).chain(&module.paths);
            let targets = paths.filter_map(|path| self.resolve(own, path));
            let doors = self.doors_of(own);
            let others = targets.map(|target| target.file).filter(|file| !doors.contains(file));
            graph.entry(module.file.clone()).or_default().extend(others);
        }
        graph
    }

    /// What a path, or a name alone, means in a file; `None` outside of this crate.
    pub fn meaning(&self, file: &str, path: &[String]) -> Option<Meaning> {
        let own = self.modules.iter().position(|module| module.file == file)?;
        self.resolve(own, path)
    }

    /// Whether a path that a comment in `file` names leads to something: what its modules are must be
    /// there, and its item must at least be a word of the file that it leads to. `None` when `file` is
    /// no product code of this crate.
    pub fn knows(&self, file: &str, path: &[String]) -> Option<bool> {
        let own = self.modules.iter().position(|module| module.file == file)?;
        let Some(found) = self.resolve(own, path) else { return Some(false) };
        let code = self.code.get(&found.file)?;
        Some(found.item.is_empty() || has_word(code, &found.item))
    }

    /// The file of the crate's root.
    pub fn root(&self) -> &str {
        self.modules.first().map_or("", |module| &module.file)
    }

    fn resolve(&self, own: usize, path: &[String]) -> Option<Meaning> {
        self.follow(own, path, STEPS_MAX).map(|(module, item)| Meaning {
            file: self.modules[module].file.clone(),
            item: item.to_owned(),
        })
    }

    fn follow<'a>(
        &'a self,
        own: usize,
        path: &'a [String],
        steps: usize,
    ) -> Option<(usize, &'a str)> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => self.root_of(own),
            "self" => own,
            "super" => self.modules[own].parent?,
            name => match self.member(own, name, steps)? {
                (module, "") => module,
                item => return Some(item),
            },
        };
        for name in rest {
            at = match name.as_str() {
                "super" => self.modules[at].parent?,
                name => match self.member(at, name, steps) {
                    Some((module, "")) => module,
                    Some(item) => return Some(item),
                    // Made by a macro, or of a kind that is not looked for: it is in this file.
                    None => return Some((at, name)),
                },
            };
        }
        Some((at, ""))
    }

    /// What `name` means in a module: a child, an item, or something imported.
    fn member<'a>(
        &'a self,
        module: usize,
        name: &'a str,
        steps: usize,
    ) -> Option<(usize, &'a str)> {
        let steps = steps.checked_sub(1)?;
        let here = &self.modules[module];
        if here.items.contains(name) {
            return Some((module, name));
        }
        if let Some(&child) = here.children.get(name) {
            return Some((child, ""));
        }
        let named = here.imports.iter().filter(|import| import.name.as_deref() == Some(name));
        // `use bytes::bytes` is not about this module.
        let named = named.filter(|import| import.path.first().is_none_or(|first| first != name));
        for import in named {
            if let Some(found) = self.follow(module, &import.path, steps) {
                return Some(found);
            }
        }
        let all = here.imports.iter().filter(|import| import.name.is_none());
        all.filter_map(|import| self.follow(module, &import.path, steps))
            .filter(|(target, item)| item.is_empty() && *target != module)
            .find_map(|(target, _)| self.member(target, name, steps))
    }

    fn root_of(&self, module: usize) -> usize {
        self.line_of(module).last().unwrap_or(module)
    }

    /// The module, its parent and so on.
    fn line_of(&self, module: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(module), |&module| self.modules[module].parent)
    }

    /// Its own file, and those of the modules that it lies in.
    fn doors_of(&self, module: usize) -> BTreeSet<String> {
        self.line_of(module).map(|module| self.modules[module].file.clone()).collect()
    }
}

fn names_item(word: &str) -> bool {
    ["struct", "enum", "trait", "fn", "const", "static", "type", "union"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circles::circles;

    fn read(files: &[(&str, &str)]) -> Crate {
        let files = files.iter().map(|(file, text)| (format!("x/src/{file}"), (*text).to_owned()));
        Crate::read(&Tree::of(files.collect()), "x")
    }

    /// Arrows as `a>b`, without `x/src/` and `.rs`.
    fn check(files: &[(&str, &str)], expected: &str) {
        let short = |file: &str| file.replace("x/src/", "").replace(".rs", "");
        let graph = read(files).graph();
        let arrows = graph.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        let told: Vec<_> =
            arrows.map(|(from, to)| format!("{}>{}", short(from), short(to))).collect();
        assert_eq!(told.join(" "), expected, "{files:?}");
    }

    #[test]
    fn arrows_lead_to_the_file_that_is_meant() {
        check(
            &[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "struct B;")],
            "a>b",
        );
        check(&[("lib.rs", "mod a; struct L;"), ("a.rs", "use super::L;")], "");
        check(&[("lib.rs", "mod a; fn f() { a::g() }"), ("a.rs", "fn g() {}")], "lib>a");
        check(
            &[("main.rs", "mod a; mod b;"), ("a.rs", "fn f(x: &crate::b::B) {}"), ("b.rs", "")],
            "a>b",
        );
        check(
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use crate::b; fn f() { b::c::g() }"),
                ("b.rs", "mod c;"),
                ("b/c.rs", "fn g() {}"),
            ],
            "a>b a>b/c",
        );
    }

    #[test]
    fn doors_are_passed_through() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::B;"),
            ("a.rs", "use crate::B;"),
            ("b.rs", "mod c; pub use self::c::*;"),
            ("b/c.rs", "pub struct B;"),
        ];
        check(&files, "a>b/c");
    }

    #[test]
    fn tests_comments_and_other_crates_are_no_arrows() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod t;"),
            ("a.rs", "// crate::b::B\nuse std::fs; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "struct B;"),
            ("t.rs", "use crate::a::A;"),
        ];
        check(&files, "");
    }

    #[test]
    fn modules_in_a_file_are_of_that_file() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod inner { pub fn f() { crate::b::g() } }"),
            ("b.rs", "use super::a::inner::f;"),
        ];
        check(&files, "a>b b>a");
        assert_eq!(circles(&read(&files).graph()), [["x/src/a.rs", "x/src/b.rs"]]);
    }
}
