//! Keys from the service of a container (ECS, EKS pod identity) or of an instance (IMDSv2).
//!
//! Source: AWS SDKs and tools reference guide, "Container credential provider" and "IMDS credential
//! provider"; the second version of the instance's service, which wants a token, is the only one used.

use serde_json::Value;

use super::{ContainerToken, Credentials};
use crate::s3::date;
use crate::s3::http::{self, Target};
use crate::s3::limits::METADATA_PATIENCE;

const INSTANCE_ROLE: &str = "/latest/meta-data/iam/security-credentials/";

/// Keys of the role that a container was given.
pub(super) fn from_container(
    uri: &str,
    token: Option<&ContainerToken>,
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
    let (host, path) = split(uri)?;
    if !is_near(host) {
        return Err("it is neither on this machine nor TLS, and would see the token".into());
    }
    let header = token.map(|token| format!("authorization: {token}\r\n")).unwrap_or_default();
    parse(&ask("GET", host, path, &header)?)
}

/// Keys of the role that an instance was given.
pub(super) fn from_instance(endpoint: &str) -> Result<Credentials, String> {
    let (host, _) = split(endpoint)?;
    let lease = "x-aws-ec2-metadata-token-ttl-seconds: 300\r\n";
    let token = ask("PUT", host, "/latest/api/token", lease)?;
    let header = format!("x-aws-ec2-metadata-token: {}\r\n", one_line(&token)?);
    let roles = ask("GET", host, INSTANCE_ROLE, &header)?;
    let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
    let role = role.ok_or("the instance has no role")?;
    parse(&ask("GET", host, &format!("{INSTANCE_ROLE}{role}"), &header)?)
}

/// `http://host:port/path` as `host:port` and `/path`.
fn split(uri: &str) -> Result<(&str, &str), String> {
    let rest = uri.strip_prefix("http://").ok_or("only http:// addresses are supported")?;
    let slash = rest.find('/').unwrap_or(rest.len());
    Ok((&rest[..slash], if slash == rest.len() { "/" } else { &rest[slash..] }))
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

fn ask(method: &str, authority: &str, path: &str, headers: &str) -> Result<String, String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| "it has no port number")?),
        None => (authority, 80),
    };
    let target = Target::plain(host, port);
    let length = if method == "PUT" { "content-length: 0\r\n" } else { "" };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {authority}\r\n{length}{headers}\r\n");
    let (status, body) = http::ask_once(&target, head.as_bytes(), METADATA_PATIENCE)
        .map_err(|error| error.to_string())?;
    match status {
        200 => String::from_utf8(body).map_err(|_| "it answered with no text".into()),
        other => Err(format!("it answered with status {other}")),
    }
}

/// The JSON that both services answer with.
fn parse(text: &str) -> Result<Credentials, String> {
    let answer: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let said = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
    let keys = said("AccessKeyId").zip(said("SecretAccessKey"));
    let (access_key, secret_key) = keys.ok_or("it answered without keys")?;
    let session_token = said("Token");
    let expires = said("Expiration").and_then(|end| date::parse_rfc3339(&end));
    Ok(Credentials { access_key, secret_key, session_token, expires })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Answers requests in turn: (what the request must contain, status line, body).
    fn fake(script: Vec<(&'static str, &'static str, &'static str)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for (expected, status, body) in script {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let count = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..count]).into_owned();
                let fine = expected.split('|').all(|part| request.contains(part));
                let status = if fine { status } else { "400 Bad Request" };
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        address
    }

    const KEYS: &str = r#"{"AccessKeyId":"ROLE","SecretAccessKey":"s","Token":"t",
                          "Expiration":"2099-01-01T00:00:00Z"}"#;

    #[test]
    fn an_instance_is_asked_in_three_steps() {
        let address = fake(vec![
            ("PUT /latest/api/token|ttl-seconds", "200 OK", "TOKEN"),
            ("security-credentials/ HTTP|metadata-token: TOKEN", "200 OK", "my-role"),
            ("security-credentials/my-role |metadata-token: TOKEN", "200 OK", KEYS),
        ]);
        let keys = from_instance(&address).unwrap();
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
            from_container(&format!("{address}/role"), Some(&token)).unwrap().access_key,
            "ROLE"
        );
        assert!(from_container("http://example.com/x", Some(&token)).is_err());
    }

    #[test]
    fn what_is_no_answer_is_explained() {
        let check = |script, expected: &str| {
            let why = from_instance(&fake(script)).unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        check(vec![("PUT", "403 Forbidden", "")], "status 403");
        check(vec![("PUT", "200 OK", "a\r\nb")], "no token");
        check(vec![("PUT", "200 OK", "t"), ("GET", "200 OK", "")], "no role");
        let no_json = vec![("PUT", "200 OK", "t"), ("GET", "200 OK", "r"), ("GET", "200 OK", "<")];
        check(no_json, "expected value");
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(from_instance(&format!("http://{nobody}")).is_err());
    }
}
