//! Lists of processors, as people and the kernel write them (`0-3,8`), and staying on them.

use std::fmt;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::advice::{Advice, Advise};

/// Numbers of processors, ascending, each once; at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Processors(Vec<usize>);

/// Not a list of processors.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a number nor a range, for example 0-3")]
pub(crate) struct NoProcessors(String);

/// Some of a list can not be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("processors {missing} cannot be used here: use some of {usable}")]
pub(crate) struct Missing {
    missing: Processors,
    /// As threads that ask for nothing may.
    usable: Processors,
}

impl Advise for Missing {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(None))
    }
}

impl Processors {
    /// Their numbers.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.0
    }

    /// Tries whether a thread can run on each of them. One that the kernel keeps its own work away from (`isolcpus`) can
    /// be used, though no thread runs there without having asked for it.
    ///
    /// # Errors
    /// Which the machine, or the control group of the job, does not have.
    pub(crate) fn require(&self) -> Result<(), Missing> {
        let can_use = |processor: &usize| {
            let mut set = CpuSet::new();
            set.set(*processor);
            sched_setaffinity(None, &set).is_ok()
        };
        // A thread of its own, whose processors nobody minds.
        let missing: Vec<usize> = std::thread::scope(|scope| {
            let tried = || self.0.iter().copied().filter(|one| !can_use(one)).collect();
            scope.spawn(tried).join().expect("no panic in it")
        });
        if missing.is_empty() {
            return Ok(());
        }
        let usable = crate::noise::fwq::allowed().unwrap_or_default().into();
        Err(Missing { missing: missing.into(), usable })
    }

    /// Keeps the calling thread, and all threads and processes that it starts from now on, on them: the kernel's
    /// workers of their rings too.
    ///
    /// # Errors
    /// When the machine, or the control group of the job, has none of them.
    pub(crate) fn stay(&self) -> std::io::Result<()> {
        let mut set = CpuSet::new();
        self.0.iter().for_each(|processor| set.set(*processor));
        Ok(sched_setaffinity(None, &set)?)
    }
}

impl FromStr for Processors {
    type Err = NoProcessors;

    fn from_str(list: &str) -> Result<Self, NoProcessors> {
        let number = |text: &str| text.trim().parse().ok().filter(|n: &usize| *n < CpuSet::MAX_CPU);
        let mut found = Vec::new();
        for range in list.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => found.extend(first..=last),
                _ => return Err(NoProcessors(range.to_owned())),
            }
        }
        Ok(found.into())
    }
}

impl From<Vec<usize>> for Processors {
    fn from(mut numbers: Vec<usize>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }
}

impl TryFrom<String> for Processors {
    type Error = NoProcessors;

    fn try_from(list: String) -> Result<Self, NoProcessors> {
        list.parse()
    }
}

impl From<Processors> for String {
    fn from(processors: Processors) -> Self {
        processors.to_string()
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        while let Some(first) = rest.first() {
            let run = rest.iter().zip(*first..).take_while(|(found, next)| *found == next).count();
            let comma = if rest.len() < self.0.len() { "," } else { "" };
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", first + run - 1)?,
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        let check = |list: &str, numbers: &[usize], again: &str| {
            let found: Processors = list.parse().unwrap();
            assert_eq!((found.numbers(), found.to_string().as_str()), (numbers, again));
        };
        check("0-2,8,1", &[0, 1, 2, 8], "0-2,8");
        check("3", &[3], "3");
        check("5,3,7-8", &[3, 5, 7, 8], "3,5,7-8");
        for wrong in ["", "a", "3-1", "1,,2", "-1", "99999"] {
            assert!(wrong.parse::<Processors>().is_err(), "`{wrong}`");
        }
    }

    #[test]
    fn a_thread_stays_where_it_is_told_or_says_that_it_can_not() {
        std::thread::spawn(|| {
            let all = crate::noise::fwq::allowed().unwrap();
            let first: Processors = all[0].to_string().parse().unwrap();
            first.stay().unwrap();
            assert_eq!(crate::noise::fwq::allowed().unwrap(), [all[0]]);
            let missing = Processors(vec![CpuSet::MAX_CPU - 1]);
            assert!(missing.stay().is_err());
            assert_eq!(first.require(), Ok(()));
            let some = Processors(vec![all[0], CpuSet::MAX_CPU - 2, CpuSet::MAX_CPU - 1]);
            assert_eq!(some.require().unwrap_err().missing.to_string(), "1022-1023");
        })
        .join()
        .unwrap();
    }
}
