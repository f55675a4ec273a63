//! `hayase mount`.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hayase_container::Container;
use hayase_fuse::KernelProfile;
use hayase_tier::{Gfarm, Key, Tier, TierError};
use serde::Serialize;

use super::serve::report;
use super::transfer::{self, KeyArgs};
use crate::advice::{Advice, Advise};
use crate::config::{EndpointArg, Environment};
use crate::exit::Status;
use crate::number::within;
use crate::output::headings::KEYS;
use crate::output::{Human, Output, Page};
use crate::process::child::this_program;
use crate::process::message;
use crate::supervisor::daemon::{DaemonFailed, raise_open_files};
use crate::supervisor::said::{DaemonSaid, Failure};
use crate::wiring::mount_containers::mount_containers;
use crate::wiring::mount_gfarm::mount_gfarm;
use crate::wiring::mount_packs::mount_packs;
use crate::wiring::places::{self, Wish};

/// Longest wait for an answer of a Gfarm, unless another is asked for.
const GFARM_SECONDS_DEFAULT: u64 = 120;

/// Mount containers or packs as plain files (read-only), or a Gfarm directory
///
/// A directory shows its containers as plain files. A directory or bucket with packs (from `hayase pack create` or
/// `hayase stage out`) shows the tree that was packed, without unpacking it. Any other gfarm:///DIR is mounted for
/// reading and writing; the kernel alone serves files whose data is on this host.
///
/// The command returns when the mount is ready. `umount MNT` ends it (without root: `fusermount3 -u MNT`). What MPI-IO
/// programs publish (sync, close) becomes visible within two seconds. Packs are shown as of mount
/// time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MountArgs {
    /// Directory, URL of packs (s3://BUCKET/PREFIX), or Gfarm directory (gfarm:///DIR)
    #[arg(value_name = "DIR")]
    dir: OsString,
    /// Mount point: an empty directory outside DIR
    #[arg(value_name = "MNT")]
    mount_point: PathBuf,
    /// Run in the foreground and log to standard error; Ctrl-C unmounts
    #[arg(long)]
    foreground: bool,
    /// Write the log of the mount to this file
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,
    /// Report on standard output when the mount is ready
    #[arg(long, hide = true, requires = "foreground")]
    tell: bool,
    /// Timeout for an answer of Gfarm servers, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = GFARM_SECONDS_DEFAULT,
          value_parser = within::<u64>(1..=3600))]
    wait: u64,
    /// Emulate an older kernel: 4.18, 6.1, 6.6, 6.9
    #[arg(long, hide = true, value_name = "VERSION", default_value_t = KernelProfile::Native)]
    kernel_profile: KernelProfile,
    #[command(flatten)]
    endpoint: EndpointArg,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
    /// Read the key from standard input
    #[arg(long, hide = true, requires = "tell")]
    key_told: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase mount /lustre/me/run7 /tmp/run7
  hayase mount s3://bucket/images /tmp/images --endpoint https://s3.example.org
  umount /tmp/run7

See also:
  hayase container, hayase pack";

impl MountArgs {
    /// It stays and logs, instead of starting a process that does.
    pub(crate) fn is_daemon(&self) -> bool {
        self.foreground
    }
}

/// A path that can not be mounted, or not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountPathError {
    /// The daemon would wait for itself.
    #[error("{} and {}: one is the other, or inside it", .dir.display(), .mount_point.display())]
    Nested {
        /// What is to be shown.
        dir: PathBuf,
        /// Where.
        mount_point: PathBuf,
    },
    /// One container, no directory of them.
    #[error("{} is a container itself", .0.display())]
    Container(PathBuf),
    /// What is in it would be hidden.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// Nothing has this name.
    #[error("there is no directory {}", .0.display())]
    Missing(PathBuf),
    /// A file can not show a tree.
    #[error("the mount point {} is not a directory", .0.display())]
    NoDirectory(PathBuf),
    /// A key, and nothing that could be sealed.
    #[error("a key was given, but there are no packs in {}", .0.display())]
    NoPacks(PathBuf),
}

impl MountPathError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        Some(match self {
            Self::Nested { .. } => {
                "choose a mount point outside of the directory that is shown".to_owned()
            }
            Self::NotEmpty(_) | Self::NoDirectory(_) => "mount it on an empty directory".to_owned(),
            Self::Missing(_) => "check the name; `mkdir` makes a mount point".to_owned(),
            Self::NoPacks(_) => "name the directory that holds `.hayase-packs`".to_owned(),
            Self::Container(path) => match path.parent() {
                Some(parent) => format!("mount the directory above it: {}", parent.display()),
                None => "mount the directory above it".to_owned(),
            },
        })
    }
}

