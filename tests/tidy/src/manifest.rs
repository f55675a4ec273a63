//! The few lines of a `Cargo.toml` that rules ask about.

use std::collections::BTreeMap;

/// Which table of dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Linked into the product.
    Normal,
    /// Tests and benches only.
    Dev,
    /// Build scripts.
    Build,
}

/// Dependencies on crates of this workspace: those named `hayase-*`.
pub fn path_dependencies(manifest: &str) -> Vec<(Section, String)> {
    let mut section = None;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            // `[target.'cfg(..)'.dependencies]` counts as `[dependencies]`.
            section = match header.rsplit('.').next() {
                Some("dependencies") => Some(Section::Normal),
                Some("dev-dependencies") => Some(Section::Dev),
                Some("build-dependencies") => Some(Section::Build),
                _ => None,
            };
        } else if let (Some(section), Some(rest)) = (section, line.strip_prefix("hayase-")) {
            let name: String =
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            found.push((section, name));
        }
    }
    found
}

/// Every table, by name, with its entries: `x.y = 1` in `[dependencies]` is the entry `x.y`. What
/// `[dependencies.x]` says of a version stands as the entry `x` of `dependencies`. Comments are left out;
/// a value that goes over several lines is joined by spaces.
pub fn manifest_tables(manifest: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut tables: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut table = String::new();
    let mut open: Option<String> = None;
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let entries = tables.entry(table.clone()).or_default();
        if let Some(key) = &open {
            let value = entries.entry(key.clone()).or_default();
            value.push(' ');
            value.push_str(line);
            open = open.filter(|_| !is_whole(value));
        } else if let Some(name) = line.strip_prefix('[') {
            name.trim_end_matches(']').clone_into(&mut table);
            tables.entry(table.clone()).or_default();
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            open = (!is_whole(&value)).then(|| key.clone());
            entries.insert(key, value);
        }
    }
    fold_dependencies(&mut tables);
    tables
}

/// Whether each bracket of a value is closed.
fn is_whole(value: &str) -> bool {
    let count = |brackets: [char; 2]| value.matches(brackets).count();
    count(['[', '{']) == count([']', '}'])
}

/// `[dependencies.x]` with `version = "1"` as `x = "1"` of `[dependencies]`.
fn fold_dependencies(tables: &mut BTreeMap<String, BTreeMap<String, String>>) {
    let folded: Vec<_> = tables
        .iter()
        .filter_map(|(name, entries)| {
            let (table, dependency) = name.rsplit_once('.')?;
            let version = entries.get("version").filter(|_| table.ends_with("dependencies"))?;
            Some((table.to_owned(), dependency.to_owned(), version.clone()))
        })
        .collect();
    for (table, dependency, version) in folded {
        tables.entry(table).or_default().insert(dependency, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let tables = manifest_tables(
            "[a]\n# no\nx = \"1\" \ny = [\n  \"b\",\n]\n[a.b]\n[dependencies.z]\nversion = \"2\"\n",
        );
        assert_eq!(tables["a"]["x"], "\"1\"");
        assert_eq!(tables["a"]["y"], "[ \"b\", ]");
        assert!(tables["a.b"].is_empty());
        assert_eq!(tables["dependencies"]["z"], "\"2\"");
    }

    #[test]
    fn workspace_crates_are_found_in_each_table() {
        let manifest = "[package]\nname = \"hayase-x\"\n[dependencies]\nhayase-layout.workspace = true\n\
                        rustix = \"1\"\n[dev-dependencies]\nhayase-tier = { path = \"../tier\" }\n";
        let expected = [(Section::Normal, "layout".into()), (Section::Dev, "tier".into())];
        assert_eq!(path_dependencies(manifest), expected);
    }
}
