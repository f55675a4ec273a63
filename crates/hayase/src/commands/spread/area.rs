//! A place in an area of a job: `shared/PATH` or `local/PATH`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hayase_tier::Key;

use super::SpreadError;
use crate::job::Settings;
use crate::wiring::places;

/// In what is copied from node to node by way of `shared`, until it is everywhere.
const HIDDEN: &str = ".hayase-staging-";

/// Which area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Shared,
    Local,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AreaPlace {
    pub(crate) area: Area,
    /// `None`: the whole area.
    path: Option<Key>,
}

impl AreaPlace {
    pub(crate) fn parse(text: &str) -> Result<Self, SpreadError> {
        let wrong = || SpreadError::NoArea(text.to_owned());
        let (area, path) = text.split_once('/').unwrap_or((text, ""));
        let area = match area {
            "shared" => Area::Shared,
            "local" => Area::Local,
            _ => return Err(wrong()),
        };
        let path = path.trim_end_matches('/');
        let path = (!path.is_empty()).then(|| Key::new(path)).transpose().map_err(|_| wrong())?;
        Ok(Self { area, path })
    }

    /// Where a copy to each node passes through: the same for the same source and target, so that one that
    /// was interrupted is continued.
    pub(super) fn hidden(source: &OsStr, target: &Self) -> Self {
        let both = [source.as_bytes(), b" -> ", target.to_string().as_bytes()].concat();
        let hash = blake3::hash(&both).to_hex();
        let path = Key::new(format!("{HIDDEN}{}", &hash[..16])).expect("a name like any other");
        Self { area: Area::Shared, path: Some(path) }
    }

    /// As node `node` sees it.
    pub(crate) fn path(&self, settings: &Settings, node: u16) -> PathBuf {
        let root = match self.area {
            Area::Shared => settings.shared_mount(node),
            Area::Local => settings.local_mount(node),
        };
        self.path.as_ref().map_or(root.clone(), |path| root.join(path.as_os_str()))
    }
}

impl fmt::Display for AreaPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let area = if self.area == Area::Shared { "shared" } else { "local" };
        match &self.path {
            None => f.write_str(area),
            Some(path) => write!(f, "{area}/{path}"),
        }
    }
}

/// A directory as it is called from everywhere on this machine; a URL as it is.
pub(super) fn absolute(place: &OsStr) -> anyhow::Result<OsString> {
    if places::is_url(place) {
        return Ok(place.to_owned());
    }
    let path = std::path::absolute(Path::new(place));
    Ok(path.with_context(|| format!("find {}", place.display()))?.into_os_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_below_an_area() {
        let check = |text: &str, shown: &str| {
            assert_eq!(AreaPlace::parse(text).unwrap().to_string(), shown, "{text}");
        };
        check("shared/a/b", "shared/a/b");
        check("local/", "local");
        check("shared", "shared");
        check("shared/a/", "shared/a");
        for wrong in ["", "/shared/a", "shared/../a", "cache/a", "shared//a", "sharedx"] {
            assert!(AreaPlace::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_passes_through_shared_is_found_again() {
        let place = AreaPlace::parse("local/a").unwrap();
        let hidden = |source: &str| AreaPlace::hidden(OsStr::new(source), &place);
        assert_eq!(hidden("s3://a/b"), hidden("s3://a/b"));
        assert_ne!(hidden("s3://a/b"), hidden("s3://a/c"));
    }
}
