//! Keys as services and programs write them in JSON.

use serde_json::Value;

use super::Credentials;
use crate::s3::date;

/// `AccessKeyId`, `SecretAccessKey`, a token under the name that differs, and `Expiration`.
pub(super) fn keys(answer: &Value, token: &str) -> Result<Credentials, String> {
    let said = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
    let keys = said("AccessKeyId").zip(said("SecretAccessKey"));
    let (access_key, secret_key) = keys.ok_or("it answered without keys")?;
    // An end that is not understood would be none: keys that are used for ever.
    let expires = said("Expiration").map(|end| time(&end)).transpose()?;
    Ok(Credentials { access_key, secret_key, session_token: said(token), expires })
}

/// RFC 3339, in UTC as all of them write it.
pub(super) fn time(text: &str) -> Result<std::time::SystemTime, String> {
    let utc = text.strip_suffix("+00:00").map(|rest| format!("{rest}Z"));
    date::parse_rfc3339(utc.as_deref().unwrap_or(text))
        .ok_or_else(|| format!("`{text}` is no time in UTC"))
}