impl Advise for MountPathError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(self.help()))
    }
}

#[derive(Debug, Serialize)]
struct MountTold {
    directory: String,
    mount_point: PathBuf,
    /// The daemon behind it.
    process: u32,
    read_only: bool,
}

/// What is to be shown.
enum What {
    Containers(PathBuf),
    /// A path or a URL.
    Packs(OsString),
    /// A URL.
    Gfarm(OsString),
}

impl What {
    fn of(named: &OsStr, mount_point: &Path) -> anyhow::Result<Self> {
        if named.as_bytes().starts_with(b"gfarm://") {
            return Ok(Self::Gfarm(named.to_owned()));
        }
        if places::is_url(named) {
            return Ok(Self::Packs(named.to_owned()));
        }
        let dir = canonical(Path::new(named))?;
        if dir.starts_with(mount_point) || mount_point.starts_with(&dir) {
            let mount_point = mount_point.to_owned();
            return Err(MountPathError::Nested { dir, mount_point }.into());
        }
        if dir.join(hayase_stage::pack::DIRECTORY).is_dir() {
            return Ok(Self::Packs(dir.into()));
        }
        if Container::is_at(&dir)? {
            return Err(MountPathError::Container(dir).into());
        }
        Ok(Self::Containers(dir))
    }

    fn name(&self) -> &OsStr {
        match self {
            Self::Containers(dir) => dir.as_os_str(),
            Self::Packs(place) | Self::Gfarm(place) => place,
        }
    }
}

/// Names at the top of a directory that are looked at, to see what is in it.
const NAMES_MAX: usize = 4096;

/// What a person should know of a directory in which there is nothing to be shown: it may be the wrong one.
fn warning_of(what: &What) -> Option<String> {
    let What::Containers(dir) = what else { return None };
    let entries = std::fs::read_dir(dir).ok()?.flatten().take(NAMES_MAX);
    let is_seen = |entry: std::fs::DirEntry| {
        let is_below = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_below || Container::is_at(&entry.path()).unwrap_or(true)
    };
    let has_some = entries.into_iter().any(is_seen);
    (!has_some).then(|| {
        format!(
            "{} has neither packs nor containers: its files are shown as they are",
            dir.display()
        )
    })
}

/// A directory of Gfarm that holds packs; `None`: it is one to be mounted itself.
fn has_packs(gfarm: &Gfarm) -> anyhow::Result<bool> {
    let key = Key::new(hayase_stage::pack::DIRECTORY).expect("the name of a directory");
    match gfarm.tree().map(|tree| tree.directory(&key)) {
        None | Some(Err(TierError::Missing { .. } | TierError::NotObject { .. })) => Ok(false),
        Some(found) => Ok(found.map(|_| true)?),
    }
}

fn expect_empty(mount_point: &Path) -> anyhow::Result<()> {
    let failed = || format!("look into the mount point {}", mount_point.display());
    // One whose mount is dead can not be looked at, and says why.
    if !mount_point.metadata().with_context(failed)?.is_dir() {
        return Err(MountPathError::NoDirectory(mount_point.to_owned()).into());
    }
    let entries = std::fs::read_dir(mount_point).with_context(failed)?;
    // The directory that fsck(8) of ext4 keeps is nothing that anybody would miss.
    let is_seen = |entry: std::fs::DirEntry| entry.file_name() != "lost+found";
    match entries.flatten().any(is_seen) {
        false => Ok(()),
        true => Err(MountPathError::NotEmpty(mount_point.to_owned()).into()),
    }
}

fn canonical(path: &Path) -> anyhow::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(MountPathError::Missing(path.to_owned()).into())
        }
        found => found.with_context(|| format!("find the directory {}", path.display())),
    }
}

