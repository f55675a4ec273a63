//! The figures 2 to 5 of Tanimura et al. (S3 staging), for us and for other tools: the number of parallel
//! transfers, the size of objects, encryption, and a copy without a store.
//!
//! Encryption by the server (SSE-C) is drawn by [`with_encryption_by_the_server`], which wants one that does it.

use std::process::Command;

use anyhow::Context;

use super::ground::{Files, Ground};
use super::tools::Tool;
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::number;
use crate::report::plot::Plot;
use crate::report::table::Table;
use crate::sample::Samples;

const MIB: f64 = 1_048_576.0;
const STREAMS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const BOTH: [&str; 2] = ["down", "up"];
const NAMES: [&str; 5] = ["figure-2", "figure-3", "figure-4", "figure-5", "figure-4-ceph"];

/// Obscured by nothing, since it hides nothing.
const PASSWORD: &str = "figures";

/// Of other tools, where nothing else is drawn.
const TRANSFERS: usize = 32;

/// The most files that tools beside rclone are given.
const FILES_OF_SLOW: usize = 1_024;

pub(super) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let medium = Files { count: bench.rounds(100, 1_000), bytes: 1 << 20 };
    by_streams(bench, medium, &mut outcome)?;
    by_size(bench, &mut outcome)?;
    by_encryption(bench, medium, &mut outcome)?;
    outcome.notes.push(format!(
        "Other tools without an option for the number of transfers are drawn at one; where there are more than \
         {FILES_OF_SLOW} files only rclone is, the others would take minutes. Encryption by the client is that of rclone, \
         which the others have not. s3fs has no figure, since it is a mount."
    ));
    Ok(outcome)
}

/// One copy that can be measured in both directions.
#[derive(Clone, Copy)]
enum Way {
    /// `hayase stage`, with these options of `out` and of both.
    Ours {
        name: &'static str,
        out: &'static [&'static str],
        both: &'static [&'static str],
        by_server: bool,
    },
    Other(Tool),
    RcloneCrypt,
    /// No store: directory to directory in memory.
    Plain,
}

/// The fastest of the others.
const RCLONE: Way = Way::Other(Tool::Rclone);
const LOOSE: Way = ours("loose", &["--pack", "none"], &[], false);
const PACKED: Way = ours("packed", PACKS, &[], false);
const SEALED: Way = ours("sealed", PACKS, &["--key-file", "key"], false);
const BY_SERVER: Way = ours("SSE-C", PACKS, &[], true);
const PACKS: &[&str] = &["--pack", "16MiB"];

const fn ours(
    name: &'static str,
    out: &'static [&'static str],
    both: &'static [&'static str],
    by_server: bool,
) -> Way {
    Way::Ours { name, out, both, by_server }
}

/// Tools beside rclone that are there.
fn slower_tools() -> impl Iterator<Item = Way> {
    [Tool::Aws, Tool::S3cmd, Tool::S5cmd].into_iter().filter(|tool| tool.is_here()).map(Way::Other)
}

impl Way {
    /// So many files, copied so many at a time, can be asked of it.
    fn can(self, files: Files, streams: Option<usize>) -> bool {
        match self {
            Self::Other(Tool::Rclone) => true,
            Self::Other(tool) => {
                files.count <= FILES_OF_SLOW
                    && (tool.is_parallel() || streams.is_none_or(|n| n == 1))
            }
            _ => true,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ours { name, .. } => name,
            Self::Other(tool) => tool.name(),
            Self::RcloneCrypt => "rclone crypt",
            Self::Plain => "tar | tar",
        }
    }

