//! Keys as services and programs write them in JSON.

use std::time::{Duration, SystemTime};

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

/// RFC 3339, also with an offset; or with `UTC` at its end, as the AWS CLI once wrote it.
pub(super) fn time(text: &str) -> Result<SystemTime, String> {
    parse(text).ok_or_else(|| format!("`{text}` is no time"))
}

fn parse(text: &str) -> Option<SystemTime> {
    if let Some(rest) = text.strip_suffix("UTC") {
        return date::parse_rfc3339(&format!("{rest}Z"));
    }
    let Some(at) = text.rfind(['+', '-']).filter(|at| text[..*at].contains('T')) else {
        return date::parse_rfc3339(text);
    };
    let (clock, offset) = text.split_at(at);
    let digits: String = offset[1..].chars().filter(|it| *it != ':').collect();
    if digits.len() != 4 || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes): (u64, u64) = (digits[..2].parse().ok()?, digits[2..].parse().ok()?);
    let offset_by = Duration::from_secs(hours * 3600 + minutes * 60);
    let there = date::parse_rfc3339(&format!("{clock}Z"))?;
    match offset.starts_with('+') {
        true => there.checked_sub(offset_by),
        false => there.checked_add(offset_by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_and_without_an_offset() {
        let expected = time("2030-01-02T03:04:05Z").unwrap();
        for same in [
            "2030-01-02T03:04:05.678Z",
            "2030-01-02T03:04:05+00:00",
            "2030-01-02T12:04:05+09:00",
            "2030-01-01T22:04:05-0500",
            "2030-01-02T03:04:05UTC",
        ] {
            assert_eq!(time(same), Ok(expected), "{same}");
        }
        for none in [
            "",
            "soon",
            "2030-01-02",
            "2030-01-02T03:04:05",
            "2030-01-02T03:04:05+9",
            "2030-01-02T03:04:05+é:00",
        ] {
            assert!(time(none).is_err(), "{none}");
        }
    }
}
