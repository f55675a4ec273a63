//! The server's own key as the Noise engine takes it: nothing is computed for it before the peer has shown the secret.
//!
//! The engine gets the private half of a key and computes the public one, which costs a multiplication on the curve at each
//! handshake, also with strangers whose first message then turns out to be garbage. The public half is known here.

use std::sync::OnceLock;

use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};

use crate::keys::ServerKey;

/// The default engine, which knows both halves of one key.
pub(super) struct OwnKeyResolver {
    inner: DefaultResolver,
    key: ServerKey,
}

impl OwnKeyResolver {
    pub(super) fn new(key: ServerKey) -> Self {
        Self { inner: DefaultResolver, key }
    }
}

impl CryptoResolver for OwnKeyResolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        self.inner.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let other = self.inner.resolve_dh(choice)?;
        Some(Box::new(Either { key: self.key.clone(), is_own: false, own: OnceLock::new(), other }))
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        self.inner.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        self.inner.resolve_cipher(choice)
    }
}

/// The server's own key, or a new one of this handshake.
struct Either {
    key: ServerKey,
    is_own: bool,
    /// The engine's form of the own key, once it is multiplied with.
    own: OnceLock<Box<dyn Dh>>,
    other: Box<dyn Dh>,
}

impl Either {
    fn own(&self) -> &dyn Dh {
        &**self.own.get_or_init(|| {
            let mut own = DefaultResolver
                .resolve_dh(&DHChoice::Curve25519)
                .expect("keys of servers are of this curve");
            own.set(self.key.private());
            own
        })
    }
}

impl Dh for Either {
    fn name(&self) -> &'static str {
        self.other.name()
    }

    fn pub_len(&self) -> usize {
        self.other.pub_len()
    }

    fn priv_len(&self) -> usize {
        self.other.priv_len()
    }

    fn set(&mut self, privkey: &[u8]) {
        self.is_own = privkey == self.key.private();
        if !self.is_own {
            self.other.set(privkey);
        }
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        self.is_own = false;
        self.other.generate(rng)
    }

    fn pubkey(&self) -> &[u8] {
        if self.is_own { self.key.public_bytes() } else { self.other.pubkey() }
    }

    fn privkey(&self) -> &[u8] {
        if self.is_own { self.key.private() } else { self.other.privkey() }
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        if self.is_own { self.own().dh(pubkey, out) } else { self.other.dh(pubkey, out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KEY_BYTES;

    #[test]
    fn the_own_key_is_computed_with_when_it_is_needed_and_not_before() {
        let (key, peer) = (ServerKey::generate().unwrap(), ServerKey::generate().unwrap());
        let other = || DefaultResolver.resolve_dh(&DHChoice::Curve25519).unwrap();
        let mut own =
            Either { key: key.clone(), is_own: false, own: OnceLock::new(), other: other() };
        own.set(key.private());
        assert_eq!(own.pubkey(), key.public().as_bytes());
        assert_eq!(own.privkey(), key.private());
        assert!(own.own.get().is_none(), "for a stranger nothing is computed");
        let mut plain = other();
        plain.set(key.private());
        let (mut expected, mut found) = ([0; KEY_BYTES], [0; KEY_BYTES]);
        plain.dh(peer.public().as_bytes(), &mut expected).unwrap();
        own.dh(peer.public().as_bytes(), &mut found).unwrap();
        assert_eq!(found, expected);
        own.set(peer.private());
        assert_eq!(own.pubkey(), peer.public().as_bytes());
    }
}
