//! Keys of a role for a token of an identity provider (Kubernetes, CI systems).
//!
//! Source: AWS SDKs and tools reference guide, "Assume role credential provider"; AWS STS API reference,
//! `AssumeRoleWithWebIdentity`. The request is not signed: the token proves who asks.

use std::path::PathBuf;

use super::ask::{Question, Reach};
use super::{Credentials, json};
use crate::s3::limits::TOKEN_SERVICE_PATIENCE;
use crate::s3::percent;
use crate::s3::xml::Element;

/// A role, and where the token is that lets us have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebIdentity {
    /// Of the role.
    pub role: String,
    /// Read each time, since it is renewed.
    pub token_file: PathBuf,
    /// In the logs of the service.
    pub session: String,
}

/// Asks the token service at `endpoint`, `https://host`.
pub(super) fn ask(
    identity: &WebIdentity,
    endpoint: &str,
    reach: Reach<'_>,
) -> Result<Credentials, String> {
    let shown = identity.token_file.display();
    let token = std::fs::read_to_string(&identity.token_file)
        .map_err(|error| format!("read the token in {shown}: {error}"))?;
    let body = format!(
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&WebIdentityToken={}",
        percent::encode(&identity.role, false),
        percent::encode(&identity.session, false),
        percent::encode(token.trim(), false),
    );
    let uri = format!("{}/", endpoint.trim_end_matches('/'));
    let question = Question {
        method: "POST",
        uri: &uri,
        headers: "content-type: application/x-www-form-urlencoded\r\n",
        body: &body,
        reach,
        patience: TOKEN_SERVICE_PATIENCE,
    };
    // AWS asks to repeat these (Amazon STS API reference, "AssumeRoleWithWebIdentity", errors).
    let is_busy =
        |text: &str| text.contains("Throttling") || text.contains("IDPCommunicationError");
    let (status, text) = question.insist(is_busy)?;
    let answer = Element::parse(text.as_bytes())
        .map_err(|why| format!("it answered with status {status}, and what is no XML: {why}"))?;
    match status {
        200 => parse(&answer),
        _ => Err(refusal(status, &answer)),
    }
}

pub(super) fn parse(answer: &Element) -> Result<Credentials, String> {
    let result = answer.all("AssumeRoleWithWebIdentityResult").next();
    let keys = result
        .and_then(|result| result.all("Credentials").next())
        .ok_or("it answered without keys")?;
    let said = |name: &str| keys.text_of(name).map(str::to_owned);
    let pair = said("AccessKeyId").zip(said("SecretAccessKey"));
    let (access_key, secret_key) = pair.ok_or("it answered without keys")?;
    let expires = said("Expiration").map(|end| json::time(&end)).transpose()?;
    Ok(Credentials { access_key, secret_key, session_token: said("SessionToken"), expires })
}

/// In the words of the service.
fn refusal(status: u16, answer: &Element) -> String {
    let error = answer.all("Error").next();
    let said = |name: &str| error.and_then(|error| error.text_of(name)).unwrap_or("no reason");
    format!("it answered with status {status}: {}: {}", said("Code"), said("Message"))
}

#[cfg(test)]
mod tests {
    use super::super::Environment;
    use super::super::fake::{Answer, fake};
    use super::*;

    const KEYS: &str = "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
        <AssumeRoleWithWebIdentityResult><Credentials><SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>\
        <Expiration>2099-01-01T00:00:00Z</Expiration><AccessKeyId>ROLE</AccessKeyId></Credentials>\
        </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
    const REFUSED: &str = "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code>\
        <Message>Token expired</Message></Error></ErrorResponse>";

    fn asked(script: Vec<Answer>) -> Result<Credentials, String> {
        let directory = tempfile::tempdir().unwrap();
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, "head.body+sign\n").unwrap();
        let role = "arn:aws:iam::1:role/r".to_owned();
        let identity = WebIdentity { role, token_file, session: "job".into() };
        ask(&identity, &fake(script), Environment::default().reach())
    }

    #[test]
    fn a_token_is_worth_the_keys_of_a_role() {
        let expected = "POST / |RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=job&\
                        WebIdentityToken=head.body%2Bsign";
        let keys = asked(vec![(expected, "200 OK", KEYS)]).unwrap();
        assert_eq!((keys.access_key.as_str(), keys.session_token.as_deref()), ("ROLE", Some("t")));
        assert!(keys.expires.is_some());
    }

    #[test]
    fn a_busy_service_is_asked_again() {
        let busy = "<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>";
        let script = vec![
            ("POST", "400 Bad Request", busy),
            ("POST", "503 Busy", ""),
            ("POST", "200 OK", KEYS),
        ];
        assert_eq!(asked(script).unwrap().access_key, "ROLE");
    }

    #[test]
    fn a_refusal_has_the_words_of_the_service() {
        let why = asked(vec![("POST", "400 Bad Request", REFUSED)]).unwrap_err();
        assert!(why.contains("ExpiredTokenException: Token expired"), "{why}");
        let why = asked(vec![("POST", "200 OK", "<A/>")]).unwrap_err();
        assert!(why.contains("without keys"), "{why}");
        let why = asked(vec![("POST", "502 Bad Gateway", "oops"); 3]).unwrap_err();
        assert!(why.contains("status 502"), "{why}");
        let nowhere = WebIdentity {
            role: "r".into(),
            token_file: "/nonexistent".into(),
            session: "s".into(),
        };
        assert!(
            ask(&nowhere, "http://127.0.0.1:1", Environment::default().reach())
                .unwrap_err()
                .contains("/nonexistent")
        );
    }
}
