//! Where a file of Gfarm lies, on how many hosts, and on which it shall.

use std::ffi::CString;
use std::thread;
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;

use super::error::code;
use super::library::Failure;
use super::{Gfarm, upload};
use crate::{Action, Attributes, Key, Location, TierError, Upload};

/// Between two looks at whether a copy is complete.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Number of copies that gfmd keeps of a file, or of what is made in a directory from now on.
const WANTED: &str = "gfarm.ncopy";

impl Gfarm {
    /// Hosts that hold the object whole and answer, as Gfarm names them; empty for an object without bytes.
    ///
    /// # Errors
    /// `Unavailable` when there are bytes and no such host.
    pub fn replicas(&self, key: &Key) -> Result<Vec<String>, TierError> {
        let stat = self.find(Action::Locate, key)?;
        let path = self.root.path(key.as_bytes());
        let hosts = self.library.replicas(&path).map_err(self.failed(Action::Locate, key))?;
        if hosts.is_empty() && stat.size > 0 {
            let path = self.root.shown(key.as_bytes());
            let source = std::io::Error::other("no host that holds a copy answers");
            return Err(TierError::Unavailable { action: Action::Locate, path, source });
        }
        Ok(hosts)
    }

    pub(super) fn whole_location(&self, key: &Key) -> Result<Vec<Location>, TierError> {
        let hosts = self.replicas(key)?;
        let size = self.find(Action::Locate, key)?.size;
        let whole = Location { start: 0, len: ByteCount(size), hosts };
        Ok(if size == 0 { Vec::new() } else { vec![whole] })
    }

    /// Makes sure that `host` holds a copy; returns when it is complete.
    ///
    /// # Errors
    /// `Unavailable` when it is not within `patience` (it may become so later); what Gfarm says of a host that it does not know.
    pub fn replicate_to(&self, key: &Key, host: &str, patience: Duration) -> Result<(), TierError> {
        let begin = Instant::now();
        if self.replicas(key)?.iter().any(|there| there == host) {
            return Ok(());
        }
        let name = CString::new(host).map_err(|_| self.no_host(key, host))?;
        let path = self.root.path(key.as_bytes());
        match self.library.replicate(&path, &name) {
            // Gfarm makes copies by itself too: this one is there by now, or on its way.
            Err(failure) if matches!(failure.code, code::EXISTS | code::IN_PROGRESS) => {}
            answer => answer.map_err(self.failed(Action::Replicate, key))?,
        }
        while !self.replicas(key)?.iter().any(|there| there == host) {
            if begin.elapsed() >= patience {
                let path = self.root.shown(key.as_bytes());
                let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
                return Err(TierError::Unavailable { action: Action::Replicate, path, source });
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Makes sure that at least `count` hosts hold the object, on hosts that have room and are least busy; the hosts that do at
    /// the end. An object without bytes needs none.
    ///
    /// # Errors
    /// As [`Gfarm::replicate_to`]; `Refused` when there are fewer hosts.
    pub fn replicate(
        &self,
        key: &Key,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<String>, TierError> {
        let there = self.replicas(key)?;
        if there.len() >= count || self.find(Action::Replicate, key)?.size == 0 {
            return Ok(there);
        }
        let path = self.root.path(key.as_bytes());
        let hosts = self.library.hosts(&path).map_err(self.failed(Action::Replicate, key))?;
        let more: Vec<&String> = hosts.iter().filter(|host| !there.contains(host)).collect();
        let missing = count - there.len();
        if more.len() < missing {
            let (action, path) = (Action::Replicate, self.root.shown(key.as_bytes()));
            let what = format!("only {} hosts can hold it", there.len() + more.len());
            let help =
                "ask for fewer copies; `gfhost -lv` and `gfdf` show the hosts and their room";
            return Err(TierError::Refused { action, path, what, help });
        }
        for host in &more[..missing] {
            self.replicate_to(key, host, patience)?;
        }
        self.replicas(key)
    }

    /// Copies that Gfarm keeps of this object by itself; `None` where nobody has said a number here.
    ///
    /// # Errors
    /// As [`crate::Tier::stat`].
    pub fn replicas_wanted(&self, key: &Key) -> Result<Option<u32>, TierError> {
        let value = self.xattr(key, WANTED.as_bytes())?;
        let text = value.and_then(|value| String::from_utf8(value).ok());
        Ok(text.and_then(|text| text.trim_end_matches('\0').parse().ok()))
    }

    /// Tells Gfarm to keep `count` copies from the next change on, and, where the metadata server checks
    /// replicas, of the bytes that are there.
    ///
    /// # Errors
    /// As [`crate::Tier::set_attributes`].
    pub fn set_replicas_wanted(&self, key: &Key, count: u32) -> Result<(), TierError> {
        self.set_xattr(key, WANTED.as_bytes(), count.to_string().as_bytes())
    }

    /// As [`crate::Tier::begin`], on the host of this name and no other.
    ///
    /// # Errors
    /// Those of `begin`, and what Gfarm says of a host that it does not know or that has no room.
    pub fn begin_on(
        &self,
        key: &Key,
        attributes: Attributes,
        host: &str,
    ) -> Result<Box<dyn Upload>, TierError> {
        let name = CString::new(host).map_err(|_| self.no_host(key, host))?;
        upload::begin_on(self, key, attributes, &name)
    }

    fn no_host(&self, key: &Key, host: &str) -> TierError {
        let text = format!("no host is named {host:?}");
        self.failed(Action::Replicate, key)(Failure { code: code::UNKNOWN_HOST, text })
    }
}
