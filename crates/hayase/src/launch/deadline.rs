//! When a job ends: what was typed, else what the batch system says.
//!
//! Sources: sbatch(1) (`SLURM_JOB_END_TIME`, seconds since 1970), squeue(1) (`%L`, the time that is left,
//! for versions of Slurm that do not set it). PBS and PJM set nothing of the kind: their commands are asked
//! ([`pbs`], [`pjm`]), by the clock on the wall ([`local`]).

mod local;
mod pbs;
mod pjm;

use std::process::Command;
use std::time::Duration;

use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::moment::{self, MomentError};
use crate::system::program;

/// Typed where nobody wants to be warned.
const NONE: &str = "none";

/// A controller that is out of reach does not keep a job from starting.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the job has no such deadline.
#[derive(Debug, thiserror::Error)]
#[error("--deadline {typed}")]
pub(crate) struct DeadlineError {
    typed: String,
    source: MomentError,
}

impl Advise for DeadlineError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(None))
    }
}

/// Milliseconds since 1970; `None` when nobody knows.
pub(crate) fn choose(
    typed: Option<&str>,
    environment: &Environment,
) -> Result<Option<u64>, DeadlineError> {
    let now_ms = moment::now_ms();
    match typed {
        Some(NONE) => Ok(None),
        Some(typed) => match moment::parse(typed, now_ms) {
            Ok(at_ms) => Ok(Some(at_ms)),
            Err(source) => Err(DeadlineError { typed: typed.to_owned(), source }),
        },
        None => {
            let found = of_batch(environment, now_ms);
            if found.is_none() && environment.batch.is_some() {
                tracing::warn!(
                    "when this batch job ends is not known: name it with --deadline, to be warned of \
                     what will not be in the tier by then"
                );
            }
            Ok(found)
        }
    }
}

/// What the batch system says.
fn of_batch(environment: &Environment, now_ms: u64) -> Option<u64> {
    let batch = &environment.batch;
    let end = batch.slurm_end.as_deref().and_then(|end| end.parse::<u64>().ok());
    if let Some(end_ms) = end.and_then(|seconds| seconds.checked_mul(1000)) {
        return (end_ms > now_ms).then_some(end_ms);
    }
    let left = if let Some((job, _)) = &batch.slurm {
        let text = told(environment, "squeue", &["--noheader", "--format=%L", "--jobs", job])?;
        squeue_left(text.lines().next()?.trim())
    } else if let Some(job) = &batch.pbs_job {
        let text = told(environment, "qstat", &["-f", job])?;
        let limit = batch.pbs_walltime.as_deref().and_then(moment::span_of);
        pbs::left(&text, limit, local::now(&environment.path)?)
    } else if let Some(job) = &batch.pjm_job {
        pjm::left(&told(environment, "pjstat", &[job])?, job, local::now(&environment.path)?)
    } else {
        None
    };
    let left_ms = left.filter(|seconds| *seconds > 0)?.saturating_mul(1000);
    Some(now_ms.saturating_add(left_ms))
}

/// What a command of the batch system says.
fn told(environment: &Environment, name: &str, arguments: &[&str]) -> Option<String> {
    let mut asking = Command::new(program::find(name, &environment.path)?);
    program::told_within(asking.args(arguments), PATIENCE)
}

/// Seconds of `%L`: `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`; words where there is no limit.
fn squeue_left(text: &str) -> Option<u64> {
    if text.matches(':').count() == 1 {
        return moment::span_of(&format!("0:{text}"));
    }
    if text.contains(':') { moment::span_of(text) } else { None }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Batch;

    #[test]
    fn squeue_writes_three_kinds_of_spans() {
        let check = |text, seconds| assert_eq!(squeue_left(text), seconds, "{text}");
        check("05:09", Some(309));
        check("1:05:09", Some(3909));
        check("2-01:05:09", Some(176_709));
        check("UNLIMITED", None);
        check("INVALID", None);
        check("17", None);
    }

    #[test]
    fn what_was_typed_comes_before_what_the_batch_system_says() {
        let now = moment::now_ms();
        let end = (now / 1000 + 7200).to_string();
        let batch = Batch { slurm_end: Some(end), ..Batch::default() };
        let environment = Environment { batch, path: "/nowhere".into(), ..Environment::read() };
        let chosen = |typed| choose(typed, &environment).unwrap();
        assert_eq!(chosen(None), Some((now / 1000 + 7200) * 1000));
        assert_eq!(chosen(Some("none")), None);
        let typed = chosen(Some("1h")).unwrap();
        assert!((now + 3_600_000..now + 3_700_000).contains(&typed));
        let error = choose(Some("soon"), &environment).unwrap_err();
        assert!(format!("{:#}", anyhow::Error::from(error)).contains("invalid time `soon`"));
        let past = Batch { slurm_end: Some("1000".into()), ..Batch::default() };
        let environment = Environment { batch: past, ..environment };
        assert_eq!(choose(None, &environment).unwrap(), None);
    }

    /// The job of `batch` has 600 s by a program `name` of this text; `None` without that program.
    fn check_asked(batch: Batch, name: &str, text: &str) {
        let top = tempfile::tempdir().unwrap();
        let path = format!("{}:/bin:/usr/bin", top.path().display()).into();
        let environment = Environment { batch, path, ..Environment::read() };
        let program = top.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let now = moment::now_ms();
        let chosen = choose(None, &environment).unwrap().unwrap();
        assert!((now + 590_000..now + 700_000).contains(&chosen), "{chosen}");
        std::fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        assert_eq!(choose(None, &environment).unwrap(), None);
    }

    #[test]
    fn older_slurm_is_asked() {
        let batch = Batch { slurm: Some(("7".into(), "n1".into())), ..Batch::default() };
        check_asked(batch, "squeue", "[ \"$4\" = 7 ] && echo 10:00");
    }

    #[test]
    fn pbs_and_pjm_are_asked() {
        let pbs = Batch { pbs_job: Some("7.head".into()), ..Batch::default() };
        let text = "[ \"$*\" = '-f 7.head' ] && printf '    %s = %s\\n' \
                    Resource_List.walltime 01:10:00 resources_used.walltime 01:00:00";
        check_asked(pbs, "qstat", text);
        let pjm = Batch { pjm_job: Some("7".into()), ..Batch::default() };
        let text = "[ \"$1\" = 7 ] && echo \"7 a NM RUN u $(date '+%m/%d %H:%M:%S') 0000:10:00 1\"";
        check_asked(pjm, "pjstat", text);
    }
}
