//! The files of the repository that a rule may look at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders that are not ours to judge: made by tools, or not part of the product.
const NOT_OURS: [&str; 3] = ["target", ".git", "out"];

/// One text file.
#[derive(Clone, Debug)]
pub struct Source {
    /// From the root of the repository, with `/`.
    pub path: String,
    /// All of it; bytes that are no UTF-8 replaced.
    pub text: String,
}

impl Source {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The repository, or what stands for it.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    files: Vec<String>,
    /// Texts of a tree that is not on disk.
    texts: Option<BTreeMap<String, String>>,
}

impl Tree {
    /// The repository that this crate stands in.
    pub fn here() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        collect(&root, "", &mut files);
        files.sort_unstable();
        Self { root, files, texts: None }
    }

    /// These files, by path.
    pub fn of(texts: BTreeMap<String, String>) -> Self {
        let files = texts.keys().cloned().collect();
        Self { root: PathBuf::new(), files, texts: Some(texts) }
    }

    /// Where the repository stands.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Is there such a file (or, on disk, folder)?
    pub fn has(&self, path: &str) -> bool {
        match &self.texts {
            Some(texts) => texts.contains_key(path),
            None => self.root.join(path).exists(),
        }
    }

    /// One file; empty when it is not there (rules ask [`Tree::has`] where that matters).
    pub fn read(&self, path: &str) -> String {
        if let Some(texts) = &self.texts {
            return texts.get(path).cloned().unwrap_or_default();
        }
        let bytes = std::fs::read(self.root.join(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Every file whose path ends so, in order of path.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = Source> + 'a {
        let wanted = self.files.iter().filter(move |path| path.ends_with(end));
        wanted.map(|path| Source { path: path.clone(), text: self.read(path) })
    }

    /// Every path, of files only.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }
}

fn collect(root: &Path, below: &str, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) => {
                collect(root, &path, files);
            }
            Ok(kind) if kind.is_file() => files.push(path),
            _ => {}
        }
    }
}
