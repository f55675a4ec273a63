//! The secret of a job: 32 random bytes in a file that only its owner may read.
//!
//! Whoever has it may be a server of the job. It never travels; it keys the handshake
//! ([`crate::handshake`]) and the list of members ([`crate::members`]).

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};

/// Length of a secret.
pub const SECRET_BYTES: usize = 32;

/// A job's secret.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

/// Why a secret could not be made, kept or read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The kernel gave no randomness.
    #[error("make a secret: no randomness to be had")]
    Random,
    /// The file could not be written.
    #[error("write secret {}", .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be read.
    #[error("read secret {}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it: it is no secret.
    #[error("secret {} may be read by others (mode {mode:04o}, 0600 expected)", .path.display())]
    Exposed {
        /// Which.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Too short or too long.
    #[error("secret {} is not {SECRET_BYTES} bytes long", .path.display())]
    Length {
        /// Which.
        path: PathBuf,
    },
}

impl Secret {
    /// A fresh one.
    pub fn generate() -> Result<Self, SecretError> {
        let mut bytes = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| SecretError::Random)?;
        Ok(Self(bytes))
    }

    /// From bytes that somebody else keeps secret.
    pub const fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Writes a new file of mode 0600; fails when it exists.
    pub fn write(&self, path: &Path) -> Result<(), SecretError> {
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&self.0)?;
            file.sync_all()
        };
        write().map_err(|source| SecretError::Write { path: path.to_owned(), source })
    }

    /// Reads the file; refuses one that others may read.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let failed = |source| SecretError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Exposed { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::with_capacity(SECRET_BYTES + 1);
        file.take(SECRET_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        let bytes = bytes.try_into().map_err(|_| SecretError::Length { path: path.to_owned() })?;
        Ok(Self(bytes))
    }

    /// The bytes themselves.
    pub const fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl SecretError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Exposed { .. } => Some("run `chmod 600` on it, or start a new job"),
            Self::Read { .. } => {
                Some("give the directory of a running job, as `hayase up` printed it")
            }
            Self::Length { .. } => {
                Some("the file is damaged: end the job with `hayase down`, and start another one")
            }
            Self::Random | Self::Write { .. } => None,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_survives_its_file_and_nothing_else_passes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let secret = Secret::generate().unwrap();
        secret.write(&path).unwrap();
        assert_eq!(Secret::read(&path).unwrap().as_bytes(), secret.as_bytes());
        assert!(
            matches!(secret.write(&path), Err(SecretError::Write { .. })),
            "kept, not replaced"
        );

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Secret::read(&path), Err(SecretError::Exposed { mode: 0o640, .. })));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, [1; 31]).unwrap();
        assert!(matches!(Secret::read(&path), Err(SecretError::Length { .. })));
        fs::remove_file(&path).unwrap();
        assert!(matches!(Secret::read(&path), Err(SecretError::Read { .. })));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