    fn command(
        self,
        ground: &Ground<'_>,
        what: &str,
        streams: Option<usize>,
    ) -> anyhow::Result<Command> {
        let number = streams.map(|streams| streams.to_string());
        let place = format!("s3:{}", self.name().replace(' ', "-"));
        let inside = place.as_str();
        let ends = if what == "up" { ["tree", inside] } else { [inside, "in"] };
        match self {
            Self::Ours { name, out, both, by_server } => {
                let url = ground.url(name);
                let mut arguments = match what {
                    "up" => [&["stage", "out", "tree", &url][..], out].concat(),
                    _ => vec!["stage", "in", &url, "in"],
                };
                arguments.extend(both);
                if let Some(number) = &number {
                    arguments.extend(["--streams", number]);
                }
                let mut command = ground.hayase(&arguments);
                if by_server {
                    command.env("HAYASE_S3_SSE", "c").env("HAYASE_S3_SSE_C_KEY_FILE", "key");
                    command.env("HAYASE_S3_SSE_C_WITHOUT_TLS", "yes");
                }
                Ok(command)
            }
            Self::Other(tool) => tool.command(ground, what, streams.unwrap_or(TRANSFERS)),
            Self::RcloneCrypt => {
                let mut command = ground.rclone_crypt(ends[0], ends[1], PASSWORD)?;
                if let Some(number) = &number {
                    command.args(["--transfers", number, "--checkers", number]);
                }
                Ok(command)
            }
            Self::Plain => {
                let mut command = Command::new("sh");
                command.args(["-c", "mkdir in && tar -C tree -cf - . | tar -C in -xf -"]);
                command.current_dir(ground.path(""));
                Ok(command)
            }
        }
    }
}

/// Measures each way up and down, in turns, with the tree that is there.
fn measure(
    ground: &Ground<'_>,
    (ways, files): (&[Way], Files),
    (place, streams): (&str, Option<usize>),
    (rounds, samples): (usize, &mut Samples),
) -> anyhow::Result<()> {
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let way = ways[(turn + round) % ways.len()];
            if !way.can(files, streams) {
                continue;
            }
            // What a former one left is not copied again by some, and overwritten by others.
            ground.empty_bucket()?;
            for what in ["up", "down"] {
                if matches!(way, Way::Plain) && what == "up" {
                    continue;
                }
                let ran = ground.run(way.command(ground, what, streams)?);
                let ran = ran.with_context(|| format!("{} {what}", way.name()))?;
                let what = format!("{what} {place}");
                samples.0.push(ran.sample((&what, way.name(), round), files.total()));
            }
            if round == 0 {
                ground.check_same("tree", "in")?;
            }
            ground.clear("in")?;
        }
    }
    Ok(())
}

