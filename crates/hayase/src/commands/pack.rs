//! `hayase pack`.

use std::ffi::OsString;
use std::sync::atomic::AtomicU64;

use hayase_layout::ByteCount;
use hayase_stage::limits::{PACK_BYTES, VERIFY_THREADS};
use hayase_stage::pack::writer::Compression;
use hayase_stage::pack::{PackError, PackSet, Row, reindex, verify};
use hayase_stage::source::Source;
use hayase_stage::{Kind, PackOptions};
use ring::rand::SystemRandom;
use serde::Serialize;

use super::transfer::{
    self, CopyArgs, KeyArgs, NewKeyArgs, Remembered, SelectionArgs, ZSTD_LEVEL_DEFAULT, pack_size,
    zstd_level,
};
use crate::config::{EndpointArg, Environment};
use crate::count::{counted, verb};
use crate::exit::Status;
use crate::output::headings::{KEYS, PACKS, SELECTION};
use crate::output::{Human, Output, Page};
use crate::size;
use crate::wiring::places::{self, Wish};

/// Keep many small files in a few tar files with an index
///
/// Every tar program can read a pack; docs/guide/pack-format.md describes the format.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PackArgs {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    endpoint: EndpointArg,
}

const EXAMPLES: &str = "\
Examples:
  hayase pack create /data/images s3://bucket/images
  hayase pack list s3://bucket/images
  hayase mount s3://bucket/images /tmp/images

See also:
  hayase stage, hayase mount";

const CREATE_EXAMPLES: &str = "\
Examples:
  hayase pack create /data/images s3://bucket/images --endpoint https://s3.example.org
  hayase pack create --zstd --size 64MiB /data/logs /archive/logs
  hayase pack create --key-file key /data/patients /archive/patients

Exit codes:
  0 all files are packed; 3 some are not.";

const LIST_EXAMPLES: &str = "\
Examples:
  hayase pack list /archive/logs
  hayase pack list --include '*.nc' --json s3://bucket/images";

const EXTRACT_EXAMPLES: &str = "\
Examples:
  hayase pack extract s3://bucket/images /data/images
  hayase pack extract --include '2026/**' /archive/logs /tmp/logs

Exit codes:
  0 all files are unpacked; 3 some are not.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  hayase pack verify s3://bucket/images

Exit codes:
  0 no damage; 3 some files are damaged.";

const REKEY_EXAMPLES: &str = "\
Examples:
  hayase pack rekey --key-file old.key --new-key-file new.key /archive/patients";

const REINDEX_EXAMPLES: &str = "\
Examples:
  hayase pack reindex /archive/logs

Exit codes:
  0 the index is complete; 3 some packs cannot be read.";

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Pack a tree, or add its new files to existing packs
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// List the files in packs
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Extract files from packs
    #[command(after_help = EXTRACT_EXAMPLES)]
    Extract(ExtractArgs),
    /// Read packs and compare every byte with the checksums of the index
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Change the key of sealed packs, without writing their data again
    #[command(after_help = REKEY_EXAMPLES)]
    Rekey(RekeyArgs),
    /// Rebuild a lost index from the packs
    ///
    /// Each pack has an index of its own. If several packs have a file of the same name, the most recently written pack
    /// wins. Files that were removed from the set come back if their pack still exists. Large files that are stored next
    /// to the packs are found by `hayase stage in`; a mount shows them after the next `hayase stage out`.
    #[command(after_help = REINDEX_EXAMPLES)]
    Reindex(ReindexArgs),
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Directory or URL of the tree
    source: OsString,
    /// Directory or URL of the packs, created if missing
    packs: OsString,
    /// Size of each pack; larger files get packs of their own
    #[arg(long, help_heading = PACKS, value_name = "SIZE", value_parser = pack_size,
        default_value = size::typed(PACK_BYTES))]
    size: ByteCount,
    /// Compress with zstd at LEVEL where that saves space [default level: 3]
    #[arg(long, help_heading = PACKS, value_name = "LEVEL", value_parser = zstd_level, num_args = 0..=1, require_equals = true, default_missing_value = ZSTD_LEVEL_DEFAULT)]
    zstd: Option<i32>,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Directory or URL of the packs
    packs: OsString,
    #[command(flatten, next_help_heading = SELECTION)]
    selection: SelectionArgs,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
}

#[derive(Debug, clap::Args)]
struct ExtractArgs {
    /// Directory or URL of the packs
    packs: OsString,
    /// Directory or URL of the files, created if missing
    target: OsString,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Directory or URL of the packs
    packs: OsString,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
}

