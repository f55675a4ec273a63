//! Signature version 4: a request and a secret become an `authorization` header.
//!
//! Pure: the time comes in. Bytes of bodies are signed by their SHA-256, or left to TLS.
//! Source: Amazon S3 API reference, "Authenticating requests (AWS signature version 4)"; the vectors
//! below are its examples.

use data_encoding::HEXLOWER;
use ring::{digest, hmac};

use super::credentials::Credentials;
use super::percent;

/// `x-amz-content-sha256` of a body that the signature does not cover.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// SHA-256 of nothing.
pub(super) const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// What of a request is signed.
#[derive(Debug)]
pub(super) struct Signable<'a> {
    pub(super) method: &'a str,
    /// Encoded, with its leading slash.
    pub(super) path: &'a str,
    /// Not encoded, in any order.
    pub(super) query: &'a [(String, String)],
    /// Names in lower case; `host`, `x-amz-date` and `x-amz-content-sha256` among them.
    pub(super) headers: &'a [(String, String)],
    /// The value of `x-amz-content-sha256`.
    pub(super) payload: &'a str,
}

/// Where and when a signature is valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    /// As in `x-amz-date`.
    pub(super) time: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

/// The value of `authorization`.
pub(super) fn authorization(
    request: &Signable<'_>,
    scope: Scope<'_>,
    credentials: &Credentials,
) -> String {
    let date = &scope.time[..8];
    let mut headers: Vec<_> = request.headers.iter().collect();
    headers.sort();
    let signed: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let signed = signed.join(";");
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, query(request.query));
    for (name, value) in headers {
        canonical.push_str(name);
        canonical.push(':');
        canonical.push_str(&squeezed(value));
        canonical.push('\n');
    }
    canonical.push_str(&format!("\n{signed}\n{}", request.payload));
    let place = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let text =
        format!("AWS4-HMAC-SHA256\n{}\n{place}\n{}", scope.time, sha256(canonical.as_bytes()));
    let mut key = format!("AWS4{}", credentials.secret_key).into_bytes();
    for step in [date, scope.region, scope.service, "aws4_request"] {
        key = hmac_sha256(&key, step);
    }
    let signature = HEXLOWER.encode(&hmac_sha256(&key, &text));
    let who = &credentials.access_key;
    format!(
        "AWS4-HMAC-SHA256 Credential={who}/{place}, SignedHeaders={signed}, Signature={signature}"
    )
}

/// The query string, encoded and in the order of signatures.
pub(super) fn query(pairs: &[(String, String)]) -> String {
    let encode = |text: &String| percent::encode(text, false);
    let mut encoded: Vec<_> = pairs.iter().map(|(k, v)| (encode(k), encode(v))).collect();
    encoded.sort();
    let joined: Vec<String> = encoded.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
    joined.join("&")
}

/// Hexadecimal SHA-256.
pub(super) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// The same of a body in pieces.
pub(super) fn sha256_of(pieces: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    pieces.iter().for_each(|piece| context.update(piece));
    HEXLOWER.encode(context.finish().as_ref())
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// A value without outer blanks and with single inner ones.
fn squeezed(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "examplebucket.s3.amazonaws.com";

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    /// The examples of the reference share date, region and keys.
    fn check(
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        more: &[(&str, &str)],
        expected: &str,
    ) {
        let payload =
            more.iter().find(|(k, _)| *k == "x-amz-content-sha256").map_or(EMPTY, |p| p.1);
        let mut headers = pairs(more);
        headers.extend(pairs(&[("host", HOST), ("x-amz-date", "20130524T000000Z")]));
        if !more.iter().any(|(k, _)| *k == "x-amz-content-sha256") {
            headers.extend(pairs(&[("x-amz-content-sha256", EMPTY)]));
        }
        let request = Signable { method, path, query: &pairs(query), headers: &headers, payload };
        let scope = Scope { time: "20130524T000000Z", region: "us-east-1", service: "s3" };
        let credentials = Credentials::permanent(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        );
        let header = authorization(&request, scope, &credentials);
        assert_eq!(header.rsplit_once("Signature=").unwrap().1, expected, "{method} {path}");
    }

    #[test]
    fn the_examples_of_the_reference_are_met() {
        check(
            "GET",
            "/test.txt",
            &[],
            &[("range", "bytes=0-9")],
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        let put = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            (
                "x-amz-content-sha256",
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            ),
        ];
        check(
            "PUT",
            "/test%24file.text",
            &[],
            &put,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        );
        check(
            "GET",
            "/",
            &[("lifecycle", "")],
            &[],
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        );
        check(
            "GET",
            "/",
            &[("prefix", "J"), ("max-keys", "2")],
            &[],
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }

    #[test]
    fn queries_are_sorted_after_encoding_and_values_squeezed() {
        assert_eq!(query(&pairs(&[("b", "/ +"), ("a-", ""), ("a", "x")])), "a=x&a-=&b=%2F%20%2B");
        assert_eq!(squeezed("  a   b "), "a b");
        assert_eq!(sha256(b""), EMPTY);
    }
}
