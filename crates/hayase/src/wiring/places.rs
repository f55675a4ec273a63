//! Places: what a person names as source or target of a copy becomes a directory of a tier.
//!
//! The only function that knows which tiers there are is [`open_with`]: a new one is one more arm in it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayase_stage::{Place, Selection};
use hayase_tier::s3::{ConditionalWrites, S3Settings, SettingsError};
use hayase_tier::{Gfarm, Key, Memory, Owner, Posix, S3, TierError};

use crate::advice::{Advice, Advise};
use crate::job::{Registry, TierSettings, cover};

/// Longest URL of a file that a mount of gfarm2fs tells.
const URL_BYTES_MAX: usize = 8192;

/// What is wanted of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It is there.
    Present,
    /// It is there, and nothing is written to it: not even to find out what it can do.
    Read,
    /// It is there or is made; what lies above it is there.
    Made,
    /// As [`Wish::Made`], in an area of a job, and need not last longer than that.
    Passing,
    /// As [`Wish::Made`], in the cache area of a job.
    Cached,
    /// It is there or looks as if it were, empty: for dry runs, which make nothing.
    Supposed,
}

/// A place that can not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// `scheme://` of something that no tier is.
    #[error("`{place}`: unknown kind of storage `{scheme}`")]
    Scheme { place: String, scheme: String },
    /// An S3 URL, or the environment beside it, that can not be meant.
    #[error("`{place}`")]
    S3 { place: String, source: SettingsError },
    /// What is copied would be copied again, without end.
    #[error("the target {} is inside the source {}", .target.display(), .source_path.display())]
    Inside { target: PathBuf, source_path: PathBuf },
    /// What is copied would be written over, or removed, by its own copy.
    #[error("the source {} is inside the target {}", .source_path.display(), .target.display())]
    Around { target: PathBuf, source_path: PathBuf },
    /// A tree onto itself.
    #[error("source and target are the same place, {}", .0.display())]
    Same(PathBuf),
    /// Trees are copied, packed and mounted.
    #[error("{} is not a directory", .0.display())]
    NoDirectory(PathBuf),
    /// The same where names in it can be selected.
    #[error("{} is not a directory", .0.display())]
    NoTree(PathBuf),
    /// Its bytes are elsewhere, and links are copied as links.
    #[error("{} is a symbolic link to a file", .0.display())]
    LinkToFile(PathBuf),
    /// Neither a URL of Gfarm nor a path on a mount of it.
    #[error("{} is not on a mount of gfarm2fs", .path.display())]
    NoGfarm { path: PathBuf, source: io::Error },
    /// Where something was to be.
    #[error("there is no directory {}", .0.display())]
    Absent(PathBuf),
    /// The directory can not be opened.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The tier's path leads to another directory than where `up` ran.
    #[error(
        "{} is not the directory that the job started with (inode {here}, it was {there}): is the tier's file \
         system mounted on this host?", .path.display()
    )]
    OtherTier { path: PathBuf, here: u64, there: u64 },
    /// The directory can not be made.
    #[error("create the directory {}", .path.display())]
    Make { path: PathBuf, source: io::Error },
}