#[derive(Debug, clap::Args)]
struct RekeyArgs {
    /// Directory or URL of the packs
    packs: OsString,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
    #[command(flatten, next_help_heading = KEYS)]
    new: NewKeyArgs,
}

#[derive(Debug, clap::Args)]
struct ReindexArgs {
    /// Directory or URL of the packs
    packs: OsString,
    #[command(flatten, next_help_heading = KEYS)]
    key: KeyArgs,
}

/// Does what the verb says.
pub(crate) fn run(
    args: &PackArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    args.endpoint.apply();
    match &args.verb {
        Verb::Create(args) => create(args, environment, output),
        Verb::List(args) => list(args, output),
        Verb::Extract(args) => extract(args, environment, output),
        Verb::Verify(args) => check(args, output),
        Verb::Rekey(args) => rekey(args),
        Verb::Reindex(args) => reindex(args, output),
    }
}

fn open(packs: &OsString, wish: Wish, key: &KeyArgs) -> anyhow::Result<PackSet> {
    Ok(PackSet::open(&places::open(packs, wish)?, key.key()?.as_ref())?)
}

fn create(args: &CreateArgs, environment: &Environment, output: &Output) -> anyhow::Result<Status> {
    args.copy.check_places(&args.source, &args.packs)?;
    let source = Source::open_plain(places::open_tree(&args.source)?)?;
    let target = args.copy.open_target(&args.packs, environment)?;
    let remembered = Remembered::of(source.place(), &target, environment);
    let mut options = args.copy.options(remembered.start())?;
    options.packs = Some(PackOptions {
        bytes: args.size.get(),
        compression: args.zstd.map_or(Compression::None, Compression::Zstd),
        master: args.key.key()?,
        is_complete: true,
        ..PackOptions::default()
    });
    transfer::run(&source, &target, &options, &remembered, output)
}

fn extract(
    args: &ExtractArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    args.copy.check_places(&args.packs, &args.target)?;
    let place = places::open(&args.packs, Wish::Read)?;
    let key = args.key.key()?;
    // Asks for packs, where a plain source would do as well.
    PackSet::open(&place, key.as_ref())?;
    let source = Source::open(place, key.as_ref())?;
    let target = args.copy.open_target(&args.target, environment)?;
    let remembered = Remembered::of(source.place(), &target, environment);
    let options = args.copy.options(remembered.start())?;
    transfer::run(&source, &target, &options, &remembered, output)
}

fn list(args: &ListArgs, output: &Output) -> anyhow::Result<Status> {
    let selection = args.selection.selection()?;
    let set = open(&args.packs, Wish::Read, &args.key)?;
    let taken = |row: &&Row| selection.takes(&row.item.name, row.item.is_directory());
    let entries: Vec<Listed> =
        set.index.rows.iter().filter(taken).map(|row| Listed::of(&set, row)).collect();
    output.show(&Listing { packs: set.index.packs.len(), entries })?;
    Ok(Status::Done)
}

#[derive(Serialize)]
struct Listing {
    packs: usize,
    entries: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    kind: &'static str,
    bytes: u64,
    mode: String,
    /// Seconds since 1970, with nanoseconds.
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Of a file's bytes.
    crc32c: String,
    /// `None` for an object beside the packs.
    pack: Option<String>,
    offset: Option<u64>,
    stored: Option<u64>,
}

impl Listed {
    fn of(set: &PackSet, row: &Row) -> Self {
        let (kind, target) = match &row.item.kind {
            Kind::File { .. } => ("file", None),
            Kind::Directory => ("directory", None),
            Kind::Link { target } => ("link", Some(target.escape_ascii().to_string())),
        };
        Self {
            name: row.item.name.to_string(),
            kind,
            bytes: row.item.bytes(),
            mode: format!("{:04o}", row.item.mode),
            mtime: row.item.mtime.to_string(),
            target,
            crc32c: format!("{:08x}", row.crc32c),
            pack: row.location.map(|at| set.index.packs[at.pack as usize].id.to_string()),
            offset: row.location.map(|at| at.offset),
            stored: row.location.map(|at| at.stored),
        }
    }
}

