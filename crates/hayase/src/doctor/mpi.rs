//! MPI that could use the areas.

use std::process::Command;

use super::Check;
use crate::config::Environment;
use crate::system::program;

pub(super) fn checks(environment: &Environment) -> Vec<Check> {
    let Some(mpiexec) = program::find("mpiexec", &environment.path) else {
        return vec![Check::ok("MPI", "no mpiexec on the path; only needed for MPI programs")];
    };
    let told = Command::new(&mpiexec).arg("--version").output();
    let text =
        told.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    vec![Check::ok("MPI", format!("{} ({})", describe(&text), mpiexec.display()))]
}

/// From what `mpiexec --version` prints.
fn describe(text: &str) -> String {
    let number = |mark: &str| {
        let line = text.lines().find(|line| line.contains(mark))?;
        line.split_whitespace().last().map(str::to_owned)
    };
    if text.contains("HYDRA") {
        return format!("MPICH, hydra {}", number("Version:").unwrap_or_default());
    }
    if let Some(version) = number("Open MPI").or_else(|| number("OpenRTE")) {
        return format!("Open MPI {version}");
    }
    "of an unknown kind".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_families_are_read() {
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n";
        assert_eq!(describe(hydra), "MPICH, hydra 4.0.2");
        assert_eq!(describe("mpiexec (OpenRTE) 4.1.4\n"), "Open MPI 4.1.4");
        assert_eq!(describe("something else"), "of an unknown kind");
    }
}
