//! Which files become containers: by the environment, by hints, by marks of directories.
//!
//! Here: the settings, and the decision about one path. Not here: acting on it ([`crate::calls::opening`]).
//!
//! | what | values | default |
//! |---|---|---|
//! | `HAYASE_MPIIO`, hint `hayase` | `off`, `auto`, `on` | `auto` |
//! | `HAYASE_MPIIO_PATHS` | patterns with `*` and `?`, separated by `:` | none |
//! | `HAYASE_MPIIO_CONSISTENCY`, hint `hayase_consistency` | `mpi`, `posix` | `mpi` |
//! | hint `hayase_flatten` | `close`, `keep` | see [`Flatten`] |
//! | `HAYASE_MPIIO_EXCHANGE`, hint `hayase_exchange` | `off`, `auto`, `on` | `auto` |
//! | hint `hayase_exchange_buffer` | bytes | [`ROUND_BYTES`] |
//!
//! A hint counts before the environment. Rank 0 decides for all: its environment and hints count.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use hayase_container::{Container, ContainerError};
use hayase_layout::ByteCount;

use crate::{
    abi::Handle,
    error::Error,
    exchange::{Exchange, ROUND_BYTES},
    flat::Flatten,
    library::hints,
    shared_bytes::Consistency,
    stderr,
};

/// Whether files become containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// None, and containers that exist are not read either.
    Off,
    /// New files in `shared` and `cache` of a job, and in marked directories.
    Auto,
    /// Also new files that match the patterns; by a hint, this one.
    On,
}

/// What was typed into the environment.
#[derive(Debug)]
pub(crate) struct Settings {
    mode: Mode,
    patterns: Vec<Vec<u8>>,
    consistency: Consistency,
    exchange: Exchange,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// None of ours.
    Pass,
    /// It is a container.
    Existing,
    /// It is to become one.
    New {
        /// And this at its close.
        flatten: Flatten,
        /// An empty file has the name, and makes room.
        replaces_empty: bool,
    },
}

impl Settings {
    /// Read once, at the first call.
    pub(crate) fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| Self {
            mode: variable("HAYASE_MPIIO", mode_of).unwrap_or(Mode::Auto),
            patterns: std::env::var_os("HAYASE_MPIIO_PATHS")
                .unwrap_or_default()
                .as_bytes()
                .split(|byte| *byte == b':')
                .filter(|pattern| !pattern.is_empty())
                .map(<[u8]>::to_vec)
                .collect(),
            consistency: variable("HAYASE_MPIIO_CONSISTENCY", consistency_of)
                .unwrap_or(Consistency::Mpi),
            exchange: variable("HAYASE_MPIIO_EXCHANGE", exchange_of).unwrap_or(Exchange::Auto),
        })
    }

    /// Whether nothing is to be looked at. Every process of a program must be told the same.
    pub(crate) fn is_off(&self) -> bool {
        self.mode == Mode::Off
    }

    /// What `path` is to be. `may_create`: the program allows a new file.
    pub(crate) fn decide(
        &self,
        path: &Path,
        info: Handle,
        may_create: bool,
    ) -> Result<Decision, Error> {
        let hint = hint(info, c"hayase", mode_of)?;
        let mode = hint.unwrap_or(self.mode);
        if mode == Mode::Off || path.as_os_str().is_empty() || names_a_driver(path) {
            return Ok(Decision::Pass);
        }
        if Container::is_at(path)? {
            return Ok(Decision::Existing);
        }
        // A file with bytes in it stays what it is. An empty one says nothing: programs make one to have a
        // name (mkstemp), or are about to write it anew.
        let found = path.symlink_metadata().ok();
        let is_empty = |found: &std::fs::Metadata| found.is_file() && found.len() == 0;
        if !may_create || found.as_ref().is_some_and(|found| !is_empty(found)) {
            return Ok(Decision::Pass);
        }
        let is_marked = match hayase_container::enabled_above(path) {
            Err(ContainerError::Io { .. }) => false, // the library will say what is wrong with the path
            answer => answer?.is_some(),
        };
        let is_in_area = hayase_container::area::takes(parent_of(path));
        let is_wanted = is_marked
            || is_in_area
            || hint == Some(Mode::On)
            || (mode == Mode::On && self.patterns.iter().any(|pattern| is_match(pattern, path)));
        if !is_wanted {
            return Ok(Decision::Pass);
        }
        let flatten = hint_flatten(info)?;
        let default = if is_marked || is_in_area { Flatten::Keep } else { Flatten::Close };
        let flatten = flatten.unwrap_or(default);
        Ok(Decision::New { flatten, replaces_empty: found.is_some() })
    }

    /// For a file that is opened with these hints.
    pub(crate) fn consistency(&self, info: Handle) -> Result<Consistency, Error> {
        let hint = hint(info, c"hayase_consistency", consistency_of)?;
        Ok(hint.unwrap_or(self.consistency))
    }

    /// For a file that is opened with these hints.
    pub(crate) fn exchange(&self, info: Handle) -> Result<Exchange, Error> {
        Ok(hint(info, c"hayase_exchange", exchange_of)?.unwrap_or(self.exchange))
    }
}

