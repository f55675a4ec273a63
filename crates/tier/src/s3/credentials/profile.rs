//! The profile files `~/.aws/credentials` and `~/.aws/config`.

use std::collections::HashMap;

use super::sso::SingleSignOn;
use super::web_identity::WebIdentity;
use super::{Credentials, Environment, SESSION_NAME};

/// What the two files say about one profile.
#[derive(Debug, Default)]
pub(in crate::s3) struct Profile {
    pub(super) keys: ProfileKeys,
    pub(in crate::s3) region: Option<String>,
    pub(in crate::s3) endpoint: Option<String>,
}

/// Where the keys of a profile are from.
#[derive(Debug, Default)]
pub(super) enum ProfileKeys {
    #[default]
    None,
    /// They stand there.
    Here(Credentials),
    WebIdentity(WebIdentity),
    SingleSignOn(SingleSignOn),
    /// This command prints them.
    Process(String),
    /// A way that is not known: in words.
    Unknown(String),
}

impl Profile {
    /// Reads both files; one that is not there, or not readable, says nothing.
    pub(in crate::s3) fn load(environment: &Environment) -> Self {
        let name = environment.profile.as_deref().unwrap_or("default");
        let read = |path: &Option<std::path::PathBuf>| {
            path.as_deref()
                .map(|path| std::fs::read_to_string(path).unwrap_or_default())
                .unwrap_or_default()
        };
        let (secret, config) =
            (read(&environment.credentials_file), read(&environment.config_file));
        let (secret, own) = (section(&secret, name), section(&config, name));
        let said = |key: &str| secret.get(key).or_else(|| own.get(key)).cloned();
        Self { keys: keys(&said, &config), region: said("region"), endpoint: said("endpoint_url") }
    }
}

fn keys(said: &dyn Fn(&str) -> Option<String>, config: &str) -> ProfileKeys {
    let role = said("role_arn");
    if let Some((role, token_file)) = role.clone().zip(said("web_identity_token_file")) {
        let session = said("role_session_name").unwrap_or_else(|| SESSION_NAME.to_owned());
        return ProfileKeys::WebIdentity(WebIdentity {
            role,
            token_file: token_file.into(),
            session,
        });
    }
    if let Some(role) = role {
        return ProfileKeys::Unknown(format!(
            "it takes the role {role} with keys from elsewhere, which is not supported: let \
             `credential_process = aws configure export-credentials --profile NAME` print them"
        ));
    }
    if let Some((account, role)) = said("sso_account_id").zip(said("sso_role_name")) {
        return single_sign_on(said, config, account, role);
    }
    if let Some((access_key, secret_key)) =
        said("aws_access_key_id").zip(said("aws_secret_access_key"))
    {
        return ProfileKeys::Here(Credentials {
            session_token: said("aws_session_token"),
            ..Credentials::permanent(access_key, secret_key)
        });
    }
    said("credential_process").map_or(ProfileKeys::None, ProfileKeys::Process)
}

/// With a session of the configuration, or with the address itself as older configurations have it.
fn single_sign_on(
    said: &dyn Fn(&str) -> Option<String>,
    config: &str,
    account: String,
    role: String,
) -> ProfileKeys {
    let session = said("sso_session");
    let region = match &session {
        Some(session) => named(config, "sso-session ", session).get("sso_region").cloned(),
        None => said("sso_region"),
    };
    match session.or_else(|| said("sso_start_url")).zip(region) {
        Some((login, region)) => {
            ProfileKeys::SingleSignOn(SingleSignOn { login, region, account, role })
        }
        None => ProfileKeys::Unknown(
            "it names neither sso_session nor sso_start_url with a region".into(),
        ),
    }
}

/// The lines `key = value` below `[name]` or `[profile name]`. Nested lines (indented) are left out.
fn section(text: &str, name: &str) -> HashMap<String, String> {
    named(text, "profile ", name)
}

/// Those below `[name]`, or `[KIND name]`; without a kind only profiles are named.
fn named(text: &str, kind: &str, name: &str) -> HashMap<String, String> {
    let mut inside = false;
    let mut found = HashMap::new();
    for line in text.lines() {
        let bare = line.split(" #").next().unwrap_or(line).trim();
        if let Some(header) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let header = header.trim();
            inside = match header.strip_prefix(kind) {
                Some(rest) => rest.trim() == name,
                None => kind == "profile " && header == name,
            };
        } else if inside && !line.starts_with([' ', '\t', '#', ';']) {
            let pair = bare.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
            if let Some((key, value)) = pair.filter(|(_, value)| !value.is_empty()) {
                // A command may have a `#` of its own.
                let value = match key.eq_ignore_ascii_case("credential_process") {
                    true => line.split_once('=').map_or(value, |(_, value)| value.trim()),
                    false => value,
                };
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
        assert!(matches!(Profile::load(&environment).keys, ProfileKeys::None));
    }

    /// Where the keys of the profile `p` of this configuration are from.
    fn keys_of(config: &str) -> ProfileKeys {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(&file, config).unwrap();
        let profile = Some("p".to_owned());
        Profile::load(&Environment { config_file: Some(file), profile, ..Environment::default() })
            .keys
    }

    #[test]
    fn the_ways_to_keys() {
        let keys = keys_of("[profile p]\naws_access_key_id = A\naws_secret_access_key = s\n");
        assert!(matches!(keys, ProfileKeys::Here(keys) if keys.access_key == "A"));
        let keys = keys_of("[profile p]\ncredential_process = vault \"keys #1\"\n");
        assert!(matches!(keys, ProfileKeys::Process(command) if command == "vault \"keys #1\""));
        let keys = keys_of("[profile p]\nrole_arn = r\nweb_identity_token_file = /t\n");
        let expected =
            WebIdentity { role: "r".into(), token_file: "/t".into(), session: SESSION_NAME.into() };
        assert!(matches!(keys, ProfileKeys::WebIdentity(found) if found == expected));
        let keys = keys_of("[profile p]\nrole_arn = r\nsource_profile = q\n");
        assert!(matches!(keys, ProfileKeys::Unknown(why) if why.contains("credential_process")));
        assert!(matches!(keys_of("[profile p]\nregion = r\n"), ProfileKeys::None));
    }

    #[test]
    fn single_sign_on_is_by_a_session_or_by_its_address() {
        const ROLE: &str = "[profile p]\nsso_account_id = 1\nsso_role_name = r\n";
        let expected = |login: &str| {
            let (region, account, role) = ("eu-west-1".into(), "1".into(), "r".into());
            SingleSignOn { login: login.into(), region, account, role }
        };
        let session = format!(
            "{ROLE}sso_session = work\n[sso-session work]\nsso_region = eu-west-1\n[work]\nsso_region = no\n"
        );
        assert!(
            matches!(keys_of(&session), ProfileKeys::SingleSignOn(found) if found == expected("work"))
        );
        let address = format!("{ROLE}sso_start_url = https://a\nsso_region = eu-west-1\n");
        assert!(
            matches!(keys_of(&address), ProfileKeys::SingleSignOn(found) if found == expected("https://a"))
        );
        assert!(matches!(keys_of(ROLE), ProfileKeys::Unknown(_)));
    }
}
