//! `hayase stage`. Room: [`background`] (out through the cache area).

pub(crate) mod background;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::Context;
use hayase_stage::Progress;
use hayase_stage::limits::VERIFY_THREADS;
use hayase_stage::pack::PackError;
use hayase_stage::source::{self, Source};
use hayase_stage::verify::{Comparison, compare};
use hayase_tier::TierError;
use serde::Serialize;

use super::job_arg::JobArg;
use super::spread::{self, AreaPlace, OutSpreadArgs, OutWishes, SpreadArgs};
use super::transfer::{self, CopyArgs, KeyArgs, PackArgs, Remembered, SelectionArgs};
use crate::advice::{Advice, Advise};
use crate::config::{EndpointArg, Environment};
use crate::count::counted;
use crate::exit::Status;
use crate::number::within;
use crate::output::headings::{KEYS, NODES, PACKS, PERFORMANCE, SELECTION};
use crate::output::{Human, Output, Page};
use crate::wiring::places;

/// Copy trees between storage and the areas of a job, in packs where that is faster
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StageArgs {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    endpoint: EndpointArg,
}

const EXAMPLES: &str = "\
Examples:
  hayase stage in s3://bucket/images shared/images --spread shard
  hayase stage out /tmp/areas/shared/result /project/result
  hayase stage verify /tmp/areas/shared/result /project/result

See also:
  hayase pack, hayase run --in --out";

const IN_EXAMPLES: &str = "\
Examples:
  hayase stage in /lustre/me/input /tmp/areas/shared/input
  hayase stage in s3://bucket/images shared/images --spread shard    # all nodes share the work
  hayase stage in s3://bucket/weights local/weights --spread copy    # a copy on each node
  hayase stage in /project/in /tmp/in --include '*.nc' --dry-run

Exit codes:
  0 all files arrived; 3 some did not.";

const OUT_EXAMPLES: &str = "\
Examples:
  hayase stage out /tmp/areas/shared/result /project/result
  hayase stage out shared/result s3://bucket/result --spread shard --pack none
  hayase stage out /tmp/areas/local/logs /project/logs --pack 16MiB --zstd

Exit codes:
  0 all files arrived; 3 some did not.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  hayase stage verify /tmp/areas/shared/result s3://bucket/result
  hayase stage verify --exact --threads 8 /data /backup/data

Exit codes:
  0 the trees are equal; 3 they differ.";

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Stage in: copy a tree to a directory or an area; packs are unpacked
    ///
    /// Files that exist with the same size and time are not copied again. To continue an interrupted copy, run the
    /// same command again.
    #[command(after_help = IN_EXAMPLES)]
    In(InArgs),
    /// Stage out: copy a tree to a directory or a bucket, as plain files or in packs
    ///
    /// Files that exist with the same size and time are not copied again. To continue an interrupted copy, run the
    /// same command again.
    #[command(after_help = OUT_EXAMPLES)]
    Out(OutArgs),
    /// Compare two trees byte by byte, packed or not
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct InArgs {
    /// Directory or URL of the tree; packs are unpacked. Or, without the options under "Nodes", one local file or object of a bucket, which is copied into TARGET
    source: OsString,
    /// Directory or URL of the copy, created if missing; with --spread or --to-nodes shared/PATH or local/PATH
    target: OsString,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
    #[command(flatten, next_help_heading = NODES)]
    spread: SpreadArgs,
}

