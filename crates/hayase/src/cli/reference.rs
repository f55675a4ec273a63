//! Pages of `docs/reference/` that the program writes: exit codes, environment variables, the options of a job, metrics.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p hayase --bin hayase reference` writes them. Tables come from what the program itself
//! uses; only what stands around them is here. `commands.md` is written by `tests/commands/help.rs`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::config::variables::{FOR_PROGRAMS, OF_MPI, READ, Variable};
use crate::exit::MEANINGS;

/// Below the title of each page.
const WRITTEN: &str = "Written by the program: tables from what it knows, and the text around them.\n\
    Do not edit this page: `UPDATE_SNAPSHOTS=1 cargo test -p hayase --bin hayase reference` writes it again.\n";

const IN_SCRIPTS: &str = "
## In scripts

In scripts, `hayase down` is the command to look at: 0 means that the tier has everything that was written into `cache`, 1 that it failed or cannot tell, 3 that something is kept and listed, or that the job is down in part.

```sh
hayase up --nodes 2
hayase down || { code=$?; echo \"hayase down ended with $code: see above\" >&2; exit $code; }
```

With `--json` errors are JSON too, on standard error.
";

const OBJECT_STORES: &str = "
## Object stores

`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_DEFAULT_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_PROFILE`, `AWS_CA_BUNDLE` and the others that [S3](../guide/s3.md#credentials) names mean what they mean for other tools.
`HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, also in small letters, [choose a proxy](../guide/s3.md#where-the-server-is).
These are Hayase's own, and are explained there too:

`HAYASE_S3_ADDRESSING`, `HAYASE_S3_ANONYMOUS`, `HAYASE_S3_ATTEMPTS`, `HAYASE_S3_CHECKSUM`, `HAYASE_S3_CONDITIONAL`, `HAYASE_S3_ETAG_MD5`, `HAYASE_S3_PART_MIB`, `HAYASE_S3_SIGN_BODIES`, `HAYASE_S3_SSE`, `HAYASE_S3_SSE_C_KEY_FILE`, `HAYASE_S3_SSE_C_WITHOUT_TLS`

## Batch systems

`SLURM_JOB_ID`, `SLURM_JOB_NODELIST` and `SLURM_JOB_END_TIME`, `PBS_NODEFILE` and `PBS_JOBID`, `PBS_WALLTIME`, `PJM_O_NODEINF`, `PJM_JOBID` and `PJM_SUBJOBID`, and `SLURMD_NODENAME` say which nodes a job has and when it ends.
";

const CONFIGURATION: &str = "
There is no configuration file: a job is configured by the options of `hayase up`, which `hayase run` takes as well ([all of them](commands.md)), and by [environment variables](environment.md).
Options win over variables.
The options that were meant are kept in `job.json` of the job directory, and `hayase report` shows them.
";

const ELSEWHERE: &str = "
## Directories and files

Some settings belong to directories and files instead:

| what | set by | kept in |
|---|---|---|
| stripe size and width of new files of a directory | `hayase layout set` | the attribute `user.hayase.layout` of the directory |
| that MPI programs make containers in a directory outside of jobs | `hayase container enable` | a mark in that directory |
| how MPI programs keep single files | hints of `MPI_File_open` ([list](../guide/mpi-io.md)) | nowhere |
";

const METRICS: &str = "
`hayase up --metrics [ADDRESS:]PORT` has each server answer Prometheus at `http://ADDRESS:PORT/metrics`; `hayase status --prometheus` prints the counters of all nodes once.
Each line has the labels `job`, `node` and `host`.
Counters start again with each start of a server, as Prometheus expects; `hayase_server_starts_total` does not.
The two counters of `hayase_area_*_bytes_total` exist only where areas are images (jobs of root), `deadline` and `missed` only where the end of the job is known.
A server that does not answer has `hayase_up` 0 and nothing else; lines of `cache` exist only in jobs with a tier.

| metric | kind | meaning |
|---|---|---|
";

#[track_caller]
fn check(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert_eq!(kept, text, "{page} is not what the program says; UPDATE_SNAPSHOTS=1 writes it");
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The same of what is no Markdown: `<uid>` would be a tag.
fn plain(text: &str) -> String {
    cell(text).replace('<', "\\<")
}

/// A section of the text at the end of `--help`.
fn section(command: &Command, title: &str) -> Option<String> {
    let text = command.get_after_help()?.to_string();
    let sections = text.split("\n\n").map(str::to_owned);
    let found =
        sections.filter_map(|it| it.strip_prefix(title)?.strip_prefix(":\n").map(str::to_owned));
    let lines = found.map(|it| it.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    lines.last()
}

/// Every command below this one that says which codes it ends with.
fn exit_codes(command: &Command, name: &str, rows: &mut String) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let name = format!("{name} {}", below.get_name());
        if let Some(codes) = section(below, "Exit codes") {
            let _ = writeln!(rows, "| `{name}` | {} |", cell(&codes));
        }
        exit_codes(below, &name, rows);
    }
}

#[test]
fn the_page_of_exit_codes_is_the_programs() {
    let mut page = format!("# Exit codes\n\n{WRITTEN}\n| code | meaning |\n|---:|---|\n");
    for (status, short, more) in MEANINGS {
        let _ = writeln!(page, "| {} | {short}{more} |", status.code());
    }
    let mut rows = String::new();
    exit_codes(&Cli::command(), "hayase", &mut rows);
    assert!(rows.lines().count() > 15, "{rows}");
    let _ = write!(
        page,
        "\n`hayase exec` and `hayase run` end with the status of the program that they ran, with 128 and the number of the \
         signal when a signal ended it, with 127 when there is no such program, and with 126 when it cannot be run.\n\n\
         ## By command\n\n\
         Wrong usage or settings are 2 everywhere, and any other failure is 1; the others end with 0, 1 or 2 only.\n\n\
         | command | codes |\n|---|---|\n{rows}{IN_SCRIPTS}"
    );
    check("exit-codes.md", &page);
}

fn variables(title: &str, all: &[Variable]) -> String {
    let mut table = format!("\n## {title}\n\n| variable | meaning |\n|---|---|\n");
    for Variable { names, meaning, .. } in all {
        let names: Vec<_> = names.split(", ").map(|name| format!("`{name}`")).collect();
        let _ = writeln!(table, "| {} | {} |", names.join(", "), cell(meaning));
    }
    table
}

#[test]
fn the_page_of_variables_is_the_programs() {
    let page = format!(
        "# Environment variables\n\n{WRITTEN}Options win over variables.\n{}{}\n\
         `srun` and `ssh` do not set them: start programs by `hayase exec` or `hayase run`, or give paths.\n{}\n\
         [MPI-IO](../guide/mpi-io.md) explains them.\n{OBJECT_STORES}",
        variables("Read by `hayase`", READ),
        variables("Set for programs of a job", FOR_PROGRAMS),
        variables("Read by `libhayase_mpiio.so`", OF_MPI),
    );
    check("environment.md", &page);
}

/// An option, what it means, and its default.
fn option(arg: &Arg) -> String {
    let name = arg.get_long().expect("options of `up` have long names");
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values());
    let value = value.map(|names| format!(" {}", names[0])).unwrap_or_default();
    let help = arg.get_help().expect("every option has help").to_string();
    let (meaning, told) = match help.split_once(" [default: ") {
        Some((meaning, told)) => (meaning, told.trim_end_matches(']').to_owned()),
        None => (help.as_str(), String::new()),
    };
    let typed = arg.get_default_values().iter().filter(|_| arg.get_action().takes_values());
    let typed: Vec<_> = typed.map(|value| value.to_string_lossy()).collect();
    let default = match arg.get_action().takes_values() {
        true if told.is_empty() => typed.join(" "),
        true => told,
        false => "off".to_owned(),
    };
    let (value, meaning, default) = (cell(&value), plain(meaning), plain(&default));
    format!("| `--{name}{value}` | {meaning} | {default} |\n")
}

