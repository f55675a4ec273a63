//! `HAYASE_S3_..`: what a person may say beyond the variables of every S3 tool.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use data_encoding::HEXLOWER_PERMISSIVE;
use hayase_layout::ByteCount;

use super::{
    Addressing, ConditionalWrites, Encryption, PayloadSignature, S3Settings, SettingsError,
    UploadChecksum,
};
use crate::s3::CredentialSource;

/// Sets what the variables say; leaves the rest as it is.
pub(super) fn apply(
    settings: &mut S3Settings,
    said: &dyn Fn(&str) -> Option<String>,
) -> Result<(), SettingsError> {
    let one_of = |name: &'static str, expected: &'static str| {
        said(name).map(|value| Said { name, value, expected })
    };
    if let Some(said) = one_of("HAYASE_S3_ADDRESSING", "`path` or `host`") {
        settings.addressing =
            said.among(&[("path", Addressing::Path), ("host", Addressing::Host)])?;
    }
    if let Some(said) = one_of("HAYASE_S3_ANONYMOUS", "`yes` or `no`")
        && said.among(&[("yes", true), ("no", false)])?
    {
        settings.credentials = CredentialSource::Anonymous;
    }
    if let Some(said) = one_of("HAYASE_S3_CHECKSUM", "`crc32c`, `sha256` or `off`") {
        settings.checksum = said.among(&[
            ("crc32c", UploadChecksum::Crc32c),
            ("sha256", UploadChecksum::Sha256),
            ("off", UploadChecksum::Off),
        ])?;
    }
    if let Some(said) = one_of("HAYASE_S3_ETAG_MD5", "`yes` or `no`") {
        settings.etag_is_md5 = said.among(&[("yes", true), ("no", false)])?;
    }
    if let Some(said) = one_of("HAYASE_S3_SIGN_BODIES", "`yes` or `no`") {
        settings.payload =
            said.among(&[("yes", PayloadSignature::Signed), ("no", PayloadSignature::Unsigned)])?;
    }
    if let Some(said) = one_of("HAYASE_S3_CONDITIONAL", "`probe`, `trusted` or `off`") {
        settings.conditional = said.among(&[
            ("probe", ConditionalWrites::Probe),
            ("trusted", ConditionalWrites::Trusted),
            ("off", ConditionalWrites::Off),
        ])?;
    }
    if let Some(said) = one_of("HAYASE_S3_PART_MIB", "a number from 5 to 512") {
        settings.part_bytes = ByteCount::mib(said.number(5..=512)?);
    }
    if let Some(said) = one_of("HAYASE_S3_ATTEMPTS", "a number from 1 to 100") {
        settings.attempts = u32::try_from(said.number(1..=100)?).expect("it is small");
    }
    encryption(settings, said)
}

fn encryption(
    settings: &mut S3Settings,
    said: &dyn Fn(&str) -> Option<String>,
) -> Result<(), SettingsError> {
    let (name, expected) = ("HAYASE_S3_SSE", "`s3`, `kms`, `kms:KEY` or `c`");
    let Some(value) = said(name) else { return Ok(()) };
    settings.encryption = match value.as_str() {
        "s3" => Encryption::ServerKeys,
        "kms" => Encryption::KeyService(None),
        "c" => Encryption::CustomerKey(customer_key(said)?),
        other => match other.strip_prefix("kms:").filter(|key| !key.is_empty()) {
            Some(key) => Encryption::KeyService(Some(key.to_owned())),
            None => return Err(SettingsError::Variable { name, value, expected }),
        },
    };
    if let Some(value) = said("HAYASE_S3_SSE_C_WITHOUT_TLS") {
        let said = Said { name: "HAYASE_S3_SSE_C_WITHOUT_TLS", value, expected: "`yes` or `no`" };
        settings.customer_key_in_clear = said.among(&[("yes", true), ("no", false)])?;
    }
    Ok(())
}

