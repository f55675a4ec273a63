//! Answers of an object store, or of another server at its address.

use hayase_tier::s3::answers;

use super::{way, way_of};

pub(super) fn listings() -> Vec<Vec<u8>> {
    let object = |key: &str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-30T10:00:00.000Z</LastModified>\
             <ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>7</Size></Contents>"
        )
    };
    let page = |more: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Name>bucket</Name><EncodingType>url</EncodingType>{}{}<CommonPrefixes><Prefix>d%2F</Prefix></CommonPrefixes>{more}\
             </ListBucketResult>",
            object("a%20b"),
            object("dir/")
        )
        .into_bytes()
    };
    let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
    vec![page("<IsTruncated>false</IsTruncated>"), page(more)]
}

pub(super) fn listing(bytes: &[u8]) -> u64 {
    way_of(answers::listing(bytes), |(names, more)| (*names as u64) << 1 | u64::from(*more))
}

pub(super) fn heads() -> Vec<Vec<u8>> {
    [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"x\"\r\nConnection: close\r\n\r\nhello",
        "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\nx-amz-meta-mode: 33188\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.0 503 Slow Down\r\nRetry-After: 1\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn head(bytes: &[u8]) -> u64 {
    way_of(answers::head(bytes), |found| found.map_or(0, |(status, _)| u64::from(status)))
}

/// What programs and services answer that have keys.
pub(super) fn keys_answers() -> Vec<Vec<u8>> {
    [
        r#"{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "SessionToken": "t",
            "Expiration": "2030-01-02T12:04:05+09:00"}"#,
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>\
         <Expiration>2099-01-01T00:00:00Z</Expiration><AccessKeyId>ROLE</AccessKeyId></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
        r#"{"roleCredentials": {"accessKeyId": "ROLE", "secretAccessKey": "s", "sessionToken": "t",
            "expiration": 4070908800000}}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn keys(bytes: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    way(answers::keys(&text).map(|keys| way_of(keys, |end| u64::from(*end))))
}