impl PlaceError {
    /// What the person can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Scheme { .. } => Some(
                "name a directory, s3://BUCKET/PREFIX or gfarm:///DIR; write ./NAME for a directory whose name contains `://`"
                    .into(),
            ),
            Self::S3 { source: SettingsError::Bucket(_) | SettingsError::Prefix(_), .. } => {
                Some("a bucket is named as s3://BUCKET or s3://BUCKET/PREFIX, for example s3://data/run7".into())
            }
            Self::S3 { .. } => Some("see the guide `S3 endpoints and credentials`".into()),
            Self::Absent(path) if url_meant(path).is_some() => {
                url_meant(path).map(|url| format!("did you mean {url}?"))
            }
            Self::Absent(_) | Self::Tier(TierError::Missing { .. }) => {
                Some("check the name, or create the directory first".into())
            }
            Self::Tier(error) => error.help().map(str::to_owned),
            Self::Inside { .. } | Self::Around { .. } => {
                Some("choose another target, or exclude it with --exclude".into())
            }
            Self::OtherTier { .. } => Some(
                "mount it (a file system that numbers its inodes differently on each host cannot be the tier of several \
                 hosts); `hayase resume --replaced-tier` accepts a directory that was created again or restored"
                    .into(),
            ),
            Self::Same(_) => Some("choose another target".into()),
            Self::NoDirectory(_) => Some("name the directory above it".into()),
            Self::NoTree(_) => Some("name the directory above it, and select the file with --include NAME".into()),
            Self::LinkToFile(path) => {
                let file = path.canonicalize().unwrap_or_else(|_| path.clone());
                Some(format!("name the file itself: {}", file.display()))
            }
            Self::NoGfarm { .. } => Some("name it as gfarm:///DIR/FILE".into()),
            Self::Make { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Some("a file or a broken link has this name: move it away".into())
            }
            Self::Make { .. } => Some("choose another place, or create the directory above it".into()),
        }
    }

    /// Of a place whose names are selected with `--include`.
    pub(crate) fn of_tree(self) -> Self {
        match self {
            Self::NoDirectory(path) => Self::NoTree(path),
            other => other,
        }
    }
}

impl Advise for PlaceError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(self.help()))
    }
}

/// The URL that somebody meant who typed `s3:/bucket` or `s3:bucket`, which names a directory.
fn url_meant(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    ["s3:", "gfarm:"].into_iter().find_map(|scheme| {
        let start = text.find(scheme).filter(|&at| at == 0 || text[..at].ends_with('/'))?;
        let rest = text[start + scheme.len()..].trim_start_matches('/');
        let slashes = if scheme == "s3:" { "//" } else { "///" };
        Some(format!("{scheme}{slashes}{rest}"))
    })
}

/// The tier and directory that `place` names: a path, or a URL whose scheme chooses the tier.
pub(crate) fn open(place: &OsStr, wish: Wish) -> Result<Place, PlaceError> {
    open_with(place, wish, &crate::config::variable)
}

/// A tree that is read, of which names can be selected.
pub(crate) fn open_tree(place: &OsStr) -> Result<Place, PlaceError> {
    open(place, Wish::Read).map_err(PlaceError::of_tree)
}

/// Of a place that may be a file: the place above it and its own name. A name that ends with a slash is a tree.
pub(crate) fn above(place: &OsStr) -> Option<(OsString, Vec<u8>)> {
    let (start, path) = match scheme(place) {
        Some((scheme, path)) => (scheme.len() + 3, path),
        None => (0, place.to_owned()),
    };
    let slash = path.as_bytes().iter().rposition(|&byte| byte == b'/');
    let (above, name) = match slash {
        Some(at) => (start + at + 1, &path.as_bytes()[at + 1..]),
        // Without a scheme it is below the working directory; `s3://bucket` is a tree.
        None if start == 0 => return Some(("./".into(), path.as_bytes().to_vec())),
        None => return None,
    };
    let above = OsStr::from_bytes(&place.as_bytes()[..above]).to_owned();
    (!matches!(name, b"" | b"." | b"..")).then(|| (above, name.to_vec()))
}

/// Whether it is a file on this machine, and no link to one.
pub(crate) fn is_local_file(place: &OsStr) -> Result<bool, PlaceError> {
    let Some(path) = local(place).map(PathBuf::from).filter(|path| path.is_file()) else {
        return Ok(false);
    };
    match path.is_symlink() {
        true => Err(PlaceError::LinkToFile(path)),
        false => Ok(true),
    }
}

