//! `hayase layout`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hayase_layout::{ByteCount, STRIPE_BYTES_DEFAULT, StripePolicy, check_stripe};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::Serialize;

use super::AreaPathError;
use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::exit::Status;
use crate::job::Registry;
use crate::launch::PlanError;
use crate::layout_attribute::LAYOUT;
use crate::number::nodes_or_all;
use crate::output::{Human, Output, Page};
use crate::size;

/// Of a file that is kept by writer.
const RECORDED: &str = "recorded";

/// Longest value of it.
const VALUE_BYTES_MAX: usize = 256;

/// Show or set how files are striped over nodes
///
/// A layout applies to new files below a directory; existing files keep theirs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LayoutArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the layout of a file, or of new files in a directory
    #[command(after_help = GET_EXAMPLES)]
    Get {
        /// File or directory of the shared or the cache area
        path: PathBuf,
    },
    /// Stripe new files below a directory
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Directory of the shared or the cache area
        path: PathBuf,
        /// Stripe size
        #[arg(long, value_name = "SIZE", value_parser = size::parse,
            default_value = size::typed(STRIPE_BYTES_DEFAULT))]
        stripe: ByteCount,
        /// Number of nodes per file; 0 means all
        #[arg(long, value_name = "N", default_value_t, value_parser = nodes_or_all)]
        width: u16,
    },
    /// Restore the default: each new file on the node that creates it
    #[command(after_help = UNSET_EXAMPLES)]
    Unset {
        /// Directory of the shared or the cache area
        path: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  hayase layout get /tmp/areas/shared/data
  hayase layout set --stripe 4MiB /tmp/areas/shared/data
  hayase layout unset /tmp/areas/shared/data

See also:
  hayase explain";

const GET_EXAMPLES: &str = "\
Examples:
  hayase layout get /tmp/areas/shared/data
  hayase layout get --json /tmp/areas/shared/checkpoint";

const UNSET_EXAMPLES: &str = "\
Examples:
  hayase layout unset /tmp/areas/shared/data";

const SET_EXAMPLES: &str = "\
Examples:
  hayase layout set /tmp/areas/shared/data
  hayase layout set --stripe 4MiB --width 4 /tmp/areas/shared/data";

/// Why no layout was set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    /// Its bytes lie where they lie, or will.
    #[error("{} is not a directory: a layout is set on directories, for new files; existing files keep theirs", .0.display())]
    File(PathBuf),
    /// Each writer of it has a part.
    #[error("{} is a container: it was written with MPI-IO and has one part per writer", .0.display())]
    Container(PathBuf),
    /// More than there are.
    #[error("cannot stripe over {0} nodes: fewer nodes of the job store files")]
    Width(u16),
    /// The mount did not do it, and did not say so.
    #[error("the layout of {} did not change: it is {layout}", .path.display())]
    Kept {
        /// The directory.
        path: PathBuf,
        /// As `layout get` tells it.
        layout: String,
    },
}

impl LayoutError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::File(path) | Self::Container(path) => Some(format!(
                "create a directory, set its layout, and copy the file into it: cp {} DIR/",
                path.display()
            )),
            Self::Width(_) => Some("--width 0 means all nodes".to_owned()),
            Self::Kept { .. } => None,
        }
    }
}

impl Advise for LayoutError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(self.help()))
    }
}

#[derive(Debug, Serialize)]
struct LayoutTold {
    path: PathBuf,
    layout: String,
}

/// Reads or writes the layout through the mount.
pub(crate) fn run(
    args: &LayoutArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    match &args.verb {
        Verb::Get { path } => {
            let layout = get(path, environment)?;
            output.show(&LayoutTold { path: path.clone(), layout })?;
        }
        Verb::Set { path, stripe, width } => {
            check_stripe(*stripe).map_err(PlanError::Stripe)?;
            let value = StripePolicy { stripe: *stripe, width: *width }.to_string();
            let action = "set the layout of";
            expect_directory(path, action, environment)?;
            let set = rustix::fs::setxattr(path, LAYOUT, value.as_bytes(), XattrFlags::empty());
            if set == Err(Errno::INVAL) && storing(path, environment).is_some_and(|n| *width > n) {
                return Err(LayoutError::Width(*width).into());
            }
            set.map_err(|errno| AreaPathError::new(errno, action, path, environment))?;
            expect_kind(path, "striped", environment)?;
        }
        Verb::Unset { path } => {
            let action = "unset the layout of";
            expect_directory(path, action, environment)?;
            rustix::fs::removexattr(path, LAYOUT)
                .map_err(|errno| AreaPathError::new(errno, action, path, environment))?;
            expect_kind(path, "whole", environment)?;
        }
    }
    Ok(Status::Done)
}

/// How many nodes of the job store whose area it is.
fn storing(path: &Path, environment: &Environment) -> Option<u16> {
    let whole = path.canonicalize().ok()?;
    let jobs = Registry::open_or_none(&environment.runtime).living_first();
    let job = jobs.into_iter().find(|job| job.settings.node_of_path(&whole).is_some())?;
    let stores = job.all_nodes().filter(|node| job.settings.has_storage(*node));
    u16::try_from(stores.count()).ok()
}

/// One of an area.
fn expect_directory(
    path: &Path,
    action: &'static str,
    environment: &Environment,
) -> anyhow::Result<()> {
    AreaPathError::unless_ours(action, path, environment)?;
    let found = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    if found.is_dir() {
        return Ok(());
    }
    let is_container = get(path, environment).is_ok_and(|layout| layout == RECORDED);
    let path = path.to_owned();
    Err(if is_container { LayoutError::Container(path) } else { LayoutError::File(path) }.into())
}

/// What was set is there.
fn expect_kind(path: &Path, kind: &str, environment: &Environment) -> anyhow::Result<()> {
    let layout = get(path, environment)?;
    match layout.split(':').next() == Some(kind) {
        true => Ok(()),
        false => Err(LayoutError::Kept { path: path.to_owned(), layout }.into()),
    }
}

fn get(path: &Path, environment: &Environment) -> anyhow::Result<String> {
    let mut value = [0; VALUE_BYTES_MAX];
    let action = "get the layout of";
    let count = rustix::fs::getxattr(path, LAYOUT, &mut value[..])
        .map_err(|errno| AreaPathError::new(errno, action, path, environment))?;
    Ok(String::from_utf8_lossy(&value[..count]).into_owned())
}

impl Human for LayoutTold {
    fn write(&self, page: &mut Page) {
        let fields: Vec<_> = self.layout.split(':').collect();
        let words = match fields[..] {
            ["striped", stripe, width] => {
                let stripe = stripe.parse().map_or(stripe.to_owned(), |n| ByteCount(n).to_string());
                let width = if width == "0" { "all" } else { width };
                format!("striped, {stripe} over {width} nodes")
            }
            _ => self.layout.clone(),
        };
        page.line(&format!("{}: {words}", self.path.display()));
    }
}
