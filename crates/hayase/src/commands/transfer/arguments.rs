//! Arguments of every command that copies trees.

use hayase_layout::ByteCount;
use hayase_stage::limits::{MEMORY_BYTES, MEMORY_BYTES_MIN, PACK_BYTES_RANGE, STREAMS_MAX};
use hayase_stage::{Options, Overwrite, Selection, Sizes, Streams};
use serde::{Deserialize, Serialize};

use crate::size;

/// Which names take part.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub(crate) struct SelectionArgs {
    /// Only names that match PATTERN, and what lies below them (may be given again)
    ///
    /// Without a slash the pattern is about the last name of a path, with one about the path from the
    /// top. `*` and `?` do not cross slashes, `**` does; a slash at the end means directories only.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    include: Vec<String>,
    /// No names that match PATTERN, and nothing below them; wins over --include (may be given again)
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    exclude: Vec<String>,
}

impl SelectionArgs {
    pub(crate) fn selection(&self) -> anyhow::Result<Selection> {
        Ok(Selection::new(&self.include, &self.exclude)?)
    }
}

fn pattern(text: &str) -> Result<String, String> {
    let text = text.to_owned();
    match Selection::new(std::slice::from_ref(&text), &[]) {
        Ok(_) => Ok(text),
        Err(error) => Err(error.why),
    }
}

/// When what is there is written over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum OverwriteArg {
    /// When size or time differ
    #[default]
    Changed,
    /// When they differ and the source is later
    Newer,
    /// Always
    Always,
    /// Never
    Never,
}

/// How trees are copied.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// When a file that is there already is written over
    #[arg(long, value_name = "WHEN", value_enum, default_value = "changed")]
    pub(crate) overwrite: OverwriteArg,
    /// Remove at the target what the source does not have; names that are not selected stay
    #[arg(long)]
    pub(crate) delete: bool,
    /// Remove nothing when more than N names would go
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,
    /// Change nothing; print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Streams at a time; `auto` finds out how many are of use
    #[arg(long, value_name = "N", value_parser = streams, default_value = "auto")]
    streams: StreamsArg,
    /// Bytes per second, over all streams
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) bandwidth: Option<ByteCount>,
    /// Memory for data on its way, over all streams [default: 192MiB]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    #[serde(default)]
    pub(crate) memory: Option<ByteCount>,
}

impl CopyArgs {
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// `start` is how many streams `auto` begins with.
    pub(crate) fn options(&self, start: usize) -> anyhow::Result<Options> {
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
                StreamsArg::Auto => Streams::Auto { start },
                StreamsArg::Fixed(streams) => Streams::Fixed(streams),
            },
            bandwidth: self.bandwidth.map(ByteCount::get),
            memory: self.memory.map_or(MEMORY_BYTES, ByteCount::get),
            packs: None,
            share: None,
            sizes: Sizes::All,
            trusts_sizes: false,
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
    if text == "auto" {
        return Ok(StreamsArg::Auto);
    }
    let number = text.parse().ok().filter(|number| (1..=STREAMS_MAX).contains(number));
    number.map(StreamsArg::Fixed).ok_or_else(|| format!("write auto, or 1 to {STREAMS_MAX}"))
}

/// Memory that a copy may have.
fn memory(text: &str) -> Result<ByteCount, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    let least = ByteCount(MEMORY_BYTES_MIN);
    if bytes >= least { Ok(bytes) } else { Err(format!("a copy needs {least} at least")) }
}

/// A size that packs may have.
pub(crate) fn pack_size(text: &str) -> Result<ByteCount, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    if PACK_BYTES_RANGE.contains(&bytes) {
        return Ok(bytes);
    }
    let (min, max) = (PACK_BYTES_RANGE.start(), PACK_BYTES_RANGE.end());
    Err(format!("a pack has {min} to {max}"))
}

/// A level of zstd.
pub(crate) fn zstd_level(text: &str) -> Result<i32, String> {
    let level: i32 = text.parse().map_err(|_| "a level is a number".to_owned())?;
    if (1..=19).contains(&level) { Ok(level) } else { Err("levels are 1 to 19".to_owned()) }
}