/// The tier behind a cache area, which must be there.
pub(crate) fn open_tier(tier: &TierSettings) -> Result<Place, PlaceError> {
    check_root(tier)?;
    let variable = |name: &str| crate::config::variable_at(tier.endpoint.as_deref(), name);
    open_with(tier.place.as_ref(), Wish::Present, &variable)
}

/// The same for one server of a job. Where the tier can keep it, unfinished uploads are known as that
/// server's.
pub(crate) fn open_owned(tier: &TierSettings, owner: &Owner) -> Result<Place, PlaceError> {
    check_root(tier)?;
    let place = OsStr::new(&tier.place);
    let path = match scheme(place) {
        None => place.to_owned(),
        Some(("file", path)) => path,
        Some(("gfarm", _)) => {
            return Ok(Place::root(Arc::new(Gfarm::attach_owned(place, owner)?)));
        }
        Some(_) => return open_tier(tier),
    };
    Ok(Place::root(Arc::new(Posix::attach_owned(Path::new(&path), owner)?)))
}

/// The inode number of a place that is a directory of a file system: the same on all hosts, as versions need it.
pub(crate) fn root_of(place: &OsStr) -> Result<Option<u64>, PlaceError> {
    let Some(path) = local(place).map(PathBuf::from) else { return Ok(None) };
    match fs::metadata(&path) {
        Ok(found) => Ok(Some(found.ino())),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Err(PlaceError::Absent(path)),
            // Who opens it says why it can not be.
            _ => Ok(None),
        },
    }
}

/// Fails where the tier's path leads to another directory than on the host of `up`. Bytes that are sent there would be
/// lost: nobody looks for them on one node's own disk.
fn check_root(tier: &TierSettings) -> Result<(), PlaceError> {
    let Some(there) = tier.root else { return Ok(()) };
    let place = OsStr::new(&tier.place);
    match root_of(place)? {
        Some(here) if here != there => {
            let path = local(place).map(PathBuf::from).unwrap_or_default();
            Err(PlaceError::OtherTier { path, here, there })
        }
        _ => Ok(()),
    }
}

