//! `hayase container replicate`.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Context;
use hayase_container::MARK;
use hayase_tier::{Gfarm, Key, ListRequest, Tier};
use serde::Serialize;

use crate::count::counted;
use crate::exit::Status;
use crate::number::within;
use crate::output::{Human, Output, Page};
use crate::wiring::places::gfarm_url;

/// Longest wait for one copy, unless another is asked for.
const COPY_SECONDS_DEFAULT: u64 = 600;

/// Replicate a container to several Gfarm hosts
///
/// Returns when there are N copies of each part and index. Gfarm keeps that many copies of later parts too. Readers
/// use the copy on their own host, or another copy when that host is down.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplicateArgs {
    /// The container: gfarm:///DIR/FILE, or its path below a mount of gfarm2fs
    #[arg(value_name = "FILE")]
    file: OsString,
    /// Number of hosts that hold each part
    #[arg(short = 'n', long, value_name = "N", value_parser = within::<u32>(1..=64))]
    copies: u32,
    /// Timeout for one copy, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = COPY_SECONDS_DEFAULT,
          value_parser = within::<u64>(0..=u64::MAX))]
    wait: u64,
}

const EXAMPLES: &str = "\
Examples:
  hayase container replicate -n 2 gfarm:///home/me/run7/checkpoint";

#[derive(Debug, Serialize)]
struct Told {
    container: String,
    copies: u32,
    files: Vec<Held>,
}

#[derive(Debug, Serialize)]
struct Held {
    name: String,
    hosts: Vec<String>,
}

/// What is named is no container.
#[derive(Debug, thiserror::Error)]
#[error("{url} is not a container: it has no `{MARK}`")]
struct NoContainer {
    url: String,
}

pub(super) fn run(args: &ReplicateArgs, output: &Output) -> anyhow::Result<Status> {
    let url = gfarm_url(&args.file)?;
    let shown = url.to_string_lossy().into_owned();
    let tier = Gfarm::attach(&url)?;
    let mark = Key::new(MARK).expect("the mark is a name");
    match tier.stat(&mark) {
        Err(hayase_tier::TierError::Missing { .. }) => {
            return Err(NoContainer { url: shown }.into());
        }
        answer => answer?,
    };
    let mut files = Vec::new();
    let mut request = ListRequest::one_level("");
    loop {
        let page = tier.list(&request)?;
        for key in page.entries.iter().filter_map(hayase_tier::Entry::key) {
            files.push(copied(&tier, &key, args).with_context(|| format!("copy `{key}`"))?);
        }
        match page.next {
            Some(next) => request = request.continued(next),
            None => break,
        }
    }
    output.show(&Told { container: shown, copies: args.copies, files })?;
    Ok(Status::Done)
}

fn copied(tier: &Gfarm, key: &Key, args: &ReplicateArgs) -> Result<Held, hayase_tier::TierError> {
    tier.set_replicas_wanted(key, args.copies)?;
    let hosts = tier.replicate(key, args.copies as usize, Duration::from_secs(args.wait))?;
    Ok(Held { name: key.to_string(), hosts })
}

impl Human for Told {
    fn write(&self, page: &mut Page) {
        for file in &self.files {
            page.line(&format!("{} {}", file.name, file.hosts.join(" ")));
        }
        let (container, count, copies) = (&self.container, self.files.len(), self.copies);
        page.line(&format!(
            "{container}: {}; those with data are on at least {}",
            counted(count, "file"),
            counted(copies, "host")
        ));
    }
}
