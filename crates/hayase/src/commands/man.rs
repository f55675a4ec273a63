//! `hayase man`: manual pages from what clap knows, with the sections that man-pages(7) names.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;

use crate::config::variables::{FOR_PROGRAMS, OF_MPI, READ, Variable};
use crate::exit::{self, Status};

/// Write the manual pages of all commands to a directory
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Directory of the pages, created if missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  hayase man ~/.local/share/man/man1 && man hayase-up
  hayase man /usr/local/share/man/man1";

/// Of `hayase.1`: where things lie.
const FILES: &str = "\
  /tmp/hayase-<uid>/jobs/JOB      files of a job: its settings, and the logs in node-<I>
  STORAGE/JOB                     data of a job on each node, as --storage says
  user.hayase.layout              extended attribute of directories in `shared` and `cache`: hayase-layout(1)";

/// Writes `hayase.1`, `hayase-up.1` and so on for `whole`, all that can be typed.
pub(crate) fn run(args: &ManArgs, whole: Command) -> anyhow::Result<Status> {
    let failed = || format!("write manual pages to {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(failed)?;
    let mut command = whole.disable_help_subcommand(true);
    command.build();
    write(&command, &args.dir).with_context(failed)?;
    Ok(Status::Done)
}

/// The page of a command, and those of the commands below it.
fn write(command: &Command, dir: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, dir)?;
    }
    std::fs::write(dir.join(format!("{}.1", name(command))), page(command)?)
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let source = concat!("hayase ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name(command)).source(source).manual("Hayase");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    page.extend(section("Synopsis", usage).bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    page.extend(sections(name(command), &more).bytes());
    Ok(page)
}

/// What follows the options, from the text that `--help` prints at its end.
fn sections(name: &str, more: &str) -> String {
    let found: Vec<_> = more.split("\n\n").filter_map(|block| block.split_once(":\n")).collect();
    let find = |title| found.iter().find(|(known, _)| *known == title).map(|(_, text)| *text);
    // Of pages whose help has none of their own.
    let exit_codes = format!("  {}.", exit::meanings());
    let mut page = String::new();
    for (title, text) in [
        ("Examples", find("Examples")),
        ("Files", (name == "hayase").then_some(FILES)),
        ("Exit status", Some(find("Exit codes").unwrap_or(&exit_codes))),
    ] {
        page.push_str(&text.map(|text| section(title, text)).unwrap_or_default());
    }
    if name == "hayase" {
        page.push_str(&environment());
    }
    page.push_str(&section("See also", &see_also(name, find("See also").unwrap_or_default())));
    page
}

/// All variables, with those that `--help` leaves out.
fn environment() -> String {
    let mut page = ".SH ENVIRONMENT\n".to_owned();
    for (title, all) in [
        ("Read by hayase", READ),
        ("Set for programs of a job", FOR_PROGRAMS),
        ("Read by libhayase_mpiio.so", OF_MPI),
    ] {
        page.push_str(&format!(".SS {title}\n"));
        for Variable { names, meaning, .. } in all {
            let meaning = quoted(&meaning.replace('`', ""));
            page.push_str(&format!(".TP\n.B {}\n{meaning}\n", quoted(names)));
        }
    }
    page.push_str(
        ".SS Read by clients of S3\n.TP\n.B AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION ...\n\
         S3 server and credentials, as for other clients\n",
    );
    page
}

/// `hayase up, hayase exec --mpiio` as pages, with the page above `name`.
fn see_also(name: &str, text: &str) -> String {
    let words = |entry: &str| {
        let words = entry.split_whitespace().take_while(|word| !word.starts_with('-'));
        words.collect::<Vec<_>>().join("-")
    };
    let named = text.split(',').map(words).filter(|page| page.starts_with("hayase-"));
    let above = name.rsplit_once('-').map(|(above, _)| above.to_owned());
    let mut pages: Vec<_> = above.into_iter().chain(named).collect();
    pages.dedup();
    match pages.is_empty() {
        true => "hayase-up(1), hayase-down(1), hayase-doctor(1)".to_owned(),
        false => pages.into_iter().map(|page| format!("{page}(1)")).collect::<Vec<_>>().join(", "),
    }
}

/// A section whose lines stay as they are.
fn section(title: &str, text: &str) -> String {
    let mut page = format!(".SH {}\n.nf\n", title.to_uppercase());
    for line in text.lines() {
        page.push_str(&quoted(line.strip_prefix("  ").unwrap_or(line)));
        page.push('\n');
    }
    page.push_str(".fi\n");
    page
}

/// A line of text for roff(7).
fn quoted(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_end_of_help_becomes_sections() {
        let more =
            "Examples:\n  hayase x -n 1\n  .y\n\nSee also:\n  hayase up, hayase exec --mpiio";
        let page = sections("hayase-pack-list", more);
        assert!(page.starts_with(".SH EXAMPLES\n.nf\nhayase x \\-n 1\n\\&.y\n.fi\n"), "{page}");
        assert!(page.contains(".SH EXIT STATUS\n"), "{page}");
        assert!(page.contains("hayase\\-pack(1), hayase\\-up(1), hayase\\-exec(1)\n"), "{page}");
        assert!(!page.contains("ENVIRONMENT"), "{page}");
    }

    #[test]
    fn every_page_has_the_sections_that_readers_look_for() {
        let dir = tempfile::tempdir().unwrap();
        run(&ManArgs { dir: dir.path().to_owned() }, Cli::command()).unwrap();
        for page in std::fs::read_dir(dir.path()).unwrap() {
            let page = page.unwrap().path();
            let text = std::fs::read_to_string(&page).unwrap();
            for title in ["NAME", "SYNOPSIS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
                assert!(text.contains(&format!(".SH {title}")), "{}: {title}", page.display());
            }
        }
        let first = std::fs::read_to_string(dir.path().join("hayase.1")).unwrap();
        for name in ["HAYASE_JOB", "HAYASE_SHARED, HAYASE_LOCAL", "HAYASE_MPIIO_TRACE"] {
            assert!(first.contains(&format!(".TP\n.B {name}")), "{name}: {first}");
        }
    }
}