/// Serves the mount, or starts a process that does.
pub(crate) fn run(
    args: &MountArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    args.endpoint.apply();
    let mount_point = canonical(&args.mount_point)?;
    let what = What::of(&args.dir, &mount_point)?;
    // The command that starts a daemon has looked, before it started this one.
    if !args.tell {
        expect_empty(&mount_point)?;
        warning_of(&what).iter().for_each(|warning| output.note(warning));
    }
    if matches!(what, What::Containers(_)) && args.key.is_given() {
        return Err(MountPathError::NoPacks(args.dir.clone().into()).into());
    }
    if !args.foreground {
        let key = args.key.given()?;
        let process = start(&what, &mount_point, key.as_deref(), args)?;
        let directory = what.name().to_string_lossy().into_owned();
        let read_only = !matches!(what, What::Gfarm(_));
        output.show(&MountTold { directory, mount_point, process, read_only })?;
        return Ok(Status::Done);
    }
    crate::logging::start(&output.log().map_or(environment.log.clone(), |level| level.to_string()));
    raise_open_files();
    let ready = || match args.tell {
        true => output.line(&DaemonSaid::Ready(None)),
        false => Ok(()),
    };
    let key = || if args.key_told { transfer::told().map(Some) } else { args.key.key() };
    let packs = |place: &OsStr, ready| {
        mount_packs(&places::open(place, Wish::Read)?, key()?.as_ref(), &mount_point, ready)
    };
    let serve = || match &what {
        What::Containers(dir) => mount_containers(dir, &mount_point, ready),
        What::Packs(place) => packs(place, ready),
        What::Gfarm(url) => {
            let gfarm = Gfarm::attach(url)?;
            if has_packs(&gfarm)? {
                return packs(url, ready);
            }
            if args.key_told || args.key.is_given() {
                return Err(MountPathError::NoPacks(url.into()).into());
            }
            let wait = Duration::from_secs(args.wait);
            mount_gfarm(&gfarm, &mount_point, wait, args.kernel_profile, ready)
        }
    };
    crate::process::set_name(c"hayase-mount");
    report(serve(), args.tell, output)
}

/// Longest message of a daemon: a failure with its help and the end of a log.
const SAID_BYTES_MAX: u64 = 1 << 20;

/// Starts a daemon of its own, and waits until it is ready; its process id.
fn start(
    what: &What,
    mount_point: &Path,
    key: Option<&[u8]>,
    args: &MountArgs,
) -> anyhow::Result<u32> {
    let stderr = match &args.log {
        None => Stdio::null(),
        Some(path) => {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.with_context(|| format!("open {}", path.display()))?.into()
        }
    };
    let mut command = this_program("mount");
    command.args(["--foreground", "--tell"]);
    command.arg(format!("--wait={}", args.wait));
    command.arg(format!("--kernel-profile={}", args.kernel_profile));
    command.args(args.endpoint.endpoint.iter().map(|url| format!("--endpoint={url}")));
    command.args(key.map(|_| "--key-told")).arg("--").arg(what.name()).arg(mount_point);
    command.current_dir("/").stdout(Stdio::piped()).stderr(stderr);
    command.stdin(if key.is_some() { Stdio::piped() } else { Stdio::null() });
    // An interrupt typed at us is not meant for it.
    let mut child = command.process_group(0).spawn().context("start `hayase mount`")?;
    if let (Some(mut stdin), Some(key)) = (child.stdin.take(), key) {
        // One that ended says why on its standard output.
        let _ = stdin.write_all(key);
    }
    let stdout = child.stdout.take().expect("stdout is a pipe");
    // The pipe is closed before anybody waits for the end of the daemon.
    let said = message::receive(&mut BufReader::new(stdout), SAID_BYTES_MAX);
    match said {
        Ok(DaemonSaid::Ready(_)) => Ok(child.id()),
        Ok(DaemonSaid::Failed(failure)) => {
            child.wait().context("wait for `hayase mount`")?;
            Err(DaemonFailed(failure).into())
        }
        Err(error) if !message::is_none(&error) => Err(error).context("listen to `hayase mount`"),
        Ok(DaemonSaid::Changed(_)) | Err(_) => {
            let status = child.wait().context("wait for `hayase mount`")?;
            let what = format!("`hayase mount` ended before it was ready: {status}");
            Err(anyhow!(DaemonFailed(Failure { what, help: None, tail: Vec::new() })))
        }
    }
}

impl Human for MountTold {
    fn write(&self, page: &mut Page) {
        let (dir, mount_point) = (&self.directory, self.mount_point.display());
        let how = if self.read_only { ", read-only" } else { "" };
        page.line(&format!("{dir} is shown at {mount_point}{how}"));
        page.line(&format!("`umount {mount_point}` ends it"));
    }
}
