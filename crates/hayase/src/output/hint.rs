//! Errors for people: the chain of causes, then the first help in it.

/// `hayase: what: why` and, in a line of its own, what to try.
pub(crate) fn failure(error: &anyhow::Error, help: Option<&str>) -> String {
    let mut text = format!("hayase: {}", chain(error));
    if let Some(help) = help {
        text.push_str(&format!("\n  try: {help}"));
    }
    text
}

/// The causes in one line; a cause that its predecessor has quoted already is left out.
fn chain(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if parts.iter().any(|part| part.contains(&text)) {
            continue;
        }
        // "open the tier" says nothing that "open the tier s3://bucket" does not say.
        if parts.last().is_some_and(|last| text.starts_with(last.as_str())) {
            parts.pop();
        }
        parts.push(text);
    }
    parts.join(": ")
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
    }
}