/// The same, where `variable` knows what the environment of the person says.
pub(crate) fn open_with(
    place: &OsStr,
    wish: Wish,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Place, PlaceError> {
    match scheme(place) {
        None => directory(Path::new(place), wish),
        Some(("file", path)) => directory(Path::new(&path), wish),
        Some(("s3", _)) => bucket(&place.to_string_lossy(), wish, variable),
        Some(("gfarm", _)) => gfarm(place, wish),
        Some((scheme, _)) => Err(PlaceError::Scheme {
            place: place.to_string_lossy().into_owned(),
            scheme: scheme.to_owned(),
        }),
    }
}

/// The URL of a place of Gfarm: itself, or what a mount of gfarm2fs says of the path.
pub(crate) fn gfarm_url(place: &OsStr) -> Result<OsString, PlaceError> {
    if scheme(place).is_some_and(|(scheme, _)| scheme == "gfarm") {
        return Ok(place.to_owned());
    }
    let mut url = Vec::with_capacity(URL_BYTES_MAX);
    match rustix::fs::getxattr(place, "gfarm2fs.url", rustix::buffer::spare_capacity(&mut url)) {
        Ok(_) => Ok(OsString::from_vec(url)),
        Err(errno) => Err(PlaceError::NoGfarm { path: place.into(), source: errno.into() }),
    }
}

/// Fails when both are one place, however they are written.
pub(crate) fn check_other(source: &OsStr, target: &OsStr) -> Result<(), PlaceError> {
    match relative(source, target) {
        Some(None) => Err(PlaceError::Same(source.into())),
        _ => Ok(()),
    }
}

/// Fails when the target lies below the source under a name that `selection` takes, since what is copied would be
/// copied again; and when the source lies so below the target and would be removed (`deletes`), or written over by
/// what it has under its own name.
pub(crate) fn check_apart(
    source: &OsStr,
    target: &OsStr,
    selection: &Selection,
    deletes: bool,
) -> Result<(), PlaceError> {
    let taken =
        |name: Option<Option<Key>>| name.flatten().filter(|name| selection.takes(name, true));
    if taken(relative(source, target)).is_some() {
        return Err(PlaceError::Inside { target: target.into(), source_path: source.into() });
    }
    let is_there = |name: &Key| {
        local(source).is_some_and(|path| {
            Path::new(&path).join(OsStr::from_bytes(name.as_bytes())).symlink_metadata().is_ok()
        })
    };
    if taken(relative(target, source)).is_some_and(|name| deletes || is_there(&name)) {
        return Err(PlaceError::Around { target: target.into(), source_path: source.into() });
    }
    Ok(())
}

/// The name of `target` below the place `above`: `Some(None)` for `above` itself, `None` when it lies elsewhere.
pub(crate) fn relative(above: &OsStr, target: &OsStr) -> Option<Option<Key>> {
    let (above_path, target_path) = match (local(above), local(target)) {
        (Some(above), Some(target)) => {
            let above = fs::canonicalize(above).ok()?;
            (above.into_os_string(), resolved_far(&target)?.into_os_string())
        }
        (None, None) => match (scheme(above), scheme(target)) {
            (Some((above, above_path)), Some((scheme, path))) if above == scheme => {
                (above_path, path)
            }
            _ => return None,
        },
        _ => return None,
    };
    let names = |path: &OsStr| -> Vec<Vec<u8>> {
        let names = path.as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        names.map(<[u8]>::to_vec).collect()
    };
    if names(&above_path) == names(&target_path) {
        return Some(None);
    }
    below(above_path.as_bytes(), target_path.as_bytes()).map(Some)
}

/// The path of what lies in a file system of this machine, however it is named.
fn local(place: &OsStr) -> Option<OsString> {
    match scheme(place) {
        None => Some(place.to_owned()),
        Some(("file", path)) => Some(path),
        Some(_) => None,
    }
}

/// What is wanted of a target: what lies in `shared` or `local` of a job of this machine ends with it.
pub(crate) fn lasting(target: &OsStr, registry: &Registry) -> Wish {
    let Some(path) = local(target).and_then(|path| resolved_far(&path)) else {
        return Wish::Made;
    };
    let is_passing = registry.jobs().iter().any(|job| {
        let Some(node) = job.settings.node_of_path(&path) else { return false };
        let areas = [job.settings.shared_mount(node), job.settings.local_mount(node)];
        areas.iter().any(|area| path.starts_with(area) && is_mounted(area))
    });
    let is_cached = || {
        let jobs = registry.jobs().into_iter();
        let mut areas = jobs.flat_map(|job| {
            let settings = job.settings;
            (0..settings.nodes).filter_map(move |node| settings.cache_mount(node))
        });
        areas.any(|area| path.starts_with(&area) && is_mounted(&area))
    };
    match is_passing {
        true => Wish::Passing,
        false if is_cached() => Wish::Cached,
        false => Wish::Made,
    }
}

/// Without links, however much of the path is not there yet.
fn resolved_far(path: &OsStr) -> Option<PathBuf> {
    let path = std::path::absolute(Path::new(path)).ok()?;
    path.ancestors().find_map(|above| {
        let real = fs::canonicalize(above).ok()?;
        Some(real.join(path.strip_prefix(above).ok()?))
    })
}

/// Seen from here; where nodes have mounts of their own, others see the directory below it, or what covers that.
pub(crate) fn is_mounted(area: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let is_mounted = device(area).is_some_and(|own| area.parent().and_then(device) != Some(own));
    is_mounted && !cover::is_covered(area)
}

/// Names a place by a scheme, not by a path.
pub(crate) fn is_url(place: &OsStr) -> bool {
    scheme(place).is_some()
}

/// Names a bucket, or what lies below a prefix of it.
pub(crate) fn is_bucket(place: &OsStr) -> bool {
    scheme(place).is_some_and(|(scheme, _)| scheme == "s3")
}

/// Names what a cache area can be in front of, by its scheme.
pub(crate) fn can_be_cached(place: &OsStr) -> bool {
    scheme(place).is_some_and(|(scheme, _)| matches!(scheme, "s3" | "gfarm"))
}

/// The name of `target` below `source`, of each what stands behind its scheme; `None` when it lies elsewhere.
fn below(source: &[u8], target: &[u8]) -> Option<Key> {
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        names.map(<[u8]>::to_vec).collect()
    };
    // `//server/a` and `///a` begin differently: a server is no name of a path.
    if source.starts_with(b"/") != target.starts_with(b"/") {
        return None;
    }
    let (source, target) = (names(source), names(target));
    let rest = target.strip_prefix(source.as_slice()).filter(|rest| !rest.is_empty())?;
    Key::new(rest.join(&b'/')).ok()
}

