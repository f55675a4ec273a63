//! The keys of servers: by its own a server proves that it is the one that it says.
//!
//! A server makes a pair (X25519) when it starts first and keeps it in its storage. The public half stands in its
//! entry of the list of members, and each server keeps those of all others as the first list had them: public keys on
//! first use, as in `known_hosts` of ssh. Not here: how a key is proved ([`crate::handshake`]), and how the list comes
//! about ([`crate::members`]).

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use hayase_layout::ServerId;
use serde::{Deserialize, Serialize};
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};

use crate::secret::{SECRET_BYTES, Secret, SecretError};

/// Length of either half of a pair.
pub const KEY_BYTES: usize = SECRET_BYTES;

/// The half of a server's pair that all others know.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; KEY_BYTES]);

/// A server's pair.
#[derive(Clone, Debug)]
pub struct ServerKey {
    private: Secret,
    public: PublicKey,
}

/// A server, as the others have known it since the job began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownServer {
    /// Its host, for people.
    pub host: String,
    /// What it proves itself by.
    pub key: PublicKey,
}

/// All servers of a job, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownServers(Vec<KnownServer>);

impl ServerKey {
    /// A fresh one.
    pub fn generate() -> Result<Self, SecretError> {
        Ok(Self::of(Secret::generate()?))
    }

    /// The one whose private half this is.
    pub fn of(private: Secret) -> Self {
        let dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519);
        let mut dh = dh.expect("snow is built with X25519");
        dh.set(private.as_bytes());
        let public = dh.pubkey().try_into().expect("as long as every key of X25519");
        Self { private, public: PublicKey(public) }
    }

    /// The one in a file of mode 0600; `None` where there is no file.
    pub fn read(path: &Path) -> Result<Option<Self>, SecretError> {
        match Secret::read(path) {
            Ok(private) => Ok(Some(Self::of(private))),
            Err(SecretError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A fresh one in a file of mode 0600, where no other one is; durable when this returns, and never there in part.
    pub fn make(path: &Path) -> Result<Self, SecretError> {
        let (made, new) = (Self::generate()?, path.with_extension("new"));
        let failed = |source| SecretError::Write { path: path.to_owned(), source };
        match fs::remove_file(&new) {
            // Of an earlier start, which was ended before anybody knew of it.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        made.private.write(&new)?;
        let place = || -> io::Result<()> {
            fs::rename(&new, path)?;
            File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        place().map_err(failed)?;
        Ok(made)
    }

    /// The half that others may know.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn public_bytes(&self) -> &[u8; KEY_BYTES] {
        self.public.as_bytes()
    }

    /// The other half, for the handshake.
    pub(crate) fn private(&self) -> &[u8; KEY_BYTES] {
        self.private.as_bytes()
    }
}

impl PublicKey {
    /// The bytes themselves.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl KnownServers {
    /// One of them.
    pub fn get(&self, server: ServerId) -> Option<&KnownServer> {
        self.0.get(usize::from(server.0))
    }

    /// The first server whose key is another one in `now`, or that is only in one of the two.
    pub fn first_changed(&self, now: &Self) -> Option<ServerId> {
        let most = self.0.len().max(now.0.len());
        let key = |of: &Self, at: usize| of.0.get(at).map(|known| known.key);
        let changed = (0..most).find(|&at| key(self, at) != key(now, at))?;
        u16::try_from(changed).ok().map(ServerId)
    }
}

impl FromIterator<KnownServer> for KnownServers {
    fn from_iter<T: IntoIterator<Item = KnownServer>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(*self))
    }
}

impl From<PublicKey> for String {
    /// 64 hex digits.
    fn from(key: PublicKey) -> Self {
        blake3::Hash::from_bytes(key.0).to_hex().to_string()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = blake3::HexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Self(*blake3::Hash::from_hex(text)?.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_key_survives_its_file_and_nothing_else_passes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.key");
        assert!(ServerKey::read(&path).unwrap().is_none());
        // An earlier start was killed in the middle.
        fs::write(path.with_extension("new"), b"half").unwrap();
        let made = ServerKey::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else stays");
        assert_eq!(ServerKey::read(&path).unwrap().unwrap().public(), made.public());
        assert_ne!(ServerKey::generate().unwrap().public(), made.public());

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(ServerKey::read(&path), Err(SecretError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, [1; 31]).unwrap();
        assert!(matches!(ServerKey::read(&path), Err(SecretError::Length { .. })));
        fs::remove_file(&path).unwrap();
        fs::create_dir(path.with_extension("new")).unwrap();
        assert!(matches!(ServerKey::make(&path), Err(SecretError::Write { .. })));
    }

    /// RFC 7748, 6.1.
    #[test]
    fn the_public_half_is_that_of_x25519() {
        let alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
        let alice = blake3::Hash::from_hex(alice).unwrap();
        let key = ServerKey::of(Secret::from_bytes(*alice.as_bytes()));
        let public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        assert_eq!(format!("{:?}", key.public()), public);
        assert_eq!(PublicKey::try_from(public.to_owned()).unwrap(), key.public());
        assert!(!format!("{key:?}").contains("7707"), "the private half is never shown");
    }

    #[test]
    fn a_changed_key_is_found_whichever_list_has_it() {
        let known = |keys: &[u8]| -> KnownServers {
            let key = |byte: &u8| ServerKey::of(Secret::from_bytes([*byte; 32])).public();
            keys.iter().map(|byte| KnownServer { host: "n".to_owned(), key: key(byte) }).collect()
        };
        for (one, other, changed) in [
            (&[1, 2, 3][..], &[1, 2, 3][..], None),
            (&[1, 2, 3], &[1, 4, 3], Some(1)),
            (&[1, 2, 3], &[1, 2], Some(2)),
            (&[1], &[1, 2], Some(1)),
        ] {
            assert_eq!(known(one).first_changed(&known(other)), changed.map(ServerId));
        }
    }
}
