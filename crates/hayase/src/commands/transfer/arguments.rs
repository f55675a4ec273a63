//! Arguments of every command that copies trees.

use std::ffi::OsStr;
use std::path::Path;

use hayase_layout::ByteCount;
use hayase_stage::limits::{
    MEMORY_BYTES, MEMORY_BYTES_MIN, PACK_BYTES, PACK_BYTES_RANGE, PART_BYTES_RANGE, STREAMS_MAX,
};
use hayase_stage::pack::writer::Compression;
use hayase_stage::pack::{DIRECTORY, MasterKey};
use hayase_stage::{
    Form, Options, Overwrite, PackOptions, PartSize, Place, Selection, Sizes, Streams,
};
use serde::{Deserialize, Serialize};

use super::{KeyError, Start};
use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::job::Registry;
use crate::number::within;
use crate::output::headings::{COPYING, PERFORMANCE, SELECTION};
use crate::size;
use crate::wiring::places::{self, Wish};

/// What one types for "find out".
const AUTO: &str = "auto";

/// Level of a bare `--zstd`, as typed: the usual one of zstd.
pub(crate) const ZSTD_LEVEL_DEFAULT: &str = "3";

/// Which names take part.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub(crate) struct SelectionArgs {
    /// Select only names that match PATTERN, and everything below them (repeatable)
    ///
    /// A pattern without a slash matches the last name of a path; one with a slash matches the path from the top of
    /// the tree. `*` and `?` do not match slashes, `**` does. A slash at the end means directories only.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    include: Vec<String>,
    /// Leave out names that match PATTERN, and everything below them; overrides --include (repeatable)
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    exclude: Vec<String>,
}

impl SelectionArgs {
    pub(crate) fn selection(&self) -> anyhow::Result<Selection> {
        Ok(Selection::new(&self.include, &self.exclude)?)
    }

    /// Some names are not to take part.
    pub(crate) fn is_given(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }
}

/// The same of what `run --out` copies: what is chosen of the input says nothing about results, and results
/// that are left out end with the job.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OutSelectionArgs {
    /// Copy only results that match PATTERN, and everything below them; others are removed with the job (repeatable)
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    out_include: Vec<String>,
    /// Leave out results that match PATTERN, and everything below them; overrides --out-include (repeatable)
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    out_exclude: Vec<String>,
}

impl OutSelectionArgs {
    pub(crate) fn to_selection(&self) -> SelectionArgs {
        SelectionArgs { include: self.out_include.clone(), exclude: self.out_exclude.clone() }
    }
}

fn pattern(text: &str) -> Result<String, String> {
    let text = text.to_owned();
    match Selection::new(std::slice::from_ref(&text), &[]) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}; expected a pattern, for example *.nc", error.why)),
    }
}

/// When what is there is written over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum OverwriteArg {
    /// If size or time differ
    #[default]
    Changed,
    /// If they differ and the source is newer
    Newer,
    /// Always
    Always,
    /// Never
    Never,
}

/// How trees are copied.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub(crate) struct CopyArgs {
    #[command(flatten, next_help_heading = SELECTION)]
    pub(crate) selection: SelectionArgs,
    /// When to overwrite a file that exists at the target
    #[arg(long, help_heading = COPYING, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) overwrite: OverwriteArg,
    /// Remove names at the target that the source does not have; unselected names are kept
    #[arg(long, help_heading = COPYING)]
    pub(crate) delete: bool,
    /// Remove nothing if more than N names would be removed
    #[arg(long, help_heading = COPYING, value_name = "N", requires = "delete",
          value_parser = within::<u64>(0..=u64::MAX))]
    pub(crate) max_delete: Option<u64>,
    /// Print what would be done, and change nothing
    #[arg(long, help_heading = COPYING)]
    pub(crate) dry_run: bool,
    /// Number of parallel streams; `auto` adapts it to the throughput
    #[arg(long, help_heading = PERFORMANCE, value_name = "N", value_parser = streams, default_value = AUTO)]
    streams: StreamsArg,
    /// Size of the parts in which files of 16 MiB or more are copied; `auto` adapts it to the throughput
    #[arg(long, help_heading = PERFORMANCE, value_name = "SIZE", value_parser = part_size, default_value = AUTO)]
    #[serde(default)]
    part_size: PartSizeArg,
    /// Limit the rate of all streams together, in bytes per second
    #[arg(long, help_heading = PERFORMANCE, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) bandwidth: Option<ByteCount>,
    /// Limit the buffers of all streams together [default: 192MiB]
    #[arg(long, help_heading = PERFORMANCE, value_name = "SIZE", value_parser = memory)]
    #[serde(default)]
    pub(crate) memory: Option<ByteCount>,
}

