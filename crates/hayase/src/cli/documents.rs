//! Commands that documents show, compared with the program's own: README, `docs/`, the other pages at the root; and those
//! that messages of the program print (`tests/commands/printed.rs` types some of them).
//!
//! A line of a block of shell (```` ```sh ````, also with a reason not to run it: ```` ```sh,needs-slurm ````) is parsed
//! as it would be when it is typed. Of `hayase ...` in the middle of a sentence the verb and the names of options must
//! exist. Blocks that this machine can run are run by `tests/commands/guides.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;

/// What may follow `sh,`: why `cargo test` does not run the block, and the script that runs every such block as it stands.
/// Blocks without a script are only parsed: nothing here has what they need.
const REASONS: [(&str, Option<&str>); 11] = [
    ("fragment", None),
    // Builds and installs packages for minutes; the suite `packages` does so in its own way.
    ("needs-build", None),
    // Sixteen hosts, Apptainer, or RDMA.
    ("needs-cluster", None),
    ("needs-gfarm", Some("tests/gfarm/gfarm.sh")),
    ("needs-hours", None),
    ("needs-lustre", None),
    ("needs-mpi", Some("scripts/test/suites.sh")),
    ("needs-openmpi", Some("scripts/test/suites.sh")),
    ("needs-paths", Some("scripts/test/suites.sh")),
    ("needs-s3", Some("tests/s3/run.sh")),
    // The suite `slurm` runs those of the guide and of the tutorial (`block`, `tutorial_runs`); the one of MPI-IO needs an MPI
    // that `srun` starts.
    ("needs-slurm", None),
];

/// A block or a span of a page.
struct Code {
    page: String,
    line: usize,
    /// `sh,needs-slurm`; `None` of a span in a sentence.
    info: Option<String>,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join("docs")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    found
}

/// Sources of the product.
fn sources() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).unwrap().flatten();
    let mut waiting: Vec<_> = crates.map(|entry| entry.path().join("src")).collect();
    let mut found = Vec::new();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// What stands between backquotes in string literals, as far as lines tell: comments are left out, and this file.
fn printed(source: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(source).unwrap();
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let lines = text.lines().enumerate().filter(|(_, line)| !is_comment(line));
    let spans = lines.flat_map(|(number, line)| {
        line.split('`').skip(1).step_by(2).map(move |span| (number + 1, span.to_owned()))
    });
    spans.filter(|(_, span)| span.starts_with("hayase ")).collect()
}

fn code(page: &Path) -> Vec<Code> {
    let text = fs::read_to_string(page).unwrap();
    let page = page.strip_prefix(root()).unwrap().display().to_string();
    let mut found: Vec<Code> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let new = |info, text: &str| Code {
            page: page.clone(),
            line: number + 1,
            info,
            text: text.to_owned(),
        };
        if let Some(info) = line.trim_start().strip_prefix("```") {
            if !open {
                found.push(new(Some(info.trim().to_owned()), ""));
            }
            open = !open;
        } else if open {
            let block = found.last_mut().unwrap();
            block.text.push_str(line);
            block.text.push('\n');
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| new(None, span)));
        }
    }
    found
}

