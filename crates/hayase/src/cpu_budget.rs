//! How much processor time the daemons of a node may take together: `up --cpu-budget`.
//!
//! Here: the amount, as people write it. Room: [`group`], the control group that keeps them to it.

pub(crate) mod group;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An amount of processor time in each moment, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum CpuBudget {
    /// So many processors; half a one is 500.
    Cores(u32),
    /// So much of all processors that the machine has: 100,000 are all of them.
    Percent(u32),
}

/// No amount of processor time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a number of processors of at least {CORES_MIN}, for example 0.5, or a share of all processors, for example 10%"
)]
pub(crate) struct NoBudget(String);

/// The kernel deals out no less.
const CORES_MIN: f64 = 0.02;

/// More processors than any machine has.
const CORES_MAX: f64 = 65_536.0;

impl CpuBudget {
    /// In processors of a machine that has so many.
    pub(crate) fn cores(self, processors: usize) -> f64 {
        match self {
            Self::Cores(thousandths) => f64::from(thousandths) / 1e3,
            Self::Percent(thousandths) => {
                (f64::from(thousandths) / 1e5 * processors as f64).max(CORES_MIN)
            }
        }
    }
}

impl FromStr for CpuBudget {
    type Err = NoBudget;

    fn from_str(text: &str) -> Result<Self, NoBudget> {
        let thousandths = |text: &str, least: f64, most: f64| {
            let number: Option<f64> = text.parse().ok();
            let number = number.filter(|number| (least..=most).contains(number));
            number.map(|number| (number * 1e3).round() as u32)
        };
        let found = match text.strip_suffix('%') {
            Some(percent) => thousandths(percent, 1e-3, 100.0).map(Self::Percent),
            None => thousandths(text, CORES_MIN, CORES_MAX).map(Self::Cores),
        };
        found.ok_or_else(|| NoBudget(text.to_owned()))
    }
}

impl TryFrom<String> for CpuBudget {
    type Error = NoBudget;

    fn try_from(text: String) -> Result<Self, NoBudget> {
        text.parse()
    }
}

impl From<CpuBudget> for String {
    fn from(budget: CpuBudget) -> Self {
        budget.to_string()
    }
}

impl fmt::Display for CpuBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores(thousandths) => write!(f, "{}", f64::from(*thousandths) / 1e3),
            Self::Percent(thousandths) => write!(f, "{}%", f64::from(*thousandths) / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_written() {
        let check = |text: &str, cores: f64| {
            let budget: CpuBudget = text.parse().unwrap();
            assert!((budget.cores(48) - cores).abs() < 1e-9, "{text}: {}", budget.cores(48));
            assert_eq!(budget.to_string(), text);
        };
        check("1", 1.0);
        check("0.5", 0.5);
        check("25%", 12.0);
        check("0.01%", CORES_MIN);
        for wrong in ["", "x", "0", "-1", "0.001", "101%", "0%", "%", "inf", "NaN"] {
            assert!(wrong.parse::<CpuBudget>().is_err(), "`{wrong}`");
        }
    }
}