/// Everything else at the target would be removed.
#[derive(Debug, thiserror::Error)]
#[error("--delete needs a directory as the source, which decides what stays at the target")]
pub(crate) struct DeleteOfFile;

impl Advise for DeleteOfFile {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(None))
    }
}

impl CopyArgs {
    /// Of what is selected, and otherwise as always.
    pub(crate) fn of(selection: SelectionArgs) -> Self {
        Self { selection, ..Self::default() }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Source and target are two places, and neither is in the other's way.
    pub(crate) fn check_places(&self, source: &OsStr, target: &OsStr) -> anyhow::Result<()> {
        places::check_other(source, target)?;
        Ok(places::check_apart(source, target, &self.selection.selection()?, self.delete)?)
    }

    /// The same for a source that is one file of the place `above`.
    pub(crate) fn check_places_of_file(&self, above: &OsStr, target: &OsStr) -> anyhow::Result<()> {
        if self.delete {
            return Err(DeleteOfFile.into());
        }
        Ok(places::check_other(above, target)?)
    }

    /// Where this is copied to, made when it is missing.
    pub(crate) fn open_target(
        &self,
        place: &OsStr,
        environment: &Environment,
    ) -> anyhow::Result<Place> {
        let wish = match self.dry_run {
            true => Wish::Supposed,
            false => places::lasting(place, &Registry::open_or_none(&environment.runtime)),
        };
        Ok(places::open(place, wish)?)
    }

    /// `start` is what `auto` begins with.
    pub(crate) fn options(&self, start: Start) -> anyhow::Result<Options> {
        let overwrite = match self.overwrite {
            OverwriteArg::Changed => Overwrite::Changed,
            OverwriteArg::Newer => Overwrite::Newer,
            OverwriteArg::Always => Overwrite::Always,
            OverwriteArg::Never => Overwrite::Never,
        };
        Ok(Options {
            selection: self.selection.selection()?,
            overwrite,
            delete: self.delete,
            delete_max: self.max_delete,
            is_dry_run: self.dry_run,
            streams: match self.streams {
                StreamsArg::Auto => Streams::Auto { start: start.streams },
                StreamsArg::Fixed(streams) => Streams::Fixed(streams),
            },
            part_size: match self.part_size {
                PartSizeArg::Auto => PartSize::Auto { start: start.part_bytes },
                PartSizeArg::Fixed(bytes) => PartSize::Fixed(bytes.get()),
            },
            bandwidth: self.bandwidth.map(ByteCount::get),
            memory: self.memory.map_or(MEMORY_BYTES, ByteCount::get),
            packs: None,
            share: None,
            sizes: Sizes::All,
            trusts_sizes: false,
            loose: Vec::new(),
        })
    }
}

/// A number, or `auto`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
enum StreamsArg {
    #[default]
    Auto,
    Fixed(usize),
}

fn streams(text: &str) -> Result<StreamsArg, String> {
    if text == AUTO {
        return Ok(StreamsArg::Auto);
    }
    let number = text.parse().ok().filter(|number| (1..=STREAMS_MAX).contains(number));
    number
        .map(StreamsArg::Fixed)
        .ok_or_else(|| format!("expected auto, or 1 to {STREAMS_MAX}, for example 8"))
}

/// A size, or `auto`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
enum PartSizeArg {
    #[default]
    Auto,
    Fixed(ByteCount),
}

fn part_size(text: &str) -> Result<PartSizeArg, String> {
    if text == AUTO {
        return Ok(PartSizeArg::Auto);
    }
    let (least, most) = (PART_BYTES_RANGE.start(), PART_BYTES_RANGE.end());
    let bytes = size::parse(text).ok().filter(|bytes| PART_BYTES_RANGE.contains(bytes));
    bytes
        .map(PartSizeArg::Fixed)
        .ok_or_else(|| format!("expected auto, or {least} to {most}, for example 16MiB"))
}

/// Memory that a copy may have.
fn memory(text: &str) -> Result<ByteCount, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    let least = ByteCount(MEMORY_BYTES_MIN);
    if bytes >= least {
        Ok(bytes)
    } else {
        Err(format!("expected at least {least}, for example 256MiB"))
    }
}

