//! `hayase layout`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hayase_layout::{ByteCount, STRIPE_BYTES_DEFAULT, StripePolicy, check_stripe};
use rustix::fs::XattrFlags;
use serde::Serialize;

use super::AreaPathError;
use crate::config::Environment;
use crate::exit::Status;
use crate::launch::PlanError;
use crate::output::{Human, Output, Page};
use crate::size;

/// `whole`, or `striped:<bytes>:<width>`.
const LAYOUT: &str = "user.hayase.layout";

/// Longest value of it.
const VALUE_BYTES_MAX: usize = 256;

/// Show or change how files are dealt out over the nodes
#[derive(Debug, clap::Args)]
pub(crate) struct LayoutArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the layout of a file, or what new files in a directory get
    Get {
        /// File or directory of the shared or the cache area
        path: PathBuf,
    },
    /// Stripe an empty file, or all new files below a directory
    Set {
        /// Empty file of the shared area, or directory of that or of the cache area
        path: PathBuf,
        /// Bytes on one node before the next one's turn
        #[arg(long, value_name = "SIZE", value_parser = size::parse,
            default_value = size::typed(STRIPE_BYTES_DEFAULT))]
        stripe: ByteCount,
        /// Nodes that one file uses; 0 is all of them
        #[arg(long, value_name = "N", default_value_t)]
        width: u16,
    },
    /// Back to the default: a new file lies whole on its creator's node
    Unset {
        /// Empty file of the shared area, or directory of that or of the cache area
        path: PathBuf,
    },
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
            let words = ("layout set", "set the layout of");
            rustix::fs::setxattr(path, LAYOUT, value.as_bytes(), XattrFlags::empty())
                .map_err(|errno| AreaPathError::new(errno, words, path, environment))?;
        }
        Verb::Unset { path } => {
            let words = ("layout unset", "unset the layout of");
            rustix::fs::removexattr(path, LAYOUT)
                .map_err(|errno| AreaPathError::new(errno, words, path, environment))?;
        }
    }
    Ok(Status::Done)
}

fn get(path: &Path, environment: &Environment) -> anyhow::Result<String> {
    let mut value = [0; VALUE_BYTES_MAX];
    let words = ("layout get", "get the layout of");
    let count = rustix::fs::getxattr(path, LAYOUT, &mut value[..])
        .map_err(|errno| AreaPathError::new(errno, words, path, environment))?;
    Ok(String::from_utf8_lossy(&value[..count]).into_owned())
}

/// Sets the layout of new files below a directory.
pub(crate) fn set(path: &Path, policy: StripePolicy) -> anyhow::Result<()> {
    let value = policy.to_string();
    rustix::fs::setxattr(path, LAYOUT, value.as_bytes(), XattrFlags::empty())
        .with_context(|| format!("set the layout of {}", path.display()))
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