/// The hint about what is left of an existing container.
pub(crate) fn hint_flatten(info: Handle) -> Result<Option<Flatten>, Error> {
    hint(info, c"hayase_flatten", |value| match value {
        "close" => Some(Flatten::Close),
        "keep" => Some(Flatten::Keep),
        _ => None,
    })
}

/// The hint about the bytes of a round of an exchange.
pub(crate) fn hint_round_bytes(info: Handle) -> Result<ByteCount, Error> {
    let bytes = hint(info, c"hayase_exchange_buffer", |value| value.parse().ok())?;
    Ok(bytes.unwrap_or(ROUND_BYTES))
}

fn mode_of(value: &str) -> Option<Mode> {
    match value {
        "off" | "0" => Some(Mode::Off),
        "auto" => Some(Mode::Auto),
        "on" | "1" => Some(Mode::On),
        _ => None,
    }
}

fn consistency_of(value: &str) -> Option<Consistency> {
    match value {
        "mpi" => Some(Consistency::Mpi),
        "posix" => Some(Consistency::Posix),
        _ => None,
    }
}

fn exchange_of(value: &str) -> Option<Exchange> {
    match value {
        "off" | "0" => Some(Exchange::Off),
        "auto" => Some(Exchange::Auto),
        "on" | "1" => Some(Exchange::On),
        _ => None,
    }
}

/// A value that is not understood is said and left out, as MPI wants it of hints.
fn variable<T>(name: &str, read: fn(&str) -> Option<T>) -> Option<T> {
    let value = std::env::var(name).ok()?;
    let meant = read(&value);
    if meant.is_none() {
        stderr::say(&format!("{name}={value} is not known, and left out"));
    }
    meant
}

fn hint<T>(
    info: Handle,
    key: &std::ffi::CStr,
    read: fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(value) = hints::value(info, key)? else { return Ok(None) };
    let meant = read(&value);
    if meant.is_none() {
        let key = key.to_string_lossy();
        stderr::say(&format!("hint {key}={value} is not known, and left out"));
    }
    Ok(meant)
}

fn parent_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// `ufs:name` and the like, by which ROMIO is told how to treat a file: the name is not all of it.
fn names_a_driver(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let prefix = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    prefix > 1 && bytes.get(prefix) == Some(&b':')
}

/// Whether all of the absolute path is what the pattern says: `*` for any bytes, `?` for one.
fn is_match(pattern: &[u8], path: &Path) -> bool {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    matches(pattern, absolute.as_os_str().as_bytes())
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where the last `*` was, and how much of the text it has taken so far.
    let (mut star, mut taken) = (None, 0);
    let (mut at, mut now) = (0, 0);
    while now < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some(at);
                taken = now;
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[now] => {
                at += 1;
                now += 1;
            }
            _ => {
                let Some(star) = star else { return false };
                taken += 1;
                (at, now) = (star + 1, taken);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_driver_are_left_to_the_library() {
        for (path, expected) in
            [("ufs:/a/b", true), ("nfs:b", true), ("/a/b:c", false), ("a b:c", false), ("", false)]
        {
            assert_eq!(names_a_driver(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn patterns_match_whole_paths() {
        let check = |pattern: &str, text: &str, expected| {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        };
        check("*", "/any/thing", true);
        check("/scratch/*", "/scratch/a/b", true);
        check("/scratch/*", "/home/scratch/a", false);
        check("*.nc", "/a/b.nc", true);
        check("*.nc", "/a/b.nc4", false);
        check("/a/?.h5", "/a/x.h5", true);
        check("/a/?.h5", "/a/xx.h5", false);
        check("*a*b*", "/xaxxbxb", true);
        check("*a*b", "/xaxxbx", false);
        check("", "", true);
        check("**", "", true);
    }
}