/// Whether small files go into packs, and how.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub(crate) struct PackArgs {
    /// Pack small files, with SIZE per pack (for example 16MiB), or `none`. `auto` packs when the target has packs
    /// already, and for object stores
    #[arg(long, value_name = "SIZE", value_parser = pack, default_value = AUTO)]
    pack: Pack,
    /// Compress packed files with zstd at LEVEL where that saves space [default level: 3]
    #[arg(long, value_name = "LEVEL", value_parser = zstd_level, num_args = 0..=1, require_equals = true, default_missing_value = ZSTD_LEVEL_DEFAULT)]
    zstd: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
enum Pack {
    #[default]
    Auto,
    None,
    Size(ByteCount),
}

impl PackArgs {
    /// The target decides.
    pub(crate) fn is_auto(&self) -> bool {
        matches!(self.pack, Pack::Auto)
    }

    /// Something else than the default is wanted.
    pub(crate) fn is_given(&self) -> bool {
        !matches!(self.pack, Pack::Auto) || self.zstd.is_some()
    }

    /// Fails where `target` is known to get no packs, and something is to be sealed or compressed: before
    /// anything is opened.
    pub(crate) fn check(&self, target: &OsStr, is_sealed: bool) -> Result<(), KeyError> {
        let may_pack = match self.pack {
            Pack::Size(_) => true,
            Pack::None => false,
            Pack::Auto => places::is_url(target) || Path::new(target).join(DIRECTORY).exists(),
        };
        let wants_packs = is_sealed || self.zstd.is_some();
        if wants_packs && !may_pack { Err(KeyError::NeedsPacks) } else { Ok(()) }
    }

    /// What they mean for a copy to `target`, which the person named `named`; `master` seals the packs.
    ///
    /// Fails where something is to be sealed or compressed and nothing is packed.
    pub(crate) fn options(
        &self,
        named: &OsStr,
        target: &Place,
        master: Option<MasterKey>,
    ) -> anyhow::Result<Option<PackOptions>> {
        let bytes = match self.pack {
            Pack::Size(bytes) => Some(bytes),
            Pack::None => None,
            Pack::Auto => match Form::of(target)? {
                Form::Packed => Some(PACK_BYTES),
                Form::Loose => None,
                Form::Nothing => places::is_bucket(named).then_some(PACK_BYTES),
            },
        };
        let Some(bytes) = bytes else {
            let wants_packs = master.is_some() || self.zstd.is_some();
            return if wants_packs { Err(KeyError::NeedsPacks.into()) } else { Ok(None) };
        };
        Ok(Some(PackOptions {
            bytes: bytes.get(),
            compression: self.zstd.map_or(Compression::None, Compression::Zstd),
            master,
            ..PackOptions::default()
        }))
    }
}

fn pack(text: &str) -> Result<Pack, String> {
    match text {
        AUTO => Ok(Pack::Auto),
        "none" => Ok(Pack::None),
        size => pack_size(size).map(Pack::Size),
    }
}

/// A size that packs may have.
pub(crate) fn pack_size(text: &str) -> Result<ByteCount, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    if PACK_BYTES_RANGE.contains(&bytes) {
        return Ok(bytes);
    }
    let (min, max) = (PACK_BYTES_RANGE.start(), PACK_BYTES_RANGE.end());
    Err(format!("expected {min} to {max}, for example 16MiB"))
}

/// A level of zstd.
pub(crate) fn zstd_level(text: &str) -> Result<i32, String> {
    let level: i32 =
        text.parse().map_err(|_| "expected a level of 1 to 19, for example 3".to_owned())?;
    if (1..=19).contains(&level) {
        Ok(level)
    } else {
        Err("expected a level of 1 to 19, for example 3".to_owned())
    }
}
