//! The profile files `~/.aws/credentials` and `~/.aws/config`.

use std::collections::HashMap;
use std::path::Path;

use super::{Credentials, Environment};

/// What the two files say about one profile.
#[derive(Debug, Default)]
pub(in crate::s3) struct Profile {
    pub(in crate::s3) credentials: Option<Credentials>,
    pub(in crate::s3) region: Option<String>,
    pub(in crate::s3) endpoint: Option<String>,
}

impl Profile {
    /// Reads both files; one that is not there, or not readable, says nothing.
    pub(in crate::s3) fn load(environment: &Environment) -> Self {
        let name = environment.profile.as_deref().unwrap_or("default");
        let read = |path: &Option<std::path::PathBuf>| {
            path.as_deref().map(section_of(name)).unwrap_or_default()
        };
        let (secret, config) =
            (read(&environment.credentials_file), read(&environment.config_file));
        let said = |key: &str| secret.get(key).or_else(|| config.get(key)).cloned();
        let keys = said("aws_access_key_id").zip(said("aws_secret_access_key"));
        Self {
            credentials: keys.map(|(access_key, secret_key)| Credentials {
                session_token: said("aws_session_token"),
                ..Credentials::permanent(access_key, secret_key)
            }),
            region: said("region"),
            endpoint: said("endpoint_url"),
        }
    }
}

fn section_of(name: &str) -> impl Fn(&Path) -> HashMap<String, String> {
    move |path| section(&std::fs::read_to_string(path).unwrap_or_default(), name)
}

/// The lines `key = value` below `[name]` or `[profile name]`. Nested lines (indented) are left out.
fn section(text: &str, name: &str) -> HashMap<String, String> {
    let mut inside = false;
    let mut found = HashMap::new();
    for line in text.lines() {
        let bare = line.split(" #").next().unwrap_or(line).trim();
        if let Some(header) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let header = header.trim();
            inside = header.strip_prefix("profile ").unwrap_or(header).trim() == name;
        } else if inside && !line.starts_with([' ', '\t', '#', ';']) {
            let pair = bare.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
            if let Some((key, value)) = pair.filter(|(_, value)| !value.is_empty()) {
                found.insert(key.to_ascii_lowercase(), value.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# a comment\n[default]\nregion = a\n\n[profile work]\nregion=eu-west-1 # here\n\
                          s3 =\n  addressing_style = path\nendpoint_url = http://h:1\n[ other ]\nregion = z\n";

    #[test]
    fn sections_and_their_lines() {
        assert_eq!(section(CONFIG, "default")["region"], "a");
        let work = section(CONFIG, "work");
        assert_eq!(
            (work["region"].as_str(), work["endpoint_url"].as_str()),
            ("eu-west-1", "http://h:1")
        );
        assert_eq!(work.len(), 2);
        assert_eq!(section(CONFIG, "other")["region"], "z");
        assert!(section(CONFIG, "none").is_empty());
    }

    #[test]
    fn files_that_are_not_there_say_nothing() {
        let nowhere = Some("/nonexistent/credentials".into());
        let environment = Environment { credentials_file: nowhere, ..Environment::default() };
        assert!(Profile::load(&environment).credentials.is_none());
    }
}
