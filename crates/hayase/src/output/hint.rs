//! Errors for people: the chain of causes, then the first help in it.

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
    use super::*;
    use crate::commands::error_types::advice;
    use crate::job::JobError;

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
