//! What `qstat -f` says of the time that a job of PBS has left.
//!
//! OpenPBS and PBS Professional tell the limit, the start and what is used; Torque also what remains.
//! What is used is counted by the job's hosts now and then, so it is some minutes old; the start is exact.
//! Source: qstat(1B), pbs_job_attributes(7B) of OpenPBS; qstat of Torque 6.

use super::local::{month, seconds_of};
use crate::moment;

/// Seconds. `now`: seconds of the local clock; `limit`: of the environment (`PBS_WALLTIME` of Torque), where
/// the text names none.
pub(super) fn left(text: &str, limit: Option<u64>, now: i64) -> Option<u64> {
    let value = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.trim().split_once(" = "));
        fields.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
    };
    if let Some(remaining) = value("Walltime.Remaining").and_then(|text| text.parse().ok()) {
        return Some(remaining);
    }
    let limit = value("Resource_List.walltime").and_then(moment::span_of).or(limit)?;
    let begin = value("stime").or_else(|| value("start_time")).and_then(asctime);
    // A clock that was set back tells nothing.
    let since = begin.and_then(|begin| u64::try_from(now - begin).ok());
    let counted = value("resources_used.walltime").map(|text| moment::span_of(text).unwrap_or(0));
    let used = since.max(counted)?;
    Some(limit.saturating_sub(used))
}

/// `Tue Nov 24 09:05:01 2026`, as the C library writes it.
fn asctime(text: &str) -> Option<i64> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let &[_, name, day, clock, year] = fields.as_slice() else { return None };
    seconds_of((year.parse().ok()?, month(name)?, day.parse().ok()?), clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of OpenPBS 20, shortened; fields of several lines begin with a tab.
    const OPENPBS: &str = "Job Id: 4711.pbs\n    Job_Name = run\n    Job_Owner = me@login\n    \
        resources_used.cpupct = 0\n    resources_used.walltime = 00:04:10\n    job_state = R\n    \
        exec_host = n1/0*4+n2/0*4\n    Resource_List.ncpus = 8\n    Resource_List.walltime = \
        01:30:00\n    stime = Tue Nov 24 09:05:01 2026\n    Variable_List = PBS_O_HOME=/home/me,\n\t\
        PBS_O_QUEUE=workq,PBS_O_WORKDIR=/home/me\n    comment = Job run at Tue Nov 24 at 09:05\n";

    fn at(clock: &str) -> i64 {
        seconds_of((2026, 11, 24), clock).unwrap()
    }

    #[test]
    fn what_is_left_is_the_limit_less_the_time_since_the_start() {
        let check = |clock, seconds| assert_eq!(left(OPENPBS, None, at(clock)), seconds, "{clock}");
        check("09:05:01", Some(5400 - 250)); // the hosts have counted more
        check("09:35:01", Some(3600));
        check("10:35:01", Some(0));
        check("23:00:00", Some(0));
        check("09:00:00", Some(5400 - 250));
    }

    #[test]
    fn a_job_without_a_limit_or_a_start_has_no_end() {
        let without = |field: &str| -> String {
            OPENPBS.lines().filter(|line| !line.contains(field)).map(|l| format!("{l}\n")).collect()
        };
        let now = at("09:35:01");
        assert_eq!(left(&without("Resource_List.walltime"), None, now), None);
        assert_eq!(left(&without("Resource_List.walltime"), Some(7200), now), Some(5400));
        assert_eq!(left(&without("stime"), None, now), Some(5400 - 250));
        let neither = without("stime").replace("resources_used.walltime = 00:04:10", "");
        assert_eq!(left(&neither, None, now), None);
        assert_eq!(left("qstat: Unknown Job Id 4711.pbs\n", Some(7200), now), None);
        assert_eq!(left("", None, now), None);
    }

    #[test]
    fn torque_says_what_remains() {
        let text = "Job Id: 12.head\n    resources_used.walltime = 00:00:00\n    \
            Resource_List.walltime = 48:00:00\n    Walltime.Remaining = 172790\n    start_time = \
            Tue Nov 24 09:05:01 2026\n";
        assert_eq!(left(text, None, at("23:00:00")), Some(172_790));
        let older = text.replace("Walltime.Remaining = 172790", "");
        assert_eq!(left(&older, None, at("10:05:01")), Some(47 * 3600));
    }
}