/// Commands of a piece of shell as words: quotes taken off, comments and redirections left out.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut depth = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let end = |found: &mut Vec<Vec<String>>, word: &mut Option<String>| {
            found.last_mut().unwrap().extend(word.take());
        };
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(c) => word.get_or_insert_default().push(c),
            },
            '\'' | '"' => {
                let inner: String = chars.by_ref().take_while(|&next| next != c).collect();
                word.get_or_insert_default().push_str(&inner);
            }
            '$' if chars.peek() == Some(&'(') => {
                depth += 1;
                chars.next();
                word.get_or_insert_default().push_str("$(");
            }
            ')' if depth > 0 => {
                depth -= 1;
                word.get_or_insert_default().push(')');
            }
            c if depth > 0 => word.get_or_insert_default().push(c),
            '#' if word.is_none() => while chars.next_if(|&c| c != '\n').is_some() {},
            '>' | '<' => {
                // A number before it is the descriptor; what follows is the file.
                word = word.take().filter(|word| word.parse::<u8>().is_err());
                end(&mut found, &mut word);
                while chars.next_if(|c| "><& ".contains(*c)).is_some() {}
                while chars.next_if(|c| !c.is_whitespace() && !";|&".contains(*c)).is_some() {}
            }
            '\n' | ';' | '|' | '&' | '(' | ')' => {
                end(&mut found, &mut word);
                found.push(Vec::new());
            }
            c if c.is_whitespace() => end(&mut found, &mut word),
            c => word.get_or_insert_default().push(c),
        }
    }
    found.last_mut().unwrap().extend(word);
    found.retain(|words| !words.is_empty());
    found
}

/// `1` for each `$NAME` and `$(..)`.
fn without_variables(word: &str) -> String {
    let mut pieces = word.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = match piece.chars().next() {
            Some('(') => piece.find(')').map(|end| end + 1),
            Some('{') => piece.find('}').map(|end| end + 1),
            _ => piece.find(|c| !is_name(c)),
        };
        text.push('1');
        text.push_str(&piece[end.unwrap_or(piece.len())..]);
    }
    text
}

/// Whether a command of ours begins there: also behind `srun` or `mpiexec -n 2`.
fn is_ours(words: &[String], at: usize) -> bool {
    let is_package = at > 0 && words[at - 1] == "-p";
    (words[at] == "hayase" && !is_package) || (at == 0 && words[at].ends_with("/hayase"))
}

/// What is wrong with the commands of a block.
fn wrong_in_block(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for words in commands(text) {
        let words: Vec<_> = words.into_iter().filter(|word| word != "...").collect();
        for at in (0..words.len()).filter(|&at| is_ours(&words, at)) {
            let typed = words[at..].iter().map(|word| without_variables(word));
            let parsed = Cli::command().try_get_matches_from(typed);
            let error = parsed.err().filter(clap::Error::use_stderr);
            wrong.extend(error.map(|error| format!("{}: {error}", words[at..].join(" "))));
        }
        let inner = words.iter().filter_map(|word| word.find("hayase ").map(|at| &word[at..]));
        wrong.extend(inner.flat_map(wrong_in_sentence));
    }
    wrong
}

/// What is wrong with `hayase VERB --option` as a sentence names it: values may be missing or stand for others.
fn wrong_in_sentence(span: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let words: Vec<_> = span.split_whitespace().skip(1).collect();
    let cli = Cli::command();
    let mut path: Vec<&Command> = vec![&cli];
    for word in words {
        let bare = word.trim_matches(|c: char| "[](),;:\"'".contains(c));
        let command = path[path.len() - 1];
        if bare == "--" {
            break;
        }
        if let Some(name) = bare.strip_prefix("--") {
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let name = &name[..end.unwrap_or(name.len())];
            let has = |command: &&Command| {
                command.get_arguments().any(|arg| arg.get_long() == Some(name))
            };
            if !path.iter().any(has) && !["help", "version"].contains(&name) {
                wrong.push(format!("`{span}`: no option --{name} of {}", command.get_name()));
            }
        } else if command.has_subcommands() && !bare.starts_with('-') && !bare.is_empty() {
            let Some(sub) = bare.split('|').map(|name| command.find_subcommand(name)).next_back()
            else {
                continue;
            };
            match sub {
                Some(sub) => path.push(sub),
                None if bare == "help" => break,
                None if bare.chars().all(|c| c.is_ascii_uppercase() || c == '.') => break,
                None => {
                    wrong.push(format!("`{span}`: no command {bare}"));
                    break;
                }
            }
        }
    }
    wrong
}

