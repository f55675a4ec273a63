//! Keys of a role after a login by `aws sso login` (IAM Identity Center).
//!
//! The login is in a file that the AWS CLI keeps; it is read, and never renewed.
//! Source: AWS SDKs and tools reference guide, "IAM Identity Center credential provider"; Single Sign-On portal API reference,
//! `GetRoleCredentials`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::digest;
use serde_json::Value;

use super::ask::{Question, Reach};
use super::{Credentials, json};
use crate::s3::aws;
use crate::s3::limits::TOKEN_SERVICE_PATIENCE;
use crate::s3::percent;

/// What a profile says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::s3) struct SingleSignOn {
    /// Names the login: the session of the configuration, or the address where it begins.
    pub(super) login: String,
    pub(super) region: String,
    pub(super) account: String,
    pub(super) role: String,
}

/// Asks the portal at `endpoint`, or that of the region, with the login that is kept in `cache`.
pub(super) fn ask(
    sso: &SingleSignOn,
    cache: &Path,
    endpoint: Option<&str>,
    reach: Reach<'_>,
) -> Result<Credentials, String> {
    let token = login(&cache_file(cache, &sso.login), SystemTime::now())?;
    let usual = format!("https://{}", aws::host("portal.sso", &sso.region));
    let uri = format!(
        "{}/federation/credentials?account_id={}&role_name={}",
        endpoint.unwrap_or(&usual).trim_end_matches('/'),
        percent::encode(&sso.account, false),
        percent::encode(&sso.role, false),
    );
    let headers = format!("x-amz-sso_bearer_token: {token}\r\n");
    let patience = TOKEN_SERVICE_PATIENCE;
    let question =
        Question { method: "GET", uri: &uri, headers: &headers, body: "", reach, patience };
    match question.insist(|_| false)? {
        (200, text) => parse(&text),
        (401 | 403, _) => Err("it does not accept the login: `aws sso login` renews it".into()),
        (status, _) => Err(format!("it answered with status {status}")),
    }
}

/// As the AWS CLI names it.
fn cache_file(cache: &Path, login: &str) -> PathBuf {
    let name = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, login.as_bytes());
    cache.join(format!("{}.json", data_encoding::HEXLOWER.encode(name.as_ref())))
}

/// The token of a login that has not ended.
fn login(file: &Path, now: SystemTime) -> Result<String, String> {
    let shown = file.display();
    let again = "`aws sso login` makes one";
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("read the login in {shown}: {error}; {again}"))?;
    let kept: Value = serde_json::from_str(&text)
        .map_err(|error| format!("the login in {shown}: {error}; {again}"))?;
    let said = |name: &str| kept.get(name).and_then(Value::as_str);
    let (token, end) = said("accessToken")
        .zip(said("expiresAt"))
        .ok_or_else(|| format!("there is no login in {shown}; {again}"))?;
    if json::time(end)? <= now {
        return Err(format!("the login in {shown} ended at {end}; {again}"));
    }
    match token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(format!("the token in {shown} is none; {again}")),
    }
}

pub(super) fn parse(text: &str) -> Result<Credentials, String> {
    let answer: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let keys = answer.get("roleCredentials").ok_or("it answered without keys")?;
    let said = |name: &str| keys.get(name).and_then(Value::as_str).map(str::to_owned);
    let pair = said("accessKeyId").zip(said("secretAccessKey"));
    let (access_key, secret_key) = pair.ok_or("it answered without keys")?;
    let end = keys
        .get("expiration")
        .and_then(Value::as_u64)
        .ok_or("it answered with keys without an end")?;
    let expires = Some(UNIX_EPOCH + Duration::from_millis(end));
    Ok(Credentials { access_key, secret_key, session_token: said("sessionToken"), expires })
}

#[cfg(test)]
mod tests {
    use super::super::Environment;
    use super::super::fake::{Answer, fake};
    use super::*;

    const KEYS: &str = r#"{"roleCredentials": {"accessKeyId": "ROLE", "secretAccessKey": "s",
                           "sessionToken": "t", "expiration": 4070908800000}}"#;

    fn asked(kept: Option<&str>, script: Vec<Answer>) -> Result<Credentials, String> {
        let cache = tempfile::tempdir().unwrap();
        let sso = SingleSignOn {
            login: "work".into(),
            region: "eu-west-1".into(),
            account: "1".into(),
            role: "a role".into(),
        };
        // SHA-1 of "work", by sha1sum(1).
        let file = cache.path().join("e274eeff768c6396088ec6eb091f4bf4d47ab1e0.json");
        if let Some(text) = kept {
            std::fs::write(&file, text).unwrap();
        }
        ask(&sso, cache.path(), Some(&fake(script)), Environment::default().reach())
    }

    #[test]
    fn a_login_is_worth_the_keys_of_a_role() {
        let kept = r#"{"accessToken": "TOKEN", "expiresAt": "2099-01-01T00:00:00Z"}"#;
        let expected = "GET /federation/credentials?account_id=1&role_name=a%20role |x-amz-sso_bearer_token: TOKEN";
        let keys = asked(Some(kept), vec![(expected, "200 OK", KEYS)]).unwrap();
        assert_eq!((keys.access_key.as_str(), keys.session_token.as_deref()), ("ROLE", Some("t")));
        assert_eq!(keys.expires, Some(UNIX_EPOCH + Duration::from_secs(4_070_908_800)));
        let why = asked(Some(kept), vec![("GET", "401 Unauthorized", "")]).unwrap_err();
        assert!(why.contains("aws sso login"), "{why}");
    }

    #[test]
    fn without_a_login_it_says_how_to_get_one() {
        let ended = r#"{"accessToken": "TOKEN", "expiresAt": "2020-01-01T00:00:00Z"}"#;
        let split = r#"{"accessToken": "A\r\nB", "expiresAt": "2099-01-01T00:00:00Z"}"#;
        for (kept, expected) in [
            (None, "read the login"),
            (Some("{"), "the login in"),
            (Some("{}"), "there is no login"),
            (Some(ended), "ended at 2020-01-01"),
            (Some(split), "is none"),
        ] {
            let why = asked(kept, vec![]).unwrap_err();
            assert!(why.contains(expected) && why.contains("aws sso login"), "{why}");
        }
    }
}
