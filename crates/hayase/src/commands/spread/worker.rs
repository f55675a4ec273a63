//! `hayase stage-worker`: carries out one order on the node where it runs, and tells how it goes.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use hayase_stage::Overwrite;
use hayase_stage::begin_packs;
use hayase_stage::pack::{MasterKey, PackError};
use hayase_stage::source::Source;
use ring::rand::SystemRandom;

use super::order::Verb;
use super::{Order, SpreadError};
use crate::commands::transfer::{self, End, Event, OutKeyArgs, Start};
use crate::exit::Status;
use crate::job::Registry;
use crate::output::Output;
use crate::process::message;
use crate::wiring::places::{self, PlaceError, Wish};

/// Largest order: names, patterns and keys.
const ORDER_BYTES_MAX: u64 = 4 << 20;

/// Carry out an order from standard input (started by `stage`)
#[derive(Debug, clap::Args)]
pub(crate) struct StageWorkerArgs {}

/// Reads the order, does it, and prints events; ends at once when standard input does.
pub(crate) fn run(_args: &StageWorkerArgs, output: &Output) -> anyhow::Result<Status> {
    let output = output.of_worker();
    let mut stdin = std::io::BufReader::new(std::io::stdin());
    let order: Order = message::receive(&mut stdin, ORDER_BYTES_MAX).context("read the order")?;
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            // Whoever gave the order is gone: what was copied so far is what the next one finds.
            let _ = std::io::copy(&mut stdin, &mut std::io::sink());
            std::process::exit(i32::from(Status::Failed.code()));
        })
        .context("start a thread")?;
    match carry_out(&order, &output) {
        Ok(status) => Ok(status),
        Err(error) => {
            let advice = output.advice(&error);
            let (status, is_usage) = (advice.status(), advice.is_usage);
            let help = key_help(&order, &error).or(advice.help);
            output.line(&Event::Broken { what: format!("{error:#}"), help, is_usage })?;
            Ok(status)
        }
    }
}

/// The key of what goes out of a `run` has options of its own.
fn key_help(order: &Order, error: &anyhow::Error) -> Option<String> {
    let wants_key = matches!(
        error.downcast_ref::<PackError>(),
        Some(PackError::KeyMissing { .. } | PackError::WrongKey { .. })
    );
    (order.is_of_run && wants_key).then(|| format!("give the key with {}", OutKeyArgs::NAMES))
}

/// Rather than out of reach, which whoever opens it tells.
fn is_missing(source: &OsStr) -> bool {
    Path::new(source).metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn carry_out(order: &Order, output: &Output) -> anyhow::Result<Status> {
    let target = Path::new(&order.target);
    if order.verb == Verb::Remove {
        let removed = std::fs::remove_dir_all(target);
        removed.with_context(|| format!("remove {}", target.display()))?;
        return transfer::show_end(End { is_complete: true, ..End::default() }, output);
    }
    let variable =
        |name: &str| order.variables.get(name).cloned().or_else(|| crate::config::variable(name));
    let open = |place: &OsStr, wish| places::open_with(place, wish, &variable);
    let key = order.key.as_deref().map(MasterKey::parse).transpose()?;
    let is_out = matches!(order.verb, Verb::Out | Verb::Begin);
    if is_out && is_missing(&order.source) {
        if order.above.is_some() {
            let end = End { is_complete: true, is_absent: true, ..End::default() };
            return transfer::show_end(end, output);
        }
        return Err(SpreadError::NotMade(order.source.to_string_lossy().into_owned()).into());
    }
    let of_source = key.as_ref().filter(|_| !is_out);
    let source = open(&order.source, Wish::Read).map_err(PlaceError::of_tree)?;
    let source = Source::open(source, of_source)?;
    let uid = rustix::process::geteuid().as_raw();
    let registry = Registry::open_or_none(&crate::config::runtime(uid));
    let wish = match order.verb {
        _ if order.copy.is_dry_run() => Wish::Supposed,
        Verb::Out | Verb::Begin => places::lasting(&order.target, &registry),
        // An area ends with its job.
        Verb::In | Verb::Remove => Wish::Passing,
    };
    order.copy.check_places(&order.source, &order.target)?;
    if wish == Wish::Passing && !is_out {
        let made = std::fs::create_dir_all(target);
        made.with_context(|| format!("create the directory {}", target.display()))?;
    }
    if let Some(above) = &order.above {
        open(above, wish)?;
    }
    let target = open(&order.target, wish)?;
    let mut options = order.copy.options(Start::default())?;
    options.share = order.part();
    options.trusts_sizes = order.trusts_sizes;
    if let Some(passing) = order.passing {
        passing.apply(&mut options);
    }
    if is_out {
        options.packs = order.pack.options(&order.target, &target, key)?;
    }
    if order.is_after_parts && options.packs.is_none() && options.overwrite == Overwrite::Always {
        // What every node wrote over is not written over once more. Packs of the parts are taken over.
        options.overwrite = Overwrite::Changed;
    }
    options.loose = order.loose_rows();
    if order.verb == Verb::Begin {
        begin_packs(&target, &options, &SystemRandom::new())?;
        return transfer::show_end(End { is_complete: true, ..End::default() }, output);
    }
    transfer::run_quietly(&source, &target, &options, output)
}