#[derive(Debug, clap::Args)]
struct OutArgs {
    /// Directory or URL of the tree, or one local file or object of a bucket, which is copied into TARGET; with --spread or --from-nodes shared/PATH or local/PATH
    source: OsString,
    /// Directory or URL of the copy, created if missing
    target: OsString,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten, next_help_heading = PACKS)]
    pack: PackArgs,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
    #[command(flatten, next_help_heading = NODES)]
    spread: OutSpreadArgs,
    /// Return when all data is on the nodes of the job; its servers flush it to the tier, which holds TARGET
    #[arg(long, help_heading = NODES)]
    background: bool,
    #[command(flatten, next_help_heading = NODES)]
    job: JobArg,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// The original
    source: OsString,
    /// The copy
    target: OsString,
    #[command(flatten, next_help_heading = SELECTION)]
    selection: SelectionArgs,
    /// Also report names that exist only in TARGET
    #[arg(long)]
    exact: bool,
    /// Number of threads that read
    #[arg(long, value_name = "N", help_heading = PERFORMANCE, default_value_t = VERIFY_THREADS as u64, value_parser = within::<u64>(1..=64))]
    threads: u64,
    #[command(flatten, next_help_heading = KEYS)]
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
    // What is sealed is in packs, which are trees.
    let file = match args.key.is_given() {
        true => None,
        false => one_file(&args.source, &args.target, &args.copy)?,
    };
    let source = match file {
        Some(file) => file,
        None => {
            args.copy.check_places(&args.source, &args.target)?;
            Source::open(places::open_tree(&args.source)?, args.key.key()?.as_ref())?
        }
    };
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
    let file = one_file(&args.source, &args.target, &args.copy)?;
    let is_tree = file.is_none();
    let source = match file {
        Some(file) => file,
        None => {
            args.copy.check_places(&args.source, &args.target)?;
            Source::open_plain(places::open_tree(&args.source)?)?
        }
    };
    let place = match args.background {
        true => background::in_cache(&args.target, &args.job.find(environment)?)?.into_os_string(),
        false => args.target.clone(),
    };
    if args.background {
        // Another path to the target, and the source may lie in the same area.
        match places::above(&args.source).filter(|_| !is_tree) {
            Some((above, _)) => args.copy.check_places_of_file(&above, &place)?,
            None => args.copy.check_places(&args.source, &place)?,
        }
    }
    if let Some(above) =
        Path::new(&place).parent().filter(|_| args.background && !args.copy.is_dry_run())
    {
        let made = std::fs::create_dir_all(above);
        made.with_context(|| format!("create the directory {}", above.display()))?;
    }
    let target = args.copy.open_target(&place, environment)?;
    let remembered = Remembered::of(source.place(), &target, environment);
    let mut options = args.copy.options(remembered.start())?;
    options.packs = args.pack.options(&args.target, &target, args.key.key()?)?;
    let end = transfer::run_to_end(&source, &target, &options, &remembered, output)?;
    let has_packed = end.packs > 0 && !end.is_dry_run;
    let status = transfer::show_end(end, output)?;
    if has_packed && args.pack.is_auto() && status == Status::Done {
        output.note(PACKED);
    }
    if args.background && !args.copy.is_dry_run() && status == Status::Done {
        output.note(background::ON_ITS_WAY);
    }
    Ok(status)
}

/// The source where it is one file: a local one, or an object with nothing below its name.
fn one_file(named: &OsStr, target: &OsStr, copy: &CopyArgs) -> anyhow::Result<Option<Source>> {
    let is_bucket = places::is_bucket(named);
    if !is_bucket && !places::is_local_file(named)? {
        return Ok(None);
    }
    let Some((above, name)) = places::above(named) else { return Ok(None) };
    places::check_other(named, target)?;
    let file = match Source::file(places::open_tree(&above)?, &name) {
        // Who may list what is below a prefix may not be allowed to ask for an object of its name.
        Err(PackError::Tier(TierError::Denied { .. })) if is_bucket => None,
        found => found?,
    };
    let Some(file) = file else { return Ok(None) };
    if is_bucket && source::has_names(&places::open_tree(named)?) {
        return Ok(None);
    }
    copy.check_places_of_file(&above, target)?;
    Ok(Some(file))
}

/// What a person should know who did not ask for packs.
const PACKED: &str = "small files are in packs, which other tools see as tar files; --pack none copies each as a file \
                      or object";

fn verify(args: &VerifyArgs, output: &Output) -> anyhow::Result<Status> {
    let key = args.key.key()?;
    let open = |place: &OsString| -> anyhow::Result<Source> {
        let place = places::open_tree(place)?;
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
    let found = transfer::while_watched(("Comparing", &progress), output, || {
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
#[error("the patterns match no name in the source: nothing was compared")]
pub(crate) struct NothingCompared;

impl Advise for NothingCompared {
    fn advice(&self) -> Option<Advice> {
        let help =
            "a pattern matches names (`*.txt`) or paths from the top of the tree (`/a/b`, `a/**`)";
        Some(Advice::usage(Some(help.to_owned())))
    }
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
        page.line(&format!(
            "{} compared, {}",
            counted(names, "name"),
            counted(count, "difference")
        ));
    }
}
