//! The few lines of a `Cargo.toml` that rules ask about.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_crates_are_found_in_each_table() {
        let manifest = "[package]\nname = \"hayase-x\"\n[dependencies]\nhayase-layout.workspace = true\n\
                        rustix = \"1\"\n[dev-dependencies]\nhayase-tier = { path = \"../tier\" }\n";
        let expected = [(Section::Normal, "layout".into()), (Section::Dev, "tier".into())];
        assert_eq!(path_dependencies(manifest), expected);
    }
}
