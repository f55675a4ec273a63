//! Errors for people: the chain of causes, then the first help in it.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// `hayase: what: why` and, in a line of its own, what to try.
pub(crate) fn failure(error: &anyhow::Error, help: Option<&str>) -> String {
    let mut text = format!("hayase: {}", chain(error));
    if let Some(help) = help {
        text.push_str(&format!("\n  try: {help}"));
    }
    text
}

/// Commands that people type with the name of a job as an argument.
const OF_A_JOB: [&str; 4] = ["down", "status", "top", "report"];

/// Where an argument of these is not expected, it was probably a job: says how one is named.
pub(crate) fn name_the_job(error: &mut clap::Error) {
    let said = error.to_string();
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) if !argument.starts_with('-') => argument,
        _ => return,
    };
    let of_a_job = |name: &str| said.contains(&format!("Usage: hayase {name} "));
    if error.kind() == ErrorKind::UnknownArgument && OF_A_JOB.iter().any(|name| of_a_job(name)) {
        let tip = format!("to name a job, use '--job {argument}'").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

/// `--shared -1`: after an option, what begins with a minus and a digit was meant as its value, and what the option says of
/// that is what is wrong.
pub(crate) fn negative_value(
    error: clap::Error,
    command: Command,
    typed: impl Iterator<Item = OsString>,
) -> clap::Error {
    let Some(joined) = with_negative_values_joined(typed) else { return error };
    match command.try_get_matches_from(joined) {
        Err(refused)
            if matches!(refused.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) =>
        {
            refused
        }
        _ => error,
    }
}

/// As `--shared=-1`; `None` where there is nothing of that form before `--`.
fn with_negative_values_joined(typed: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let is_negative = |word: &str| {
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_option = |word: &str| word.len() > 2 && word.starts_with("--") && !word.contains('=');
    let (mut joined, mut found, mut is_ours) = (Vec::<OsString>::new(), false, true);
    for word in typed {
        is_ours &= word != "--";
        let last = joined.last_mut().filter(|_| is_ours && word.to_str().is_some_and(is_negative));
        match last.filter(|last| last.to_str().is_some_and(is_option)) {
            Some(option) => {
                option.push("=");
                option.push(&word);
                found = true;
            }
            None => joined.push(word),
        }
    }
    found.then_some(joined)
}

/// Options that need another one, and how that is written.
const NEEDS: [(&str, &str); 6] = [
    ("--deadline", "--tier s3://data/run7"),
    ("--flush-open", "--tier s3://data/run7"),
    ("--fsync", "--tier s3://data/run7"),
    ("--max-delete", "--delete"),
    ("--move-interrupts", "--system-cores 0-1"),
    ("--no-namespaces", "--nodes 2"),
];

/// Says which option needs what is missing.
pub(crate) fn name_the_need(error: &mut clap::Error, typed: impl Iterator<Item = String>) {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return;
    }
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.clone(),
        _ => return,
    };
    let is_missing = |needed: &str| {
        let name = needed.split(' ').next();
        missing.iter().any(|missing| missing.split(' ').next() == name)
    };
    let typed: Vec<String> =
        typed.map(|word| word.split('=').next().unwrap_or_default().to_owned()).collect();
    let needy = NEEDS.iter().filter(|(option, _)| typed.iter().any(|word| word == option));
    let tips: Vec<_> = needy
        .filter(|(_, needed)| is_missing(needed))
        .map(|(option, needed)| {
            format!("add {needed}, which {option} needs, or omit {option}").into()
        })
        .collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// Values by the names that help texts have for them.
const EXAMPLES: [(&str, &str); 4] =
    [("N", "4"), ("SIZE", "64MiB"), ("SECONDS", "60"), ("DIR", "/scratch")];

/// An option without its value: says what one looks like.
pub(crate) fn name_a_value(error: &mut clap::Error) {
    let has_none = match error.get(ContextKind::InvalidValue) {
        None => true,
        Some(ContextValue::String(value)) => value.is_empty(),
        Some(_) => false,
    };
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if has_none => option.clone(),
        _ => return,
    };
    let Some((name, value)) = option.split_once(' ') else { return };
    let value = value.trim_matches(['<', '>', '[', ']']);
    let example = EXAMPLES.iter().find(|(of, _)| *of == value);
    if error.kind() == ErrorKind::InvalidValue
        && let Some((_, example)) = example
    {
        let tip = format!("for example '{name} {example}'").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

/// The causes in one line; a cause that its predecessor has quoted already is left out.
fn chain(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if parts.iter().any(|part| part.contains(&text)) {
            continue;
        }
        // "open the tier" says nothing that "open s3://bucket" does not say.
        if parts.last().is_some_and(|last| text.starts_with(last.as_str()) || repeats(last, &text))
        {
            parts.pop();
        }
        parts.push(text);
    }
    parts.join(": ")
}

/// `before` is the action of `text`, on the tier in general.
fn repeats(before: &str, text: &str) -> bool {
    before.strip_suffix("the tier").is_some_and(|action| text.starts_with(action))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;
    use crate::commands::error_types::advice;
    use crate::job::JobError;

    fn refused(line: &str) -> clap::Error {
        let words: Vec<_> =
            ["hayase"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
        let error = Cli::command().try_get_matches_from(&words).unwrap_err();
        let mut error = negative_value(error, Cli::command(), words.into_iter());
        name_the_need(&mut error, line.split(' ').map(str::to_owned));
        name_a_value(&mut error);
        error
    }

    #[test]
    fn what_follows_an_option_is_refused_as_its_value() {
        for (line, expected) in [
            ("up --shared -1", "invalid value '-1' for '--shared <SIZE>'"),
            ("up --local -5M", "invalid value '-5M' for '--local <SIZE>'"),
            ("up --nodes -1 --json", "invalid value '-1' for '--nodes <N>'"),
            ("up -1", "unexpected argument '-1'"),
            ("up --json -1", "unexpected argument '-1'"),
        ] {
            let said = refused(line).to_string();
            assert!(said.contains(expected), "{line}: {said}");
        }
        let joined = |line: &str| with_negative_values_joined(line.split(' ').map(OsString::from));
        assert_eq!(joined("exec -- sort --key -2"), None);
        assert_eq!(joined("up --shared=1G -2"), None);
    }

    /// The table has what the options themselves say.
    #[test]
    fn each_option_that_needs_another_one_says_so() {
        let lines = [
            "up --deadline 90m",
            "up --flush-open 5",
            "up --fsync tier",
            "stage in a b --max-delete 3",
            "up --move-interrupts",
            "up --no-namespaces",
        ];
        for ((option, needed), line) in NEEDS.iter().zip(lines) {
            let said = refused(line).to_string();
            let tip = format!("tip: add {needed}, which {option} needs, or omit {option}");
            assert!(line.contains(option) && said.contains(&tip), "{line}: {said}");
        }
        assert!(!refused("evict").to_string().contains("tip:"));
    }

    #[test]
    fn an_option_without_its_value_has_an_example() {
        let said = refused("up --shared").to_string();
        assert!(said.contains("tip: for example '--shared 64MiB'"), "{said}");
        assert!(!refused("up --shared x").to_string().contains("tip:"));
        assert!(!refused("up --fsync").to_string().contains("tip: for example"));
    }

    #[test]
    fn causes_come_once_and_help_last() {
        let error = anyhow::Error::from(JobError::NoneRunning).context("outer");
        let help = advice(&error).help;
        assert_eq!(
            failure(&error, help.as_deref()),
            "hayase: outer: no job of this user is running here\n  \
             try: start one with `hayase up` or `hayase run -- CMD`"
        );
        let error = anyhow::anyhow!("inner").context("outer: inner");
        assert_eq!(failure(&error, None), "hayase: outer: inner");
        let error = anyhow::anyhow!("open x: refused").context("open");
        assert_eq!(failure(&error, None), "hayase: open x: refused");
        let error = anyhow::anyhow!("open s3://x/: refused").context("open the tier");
        assert_eq!(failure(&error, None), "hayase: open s3://x/: refused");
        let error = anyhow::anyhow!("no such bucket").context("open the tier");
        assert_eq!(failure(&error, None), "hayase: open the tier: no such bucket");
    }
}