impl Human for Listing {
    fn write(&self, page: &mut Page) {
        for entry in &self.entries {
            let kind = match entry.kind {
                "directory" => 'd',
                "link" => 'l',
                _ => '-',
            };
            let arrow = entry.target.as_ref().map(|to| format!(" -> {to}")).unwrap_or_default();
            let slash = if kind == 'd' { "/" } else { "" };
            let (mode, bytes, name) = (&entry.mode, entry.bytes, &entry.name);
            page.line(&format!("{kind}{mode} {bytes:>12} {name}{slash}{arrow}"));
        }
        page.line(&format!(
            "{} in {}",
            counted(self.entries.len(), "entry"),
            counted(self.packs, "pack")
        ));
    }
}

fn check(args: &VerifyArgs, output: &Output) -> anyhow::Result<Status> {
    let place = places::open(&args.packs, Wish::Read)?;
    let set = match PackSet::open(&place, args.key.key()?.as_ref()) {
        Ok(set) => set,
        Err(error @ (PackError::Damaged { .. } | PackError::Line { .. })) => {
            let told = Verified { damage: vec![error.to_string()], ..Verified::default() };
            output.show(&told)?;
            return Ok(Status::Partly);
        }
        Err(error) => return Err(error.into()),
    };
    let progress = hayase_stage::Progress::default();
    let total: u64 = set.index.packs.iter().map(|pack| pack.bytes).sum();
    let loose = set.index.rows.iter().filter(|row| row.location.is_none());
    let total = total + loose.map(|row| row.item.bytes()).sum::<u64>();
    progress.bytes_wanted.store(total, std::sync::atomic::Ordering::Relaxed);
    progress.is_planned.store(true, std::sync::atomic::Ordering::Relaxed);
    let seen: &AtomicU64 = &progress.bytes_moved;
    let report = transfer::while_watched(("Verifying", &progress), output, || {
        verify::verify(&set, VERIFY_THREADS, seen)
    });
    let told = Verified {
        entries: report.entries,
        packs: report.packs,
        bytes: report.bytes,
        damage: report.damage.iter().map(ToString::to_string).collect(),
    };
    let status = if told.damage.is_empty() { Status::Done } else { Status::Partly };
    output.show(&told)?;
    Ok(status)
}

#[derive(Default, Serialize)]
struct Verified {
    entries: u64,
    packs: u64,
    bytes: u64,
    damage: Vec<String>,
}

impl Human for Verified {
    fn write(&self, page: &mut Page) {
        for damage in &self.damage {
            page.line(damage);
        }
        let (entries, packs) = (counted(self.entries, "entry"), counted(self.packs, "pack"));
        let bytes = ByteCount(self.bytes);
        let damage = match self.damage.len() {
            0 => "no damage".to_owned(),
            count => format!("{count} {} damaged", verb(count, "is", "are")),
        };
        page.line(&format!("{entries} in {packs}, {bytes} read: {damage}"));
    }
}

fn rekey(args: &RekeyArgs) -> anyhow::Result<Status> {
    let set = open(&args.packs, Wish::Present, &args.key)?;
    if let Some(new) = args.new.key()? {
        set.rekey(&new, &SystemRandom::new())?;
    }
    Ok(Status::Done)
}

fn reindex(args: &ReindexArgs, output: &Output) -> anyhow::Result<Status> {
    let place = places::open(&args.packs, Wish::Present)?;
    let made = reindex::reindex(&place, args.key.key()?.as_ref(), &SystemRandom::new())?;
    let unread = made.unread.into_iter().map(|(pack, error)| (pack.to_string(), error.to_string()));
    let told = Reindexed {
        entries: made.entries,
        packs: made.packs,
        doubtful: made.doubtful,
        unread: unread.collect(),
    };
    let status = if told.unread.is_empty() { Status::Done } else { Status::Partly };
    output.show(&told)?;
    Ok(status)
}

#[derive(Serialize)]
struct Reindexed {
    entries: usize,
    packs: usize,
    /// Names of which several packs had something else.
    doubtful: usize,
    /// Packs that can not be read, and why: what lies in them is not in the index.
    unread: Vec<(String, String)>,
}

impl Human for Reindexed {
    fn write(&self, page: &mut Page) {
        for (pack, why) in &self.unread {
            page.line(&format!("pack {pack} is left out: {why}"));
        }
        if self.doubtful > 0 {
            page.line(&format!(
                "several packs differ in {}: the version written last, by the clock of the storage, was taken",
                counted(self.doubtful, "name")
            ));
        }
        page.line(&format!(
            "an index of {} in {}",
            counted(self.entries, "entry"),
            counted(self.packs, "pack")
        ));
    }
}
