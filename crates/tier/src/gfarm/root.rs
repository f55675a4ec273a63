//! The directory of Gfarm that is a tier: its URL, and paths below it.
//!
//! Gfarm has no calls relative to an open directory. So a path is looked at name by name before it is used: a link that
//! somebody puts there between the look and the use is followed. Within a second directories may be taken
//! for what they were (libgfarm keeps attributes that long).

use std::ffi::CString;

use super::error::{FILE_ON_THE_WAY, IS_DIRECTORY, LINK_ON_THE_WAY, code};
use super::library::{Failure, Kind, Library};
use super::{error, no_object};
use crate::{Action, TierError};

const SCHEME: &[u8] = b"gfarm://";

/// Where a tier begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// `gfarm://host:port`; empty: that of Gfarm's settings.
    server: Vec<u8>,
    /// Empty, or begins with a slash and does not end with one.
    path: Vec<u8>,
}

impl Root {
    /// `gfarm:///path`, with the metadata server of Gfarm's settings, or `gfarm://host:port/path`.
    pub(super) fn parse(url: &[u8]) -> Result<Self, &'static str> {
        let rest = url.strip_prefix(SCHEME).ok_or("it does not begin with `gfarm://`")?;
        if rest.contains(&0) {
            return Err("it holds a NUL byte");
        }
        let slash = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (server, path) = rest.split_at(slash);
        if path.split(|&byte| byte == b'/').any(|name| name == b"..") {
            return Err("it has a name `..`");
        }
        let server = if server.is_empty() { Vec::new() } else { [SCHEME, server].concat() };
        let names = path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        Ok(Self { server, path: names.flat_map(|name| [b"/", name].concat()).collect() })
    }

    /// What a person would type.
    pub(super) fn shown(&self, relative: &[u8]) -> String {
        let path = self.path(relative);
        let path = path.to_string_lossy();
        if self.server.is_empty() { format!("gfarm://{path}") } else { path.into_owned() }
    }

    /// As the library takes it; `relative` is made of a key's names, or empty for the root itself.
    pub(super) fn path(&self, relative: &[u8]) -> CString {
        let mut path = [self.server.as_slice(), &self.path].concat();
        if !relative.is_empty() || self.path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(relative.strip_suffix(b"/").unwrap_or(relative));
        CString::new(path).expect("neither a key nor a checked URL holds a zero")
    }

    pub(super) fn failed(
        &self,
        action: Action,
        relative: &[u8],
    ) -> impl Fn(Failure) -> TierError + use<> {
        let path = self.shown(relative);
        move |failure| error::sorted(&failure, action, path.clone())
    }

    /// Fails unless `relative` and all above it (below the root) are directories.
    pub(super) fn require_directory(
        &self,
        library: &Library,
        action: Action,
        relative: &[u8],
    ) -> Result<(), TierError> {
        for directory in ancestors_and_self(relative) {
            self.require_one(library, action, directory)?;
        }
        Ok(())
    }

    fn require_one(
        &self,
        library: &Library,
        action: Action,
        directory: &[u8],
    ) -> Result<(), TierError> {
        let path = self.path(directory);
        if library.lstat_cached(&path).is_ok_and(|stat| stat.kind == Kind::Directory) {
            return Ok(());
        }
        let stat = library.lstat(&path).map_err(self.failed(action, directory))?;
        match stat.kind {
            Kind::Directory => Ok(()),
            Kind::Link => Err(no_object(action, self.shown(directory), LINK_ON_THE_WAY)),
            Kind::File => Err(no_object(action, self.shown(directory), FILE_ON_THE_WAY)),
        }
    }

    /// As [`Root::require_directory`], but makes what is missing.
    pub(super) fn make_directory(
        &self,
        library: &Library,
        action: Action,
        relative: &[u8],
        mode: u32,
    ) -> Result<(), TierError> {
        for directory in ancestors_and_self(relative) {
            match self.require_one(library, action, directory) {
                Err(TierError::Missing { .. }) => {}
                answer => {
                    answer?;
                    continue;
                }
            }
            match library.mkdir(&self.path(directory), mode) {
                Err(failure) if failure.code == code::EXISTS => {
                    self.require_one(library, action, directory)?;
                }
                answer => answer.map_err(self.failed(action, directory))?,
            }
        }
        Ok(())
    }

    /// Fails when a new version may not take this name; a missing one may.
    pub(super) fn require_replaceable(
        &self,
        library: &Library,
        action: Action,
        relative: &[u8],
    ) -> Result<(), TierError> {
        match library.lstat(&self.path(relative)) {
            Err(failure) if failure.code == code::NO_SUCH_NAME => Ok(()),
            Err(failure) => Err(self.failed(action, relative)(failure)),
            Ok(stat) => match stat.kind {
                Kind::File => Ok(()),
                Kind::Directory => Err(no_object(action, self.shown(relative), IS_DIRECTORY)),
                Kind::Link => Err(no_object(action, self.shown(relative), error::IS_LINK)),
            },
        }
    }
}

/// `a`, `a/b`, `a/b/c`; nothing for the root.
fn ancestors_and_self(relative: &[u8]) -> impl Iterator<Item = &[u8]> {
    let relative = relative.strip_suffix(b"/").unwrap_or(relative);
    let slashes = relative.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    let whole = (!relative.is_empty()).then_some(relative);
    slashes.map(|(slash, _)| &relative[..slash]).chain(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_paths_of_the_library() {
        let check = |url: &str, root: &str, below: &str, shown: &str| {
            let found = Root::parse(url.as_bytes()).unwrap();
            assert_eq!(found.path(b"").to_str().unwrap(), root, "{url}");
            assert_eq!(found.path(b"a/b").to_str().unwrap(), below, "{url}");
            assert_eq!(found.shown(b""), shown, "{url}");
        };
        check("gfarm:///", "/", "/a/b", "gfarm:///");
        check("gfarm://", "/", "/a/b", "gfarm:///");
        check("gfarm:///home/x/", "/home/x", "/home/x/a/b", "gfarm:///home/x");
        check("gfarm:////home/./x", "/home/x", "/home/x/a/b", "gfarm:///home/x");
        check("gfarm://md:601", "gfarm://md:601/", "gfarm://md:601/a/b", "gfarm://md:601/");
        check("gfarm://md:601/d", "gfarm://md:601/d", "gfarm://md:601/d/a/b", "gfarm://md:601/d");
        for wrong in ["gfarm:/a", "/a", "gfarm:///a/../b", "gfarm:///a\0"] {
            assert!(Root::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn directories_are_looked_at_outermost_first() {
        let all = |path| ancestors_and_self(path).collect::<Vec<_>>();
        assert_eq!(all(b"a/b/c"), [&b"a"[..], b"a/b", b"a/b/c"]);
        assert_eq!(all(b"a/"), [b"a"]);
        assert!(all(b"").is_empty());
    }
}
