//! `hayase stage`. Room: [`background`] (out through the cache area).

pub(crate) mod background;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use hayase_stage::Progress;
use hayase_stage::limits::VERIFY_THREADS;
use hayase_stage::source::Source;
use hayase_stage::verify::{Comparison, compare};
use serde::Serialize;

use super::job_arg::JobArg;
use super::spread::{self, AreaPlace, OutSpreadArgs, OutWishes, SpreadArgs};
use super::transfer::{self, CopyArgs, EndpointArg, KeyArgs, PackArgs, Remembered, SelectionArgs};
use crate::config::Environment;
use crate::exit::Status;
use crate::output::{Human, Output, Page};
use crate::wiring::places::{self, Wish};

/// Copy whole trees between storage and the areas of a job, in packs where that is faster
#[derive(Debug, clap::Args)]
pub(crate) struct StageArgs {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    endpoint: EndpointArg,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Copy a tree to where programs use it: plain files, also from packs
    ///
    /// What is there already, with the same size and time, is not copied again: a copy that was
    /// interrupted is continued by the same command.
    In(InArgs),
    /// Copy a tree to where it is kept: as plain files, or in packs
    ///
    /// What is there already, with the same size and time, is not copied again: a copy that was
    /// interrupted is continued by the same command.
    Out(OutArgs),
    /// Compare two trees byte by byte, packed or not
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct InArgs {
    /// Directory or URL of the tree; packs in it are unpacked
    source: OsString,
    /// Directory or URL for the copy, made when it is missing; by nodes of a job shared/PATH or local/PATH
    target: OsString,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    spread: SpreadArgs,
}

#[derive(Debug, clap::Args)]
struct OutArgs {
    /// Directory or URL of the tree; by nodes of a job shared/PATH or local/PATH
    source: OsString,
    /// Directory or URL for the copy; made when it is missing
    target: OsString,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    pack: PackArgs,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    spread: OutSpreadArgs,
    /// End when everything is safe on the nodes of a job, whose tier holds the target; its servers go on
    #[arg(long)]
    background: bool,
    #[command(flatten)]
    job: JobArg,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// The tree as it should be
    source: OsString,
    /// The tree to be looked at
    target: OsString,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Names that only the target has are differences too
    #[arg(long)]
    exact: bool,
    /// Threads that read
    #[arg(long, value_name = "N", default_value_t = VERIFY_THREADS as u64, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    #[command(flatten)]
    key: KeyArgs,
}

/// Copies or compares.
pub(crate) fn run(
    args: &StageArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    args.endpoint.apply();
    match &args.verb {
        Verb::In(args) => stage_in(args, environment, output),
        Verb::Out(args) => stage_out(args, environment, output),
        Verb::Verify(args) => verify(args, output),
    }
}

fn stage_in(args: &InArgs, environment: &Environment, output: &Output) -> anyhow::Result<Status> {
    if args.spread.is_wanted() {
        let (job, how) = args.spread.find(environment)?;
        let target = AreaPlace::parse(&args.target.to_string_lossy())?;
        let wishes = (&args.copy, args.key.given()?);
        return spread::stage_in((&job, how), &args.source, &target, wishes, output);
    }
    args.copy.check_places(&args.source, &args.target)?;
    let source = places::open(&args.source, Wish::Read)?;
    let source = Source::open(source, args.key.key()?.as_ref())?;
    let target = args.copy.open_target(&args.target, environment)?;
    let remembered = Remembered::of(source.place(), &target, environment);
    let options = args.copy.options(remembered.start())?;
    transfer::run(&source, &target, &options, &remembered, output)
}

fn stage_out(args: &OutArgs, environment: &Environment, output: &Output) -> anyhow::Result<Status> {
    args.pack.check(&args.target, args.key.is_given())?;
    if args.spread.is_wanted() {
        let job = args.job.find(environment)?;
        let how = args.spread.how(&job)?;
        let source = AreaPlace::parse(&args.source.to_string_lossy())?;
        let (copy, pack, key) = (args.copy.clone(), args.pack.clone(), args.key.given()?);
        let wishes = OutWishes { copy, pack, key, is_of_run: false };
        return spread::stage_out((&job, how), &source, &args.target, &wishes, output);
    }
    args.copy.check_places(&args.source, &args.target)?;
    let source = Source::open_plain(places::open(&args.source, Wish::Read)?)?;
    let place = match args.background {
        true => background::in_cache(&args.target, &args.job.find(environment)?)?.into_os_string(),
        false => args.target.clone(),
    };
    if args.background {
        // Another path to the target, and the source may lie in the same area.
        args.copy.check_places(&args.source, &place)?;
    }
    if let Some(above) =
        Path::new(&place).parent().filter(|_| args.background && !args.copy.is_dry_run())
    {
        let made = std::fs::create_dir_all(above);
        made.with_context(|| format!("make the directory {}", above.display()))?;
    }
    let target = args.copy.open_target(&place, environment)?;
    let remembered = Remembered::of(source.place(), &target, environment);
    let mut options = args.copy.options(remembered.start())?;
    options.packs = args.pack.options(&args.target, &target, args.key.key()?)?;
    let status = transfer::run(&source, &target, &options, &remembered, output)?;
    if args.background && !args.copy.is_dry_run() && status == Status::Done {
        output.note(background::ON_ITS_WAY);
    }
    Ok(status)
}

fn verify(args: &VerifyArgs, output: &Output) -> anyhow::Result<Status> {
    let key = args.key.key()?;
    let open = |place: &OsString| -> anyhow::Result<Source> {
        let place = places::open(place, Wish::Read)?;
        // The key belongs to whichever side is sealed.
        match (Source::open(place.clone(), None), &key) {
            (Err(hayase_stage::pack::PackError::KeyMissing { .. }), Some(key)) => {
                Ok(Source::open(place, Some(key))?)
            }
            (answer, _) => Ok(answer?),
        }
    };
    let (source, target) = (open(&args.source)?, open(&args.target)?);
    let selection = args.selection.selection()?;
    let progress = Progress::default();
    let threads = args.threads as usize;
    let found = transfer::while_watched(&progress, output, || {
        compare(&source, &target, &selection, args.exact, threads, &progress)
    });
    let is_nothing = found.names == 0 && found.differences.is_empty();
    if is_nothing && args.selection.is_given() && !source.is_empty() {
        return Err(NothingCompared.into());
    }
    let told = Compared::of(found);
    let status = if told.differences.is_empty() { Status::Done } else { Status::Partly };
    output.show(&told)?;
    Ok(status)
}

/// A comparison of nothing would always be a success.
#[derive(Debug, thiserror::Error)]
#[error("the patterns select no name of the source: nothing was compared")]
pub(crate) struct NothingCompared;

impl NothingCompared {
    pub(crate) const HELP: &str =
        "a pattern is about names (`*.txt`), or about paths from the tree's top (`/a/b`, `a/**`)";
}

#[derive(Serialize)]
struct Compared {
    names: u64,
    /// Names and what differs.
    differences: Vec<(String, String)>,
}

impl Compared {
    fn of(found: Comparison) -> Self {
        let differences = found.differences.into_iter();
        let differences = differences.map(|difference| (difference.name, difference.what));
        Self { names: found.names, differences: differences.collect() }
    }
}

impl Human for Compared {
    fn write(&self, page: &mut Page) {
        for (name, what) in &self.differences {
            page.line(&format!("{name} {what}"));
        }
        let (names, count) = (self.names, self.differences.len());
        let plural = if count == 1 { "" } else { "s" };
        page.line(&format!("{names} names compared, {count} difference{plural}"));
    }
}