/// 32 bytes, or 64 hexadecimal digits, from the file that the variable names.
fn customer_key(said: &dyn Fn(&str) -> Option<String>) -> Result<[u8; 32], SettingsError> {
    let name = "HAYASE_S3_SSE_C_KEY_FILE";
    let path = PathBuf::from(said(name).ok_or(SettingsError::NoKeyFile)?);
    let failed = |why: String| SettingsError::KeyFile { path: path.clone(), why };
    let bytes = fs::read(&path).map_err(|error| failed(error.to_string()))?;
    if let Ok(key) = bytes.as_slice().try_into() {
        return Ok(key);
    }
    let decoded = HEXLOWER_PERMISSIVE.decode(bytes.trim_ascii()).ok();
    let key = decoded.and_then(|bytes| bytes.try_into().ok());
    key.ok_or_else(|| failed("a key is 64 hexadecimal digits, or exactly 32 bytes".into()))
}

/// A variable and what it may say.
struct Said {
    name: &'static str,
    value: String,
    expected: &'static str,
}

impl Said {
    fn among<T: Copy>(self, meanings: &[(&str, T)]) -> Result<T, SettingsError> {
        let found = meanings.iter().find(|(text, _)| *text == self.value);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| self.wrong())
    }

    fn number(self, range: std::ops::RangeInclusive<u64>) -> Result<u64, SettingsError> {
        let number = u64::from_str(&self.value).ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong())
    }

    fn wrong(self) -> SettingsError {
        SettingsError::Variable { name: self.name, value: self.value, expected: self.expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<S3Settings, SettingsError> {
        let mut settings = S3Settings::new("data");
        apply(&mut settings, &|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })?;
        Ok(settings)
    }

    #[test]
    fn every_setting_can_be_said() {
        let settings = from(&[
            ("HAYASE_S3_ADDRESSING", "host"),
            ("HAYASE_S3_ANONYMOUS", "yes"),
            ("HAYASE_S3_CHECKSUM", "sha256"),
            ("HAYASE_S3_ETAG_MD5", "no"),
            ("HAYASE_S3_SIGN_BODIES", "no"),
            ("HAYASE_S3_CONDITIONAL", "off"),
            ("HAYASE_S3_PART_MIB", "64"),
            ("HAYASE_S3_ATTEMPTS", "3"),
            ("HAYASE_S3_SSE", "kms:arn:x"),
        ])
        .unwrap();
        assert_eq!(settings.addressing, Addressing::Host);
        assert!(matches!(settings.credentials, CredentialSource::Anonymous));
        assert_eq!(settings.checksum, UploadChecksum::Sha256);
        assert_eq!(settings.payload, PayloadSignature::Unsigned);
        assert!(!settings.etag_is_md5);
        assert_eq!(settings.conditional, ConditionalWrites::Off);
        assert_eq!((settings.part_bytes, settings.attempts), (ByteCount::mib(64), 3));
        assert_eq!(settings.encryption, Encryption::KeyService(Some("arn:x".into())));
        let encryption = |sse| from(&[("HAYASE_S3_SSE", sse)]).unwrap().encryption;
        assert_eq!(encryption("s3"), Encryption::ServerKeys);
        assert_eq!(encryption("kms"), Encryption::KeyService(None));
    }

    #[test]
    fn what_can_not_be_meant_is_refused_with_what_can() {
        for (name, value) in [
            ("HAYASE_S3_ADDRESSING", "paths"),
            ("HAYASE_S3_ANONYMOUS", "1"),
            ("HAYASE_S3_CHECKSUM", "md5"),
            ("HAYASE_S3_CONDITIONAL", "no"),
            ("HAYASE_S3_PART_MIB", "4"),
            ("HAYASE_S3_PART_MIB", "8MiB"),
            ("HAYASE_S3_ATTEMPTS", "0"),
            ("HAYASE_S3_SSE", "kms:"),
            ("HAYASE_S3_SSE", "aes"),
        ] {
            let error = from(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_key_of_ones_own_is_read_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let key = || {
            from(&[("HAYASE_S3_SSE", "c"), ("HAYASE_S3_SSE_C_KEY_FILE", path)])
                .map(|settings| settings.encryption)
        };
        for bytes in [[7; 32].to_vec(), format!("{}\n", "07".repeat(32)).into_bytes()] {
            fs::write(path, bytes).unwrap();
            assert_eq!(key().unwrap(), Encryption::CustomerKey([7; 32]));
        }
        fs::write(path, "short").unwrap();
        assert!(matches!(key(), Err(SettingsError::KeyFile { .. })));
        assert_eq!(from(&[("HAYASE_S3_SSE", "c")]).unwrap_err(), SettingsError::NoKeyFile);
    }
}