#[test]
fn shell_is_split_into_commands() {
    let check = |text: &str, expected: &[&[&str]]| assert_eq!(commands(text), expected, "{text}");
    check("a b  # c\nd 'e f' \"g\"h", &[&["a", "b"], &["d", "e f", "gh"]]);
    check("a \\\n  b && c || d; e | f", &[&["a", "b"], &["c"], &["d"], &["e"], &["f"]]);
    check("a > b 2>&1 c >>d", &[&["a", "c"]]);
    check("kill $(hayase a | b c) d", &[&["kill", "$(hayase a | b c)", "d"]]);
}

#[test]
fn wrong_commands_are_found() {
    assert!(wrong_in_block("hayase up --nodes 3\nhayase exec -- hayase status").is_empty());
    assert_eq!(wrong_in_block("hayase up --nodse 3").len(), 1);
    assert_eq!(wrong_in_block("hayase exec -- hayase statsu").len(), 1);
    assert_eq!(wrong_in_block("sh -c 'hayase statsu'").len(), 1);
    assert!(wrong_in_sentence("hayase stage in|out|verify").is_empty());
    assert!(wrong_in_sentence("hayase flush PATH --verify").is_empty());
    assert_eq!(wrong_in_sentence("hayase up --tire").len(), 1);
}

fn is_reason(reason: &str) -> bool {
    REASONS.iter().any(|(known, _)| *known == reason)
}

/// A reason with a script names one that runs the blocks of that mark, on whatever page they are.
#[test]
fn blocks_with_a_script_are_run_by_it() {
    for (reason, script) in REASONS {
        let Some(script) = script else { continue };
        let text = fs::read_to_string(root().join(script)).unwrap();
        let runs = text.lines().any(|line| {
            line.contains("tests/documents/run.sh")
                && line.split([' ', ';', '"']).any(|word| word == reason)
        });
        assert!(runs, "{script} does not run the blocks `{reason}`");
    }
}

#[test]
fn commands_of_documents_exist() {
    let mut wrong = Vec::new();
    let mut lines = 0;
    for code in pages().iter().flat_map(|page| code(page)) {
        let found = match &code.info {
            None if code.text.starts_with("hayase ") => wrong_in_sentence(&code.text),
            Some(_) if !code.text.lines().any(|line| line.contains("hayase ")) => Vec::new(),
            Some(info) => {
                let (kind, reason) = info.split_once(',').unwrap_or((info, ""));
                match kind {
                    "sh" if reason.is_empty() || is_reason(reason) => {
                        lines += code.text.lines().filter(|line| line.contains("hayase ")).count();
                        wrong_in_block(&code.text)
                    }
                    "sh" => vec![format!("`{reason}` is not one of {REASONS:?}")],
                    "console" => {
                        let typed = code.text.lines().filter_map(|line| line.strip_prefix("$ "));
                        wrong_in_block(&typed.collect::<Vec<_>>().join("\n"))
                    }
                    "text" => Vec::new(),
                    kind => vec![format!("a block with commands is `sh`, not `{kind}`")],
                }
            }
            None => Vec::new(),
        };
        wrong.extend(found.iter().map(|what| format!("{}:{}: {what}", code.page, code.line)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(lines > 80, "only {lines} lines were found");
}

#[test]
fn commands_that_messages_print_exist() {
    let (mut wrong, mut found) = (Vec::new(), 0);
    let own = Path::new(file!()).file_name();
    for source in sources().iter().filter(|source| source.file_name() != own) {
        for (line, span) in printed(source) {
            // `{job}` stands for a word, `{}` and `hayase {name}` for whole commands.
            let text = span.replace(['{', '}'], "");
            let is_whole = text.split_whitespace().nth(1).is_none() || span.starts_with("hayase {");
            found += 1;
            let what = if is_whole { Vec::new() } else { wrong_in_sentence(&text) };
            let place = source.strip_prefix(root()).unwrap_or(source).display();
            wrong.extend(what.iter().map(|what| format!("{place}:{line}: {what}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 80, "only {found} were found");
}