/// A figure and a table for each direction.
fn draw(
    (name, title): (&'static str, &str),
    across: &'static str,
    (ways, places): (&[Way], &[String]),
    samples: &Samples,
    outcome: &mut Outcome,
) {
    for what in BOTH {
        let rate = |way: &Way, place: &String| {
            Some(samples.rate(&format!("{what} {place}"), way.name()) / MIB)
        };
        let title = format!("{title}, {what}");
        let file = if what == "down" { format!("{name}-down") } else { format!("{name}-up") };
        let mut plot = Plot::new(file, title.as_str(), (across, "MiB/s"), places.to_vec());
        let mut head = vec![across];
        head.extend(ways.iter().map(|way| way.name()));
        let mut table = Table::new(format!("{title} (MiB/s)"), &head);
        for way in ways {
            plot.line(way.name(), places.iter().map(|place| rate(way, place)).collect());
        }
        for place in places {
            let mut row = vec![place.clone()];
            row.extend(ways.iter().map(|way| number(rate(way, place).unwrap_or(f64::NAN))));
            table.row(row);
        }
        table.plot = Some(plot);
        outcome.tables.push(table);
    }
    outcome.samples.extend(samples.0.iter().cloned());
}

fn by_streams(bench: &Bench, files: Files, outcome: &mut Outcome) -> anyhow::Result<()> {
    let ground = Ground::new(bench)?;
    ground.make_tree("tree", files)?;
    let ways: Vec<Way> = [LOOSE, RCLONE].into_iter().chain(slower_tools()).collect();
    let mut samples = Samples::default();
    for streams in STREAMS {
        let place = (streams.to_string(), Some(streams));
        let measured = (bench.rounds(1, 3), &mut samples);
        measure(&ground, (&ways, files), (&place.0, place.1), measured)?;
    }
    let title = format!("Parallel transfers, {} files of 1 MiB", files.count);
    let places = STREAMS.map(|streams| streams.to_string());
    draw((NAMES[0], &title), "transfers at a time", (&ways, &places), &samples, outcome);
    Ok(())
}

/// Figures 3 and 5 have the same axis, and the same copies in them.
fn by_size(bench: &Bench, outcome: &mut Outcome) -> anyhow::Result<()> {
    const SIZES: [(&str, usize); 5] = [
        ("16 KiB", 16 << 10),
        ("128 KiB", 128 << 10),
        ("1 MiB", 1 << 20),
        ("8 MiB", 8 << 20),
        ("64 MiB", 64 << 20),
    ];
    let total = bench.rounds(128, 512) << 20;
    let ours = [Way::Plain, LOOSE, PACKED, RCLONE];
    let ways: Vec<Way> = ours.into_iter().chain(slower_tools()).collect();
    let mut samples = Samples::default();
    for (place, bytes) in SIZES {
        let files = Files { count: total / bytes, bytes };
        let ground = Ground::new(bench)?;
        ground.make_tree("tree", files)?;
        measure(&ground, (&ways, files), (place, None), (bench.rounds(1, 3), &mut samples))?;
    }
    let places = SIZES.map(|(place, _)| place.to_owned());
    let title = format!("Object size, {} MiB in all", total >> 20);
    draw((NAMES[1], &title), "size of a file", (&ways[1..], &places), &samples, outcome);
    let mut against = Outcome::default();
    let title = "Staging in against a copy from memory to memory";
    draw((NAMES[3], title), "size of a file", (&ways, &places), &samples, &mut against);
    // A copy between directories has one direction.
    against.tables.truncate(1);
    outcome.tables.append(&mut against.tables);
    Ok(())
}

/// Figure 4 as the paper has it: nobody encrypts, the client does (CSE: our sealed packs, `rclone crypt`), the server
/// does (SSE-C; rclone 1.60 sends its keys over TLS only).
pub(super) fn with_encryption_by_the_server(
    bench: &Bench,
    ground: &Ground<'_>,
) -> anyhow::Result<Outcome> {
    const STREAMS: [usize; 3] = [1, 4, 16];
    let files = Files { count: bench.rounds(100, 200), bytes: 1 << 20 };
    ground.make_tree("tree", files)?;
    let ways = [PACKED, SEALED, BY_SERVER, RCLONE, Way::RcloneCrypt];
    let (mut samples, mut outcome) = (Samples::default(), Outcome::default());
    for streams in STREAMS {
        let place = streams.to_string();
        let measured = (1, &mut samples);
        measure(ground, (&ways, files), (&place, Some(streams)), measured)?;
    }
    let title = format!("Encryption on Ceph, {} files of 1 MiB", files.count);
    let places = STREAMS.map(|streams| streams.to_string());
    draw((NAMES[4], &title), "transfers at a time", (&ways, &places), &samples, &mut outcome);
    Ok(outcome)
}

fn by_encryption(bench: &Bench, files: Files, outcome: &mut Outcome) -> anyhow::Result<()> {
    let ground = Ground::new(bench)?;
    ground.make_tree("tree", files)?;
    let (ways, mut samples) = ([PACKED, SEALED, RCLONE, Way::RcloneCrypt], Samples::default());
    for streams in STREAMS {
        let place = streams.to_string();
        let measured = (bench.rounds(1, 3), &mut samples);
        measure(&ground, (&ways, files), (&place, Some(streams)), measured)?;
    }
    let title = format!("Encryption by the client, {} files of 1 MiB", files.count);
    let places = STREAMS.map(|streams| streams.to_string());
    draw((NAMES[2], &title), "transfers at a time", (&ways, &places), &samples, outcome);
    Ok(())
}