/// `scheme://rest`; a path with a slash before it is none.
fn scheme(place: &OsStr) -> Option<(&str, OsString)> {
    let bytes = place.as_bytes();
    let at = bytes.windows(3).position(|window| window == b"://")?;
    let scheme = std::str::from_utf8(&bytes[..at]).ok()?;
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let is_one = !scheme.is_empty() && scheme.chars().all(is_scheme);
    is_one.then(|| (scheme, OsStr::from_bytes(&bytes[at + 3..]).to_owned()))
}

/// A bucket, or what is below a prefix of it; nothing is made of it before the first object.
fn bucket(
    url: &str,
    wish: Wish,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Place, PlaceError> {
    let mut settings = S3Settings::from_url(url, variable)
        .map_err(|source| PlaceError::S3 { place: url.to_owned(), source })?;
    if wish == Wish::Made {
        settings.kept_in = uploads();
    }
    if wish == Wish::Read && settings.conditional == ConditionalWrites::Probe {
        settings.conditional = ConditionalWrites::Off;
    }
    Ok(Place::root(Arc::new(S3::attach(settings)?)))
}

/// Where unfinished uploads to buckets are remembered; `None` where somebody else could have prepared that.
fn uploads() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let runtime = crate::config::runtime(uid);
    Registry::make(&runtime).ok().map(|_| runtime.join("uploads"))
}

/// A directory of Gfarm, on the metadata server of its settings or of the URL.
fn gfarm(place: &OsStr, wish: Wish) -> Result<Place, PlaceError> {
    let tier = match wish {
        Wish::Made => Gfarm::attach_or_make(place),
        Wish::Present | Wish::Read | Wish::Supposed | Wish::Passing | Wish::Cached => {
            Gfarm::attach(place)
        }
    };
    match tier {
        Err(TierError::Missing { .. }) if wish == Wish::Supposed => {
            Ok(Place::root(Arc::new(Memory::new())))
        }
        tier => Ok(Place::root(Arc::new(tier?))),
    }
}

/// Nothing is to be made of it.
fn is_read(wish: Wish) -> bool {
    matches!(wish, Wish::Present | Wish::Read)
}

