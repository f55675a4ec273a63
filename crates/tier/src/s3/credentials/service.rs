//! Keys from the service of a container (ECS, EKS pod identity) or of an instance (IMDSv2).
//!
//! Source: AWS SDKs and tools reference guide, "Container credential provider" and "IMDS credential
//! provider"; the second version of the instance's service, which wants a token, is the only one used.

use serde_json::Value;

use super::ask::{Question, Reach, split};
use super::{ContainerToken, Credentials, json};
use crate::s3::limits::METADATA_PATIENCE;

const INSTANCE_ROLE: &str = "/latest/meta-data/iam/security-credentials/";

/// Keys of the role that a container was given.
pub(super) fn from_container(
    uri: &str,
    token: Option<&ContainerToken>,
    reach: Reach<'_>,
) -> Result<Credentials, String> {
    let token = match token {
        None => None,
        Some(ContainerToken::Text(text)) => Some(text.clone()),
        Some(ContainerToken::File(path)) => Some(
            std::fs::read_to_string(path)
                .map_err(|error| format!("read the token in {}: {error}", path.display()))?
                .trim()
                .to_owned(),
        ),
    };
    let (tls, host, _) = split(uri)?;
    if !tls && !is_near(host) {
        return Err("it is neither on this machine nor TLS, and would see the token".into());
    }
    let header = token.map(|token| format!("authorization: {token}\r\n")).unwrap_or_default();
    parse(&ask("GET", uri, &header, reach)?)
}

/// Keys of the role that an instance was given.
pub(super) fn from_instance(endpoint: &str, reach: Reach<'_>) -> Result<Credentials, String> {
    let at = |path: &str| format!("{}{path}", endpoint.trim_end_matches('/'));
    let lease = "x-aws-ec2-metadata-token-ttl-seconds: 300\r\n";
    let token = ask("PUT", &at("/latest/api/token"), lease, reach)?;
    let header = format!("x-aws-ec2-metadata-token: {}\r\n", one_line(&token)?);
    let roles = ask("GET", &at(INSTANCE_ROLE), &header, reach)?;
    let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
    let role = role.ok_or("the instance has no role")?;
    parse(&ask("GET", &at(&format!("{INSTANCE_ROLE}{role}")), &header, reach)?)
}

/// Loopback, or the link-local addresses that containers are given.
fn is_near(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let near = ["localhost", "169.254.170.2", "169.254.170.23", "[::1]", "[fd00:ec2::23]"];
    name.starts_with("127.") || near.contains(&name) || near.contains(&host)
}

fn one_line(text: &str) -> Result<&str, String> {
    let line = text.trim();
    let plain = line.bytes().all(|byte| byte.is_ascii_graphic());
    if plain { Ok(line) } else { Err("it answered with no token".into()) }
}

fn ask(method: &'static str, uri: &str, headers: &str, reach: Reach<'_>) -> Result<String, String> {
    Question { method, uri, headers, body: "", reach, patience: METADATA_PATIENCE }.expect()
}

/// The JSON that both services answer with.
fn parse(text: &str) -> Result<Credentials, String> {
    let answer: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    json::keys(&answer, "Token")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::Environment;
    use super::super::fake::fake;
    use super::*;

    const KEYS: &str = r#"{"AccessKeyId":"ROLE","SecretAccessKey":"s","Token":"t",
                          "Expiration":"2099-01-01T00:00:00Z"}"#;

    #[test]
    fn an_instance_is_asked_in_three_steps() {
        let address = fake(vec![
            ("PUT /latest/api/token|ttl-seconds", "200 OK", "TOKEN"),
            ("security-credentials/ HTTP|metadata-token: TOKEN", "200 OK", "my-role"),
            ("security-credentials/my-role |metadata-token: TOKEN", "200 OK", KEYS),
        ]);
        let keys = from_instance(&address, Environment::default().reach()).unwrap();
        assert_eq!((keys.access_key.as_str(), keys.session_token.as_deref()), ("ROLE", Some("t")));
        assert!(keys.expires.is_some_and(|end| end > std::time::SystemTime::now()));
    }

    #[test]
    fn a_container_is_asked_with_its_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "secret\n").unwrap();
        let token = ContainerToken::File(file);
        let address = fake(vec![("GET /role |authorization: secret\r\n", "200 OK", KEYS)]);
        assert_eq!(
            from_container(
                &format!("{address}/role"),
                Some(&token),
                Environment::default().reach()
            )
            .unwrap()
            .access_key,
            "ROLE"
        );
        assert!(
            from_container("http://example.com/x", Some(&token), Environment::default().reach())
                .is_err()
        );
    }

    #[test]
    fn what_is_no_answer_is_explained() {
        let check = |script, expected: &str| {
            let why = from_instance(&fake(script), Environment::default().reach()).unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        check(vec![("PUT", "403 Forbidden", "")], "status 403");
        check(vec![("PUT", "200 OK", "a\r\nb")], "no token");
        check(vec![("PUT", "200 OK", "t"), ("GET", "200 OK", "")], "no role");
        let no_json = vec![("PUT", "200 OK", "t"), ("GET", "200 OK", "r"), ("GET", "200 OK", "<")];
        check(no_json, "expected value");
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(
            from_instance(&format!("http://{nobody}"), Environment::default().reach()).is_err()
        );
    }
}