#[test]
fn the_page_of_settings_is_the_programs() {
    let cli = Cli::command();
    let up = cli.find_subcommand("up").expect("there is `up`");
    let mut page = format!("# Configuration\n\n{WRITTEN}{CONFIGURATION}");
    let mut headings: Vec<&str> = Vec::new();
    let shown = || up.get_arguments().filter(|arg| !arg.is_hide_set());
    for heading in shown().filter_map(Arg::get_help_heading) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    assert!(shown().all(|arg| arg.get_help_heading().is_some()), "an option without a heading");
    for heading in headings {
        let _ = write!(page, "\n## {heading}\n\n| option | meaning | default |\n|---|---|---|\n");
        shown()
            .filter(|arg| arg.get_help_heading() == Some(heading))
            .for_each(|arg| page += &option(arg));
    }
    page += ELSEWHERE;
    check("configuration.md", &page);
}

/// `Memory` as `memory`, and `CPU` as it is.
fn begun_small(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    match rest.starts_with(|c: char| c.is_uppercase()) {
        true => text.to_owned(),
        false => first.to_lowercase() + rest,
    }
}

#[test]
fn the_page_of_metrics_is_the_programs() {
    let mut page = format!("# Metrics\n\n{WRITTEN}{METRICS}");
    for (name, kind, meaning) in crate::metrics::all() {
        let _ = writeln!(page, "| `hayase_{name}` | {kind} | {} |", begun_small(meaning));
    }
    check("metrics.md", &page);
}