fn directory(path: &Path, wish: Wish) -> Result<Place, PlaceError> {
    let attach = match wish {
        Wish::Passing => Posix::attach_passing,
        Wish::Cached => Posix::attach_cached,
        Wish::Present | Wish::Read | Wish::Made | Wish::Supposed => Posix::attach,
    };
    match attach(path) {
        Ok(tier) => Ok(Place::root(Arc::new(tier))),
        Err(TierError::Missing { .. }) if wish == Wish::Supposed => {
            Ok(Place::root(Arc::new(Memory::new())))
        }
        Err(TierError::Missing { .. })
            if matches!(wish, Wish::Made | Wish::Passing | Wish::Cached) =>
        {
            match fs::create_dir_all(path) {
                Ok(()) => {}
                // By another node, just now.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => {}
                Err(source) => return Err(PlaceError::Make { path: path.to_owned(), source }),
            }
            Ok(Place::root(Arc::new(attach(path)?)))
        }
        Err(TierError::Missing { .. }) => Err(PlaceError::Absent(path.to_owned())),
        Err(TierError::NotObject { .. }) if is_read(wish) && path.is_file() => {
            Err(PlaceError::NoDirectory(path.to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_letters_before_two_slashes() {
        let check = |place: &str, expected: Option<(&str, &str)>| {
            let found = scheme(OsStr::new(place));
            let found = found.as_ref().map(|(scheme, rest)| (*scheme, rest.to_str().unwrap()));
            assert_eq!(found, expected, "{place}");
        };
        check("s3://bucket/a", Some(("s3", "bucket/a")));
        check("file:///tmp", Some(("file", "/tmp")));
        check("/tmp/a", None);
        check("./s3://x", None);
        check("a:b", None);
        check("://x", None);
    }

    #[test]
    fn a_target_is_named_from_the_tier() {
        let check = |above: &str, target: &str, expected: Option<Option<&str>>| {
            let found = relative(OsStr::new(above), OsStr::new(target));
            let found = found.map(|name| name.map(|name| name.to_string()));
            assert_eq!(found, expected.map(|name| name.map(str::to_owned)), "{above} {target}");
        };
        check("s3://b/p", "s3://b/p/a/c", Some(Some("a/c")));
        check("s3://b/p/", "s3://b/p", Some(None));
        check("s3://b/p", "s3://b/q", None);
        check("s3://b/p", "/b/p/a", None);
        check("/", "/usr/bin", Some(Some("usr/bin")));
        check("/usr", "/usr/", Some(None));
        check("/usr", "/usr/not/there/yet", Some(Some("not/there/yet")));
        check("/usr", "/etc", None);
        check("file:///usr", "/usr/bin", Some(Some("bin")));
        check("/usr", "file:///usr/", Some(None));
        check("s3://b", "file:///b", None);
    }

    #[test]
    fn neither_place_lies_in_the_other() {
        let check = |source: &str, target: &str, exclude: &[String], (deletes, is_fine)| {
            let selection = Selection::new(&[], exclude).unwrap();
            let checked = check_apart(OsStr::new(source), OsStr::new(target), &selection, deletes);
            assert_eq!(checked.is_ok(), is_fine, "{source} {target}: {checked:?}");
        };
        check("/usr", "/etc", &[], (true, true));
        check("/usr", "/usr/new", &[], (false, false));
        check("/usr", "file:///usr/new", &[], (false, false));
        check("/usr", "/usr/new", &["/new".to_owned()], (false, true));
        check("/usr/bin", "/usr", &[], (true, false));
        check("/usr/bin", "/usr", &[], (false, true));
        check("/usr/bin", "file:///usr", &[], (true, false));
        check("/usr/bin", "/usr", &["/bin".to_owned()], (true, true));
        check("s3://b/p/new", "s3://b/p", &[], (true, false));
        check("s3://b/p", "s3://b/p/new", &[], (false, false));
        check("s3://b/p", "s3://b/pq", &[], (true, true));
    }

    #[test]
    fn a_url_lies_below_another_one() {
        let check = |source: &str, target: &str, expected: Option<&str>| {
            let found = below(source.as_bytes(), target.as_bytes());
            assert_eq!(found.map(|key| key.to_string()).as_deref(), expected, "{source} {target}");
        };
        check("/a", "/a/b/c", Some("b/c"));
        check("/a/", "/a//b", Some("b"));
        check("/", "/b", Some("b"));
        check("/a", "/ab", None);
        check("/a", "/a", None);
        check("bucket/a", "bucket/a/b", Some("b"));
        check("a", "/a/b", None);
    }
}
