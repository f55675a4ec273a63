//! One build of the product: its binary, the libraries and the bench that lie in the same directory, its commit.
//!
//! An ordinary run has one, in the directory of this program. A run with `--against` has two, and measures them in turn.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// Where cargo puts what it builds for release, in a checkout.
const IN_CHECKOUT: &str = "target/release";
const HAYASE: &str = "hayase";
const PROGRAM: &str = "hayase-bench";

/// One build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    /// "this" or "before".
    pub(crate) name: &'static str,
    hayase: PathBuf,
    /// The bench of the same build, which has the client library and the ring of the server linked in.
    program: PathBuf,
}

impl Build {
    /// The product in the directory of `program`, unless `hayase` names another.
    pub(crate) fn this(program: &Path, hayase: Option<PathBuf>) -> anyhow::Result<Self> {
        let hayase = hayase.unwrap_or_else(|| program.with_file_name(HAYASE));
        ensure!(
            hayase.exists(),
            "{} is not there: build it with `cargo build --release -p hayase -p hayase-mpi`",
            hayase.display()
        );
        let (name, hayase, program) = ("this", std::path::absolute(hayase)?, program.to_owned());
        Ok(Self { name, hayase, program })
    }

    /// The build in a directory, or in the release directory of a checkout.
    pub(crate) fn before(directory: &Path) -> anyhow::Result<Self> {
        let places = [directory.to_owned(), directory.join(IN_CHECKOUT)];
        let place = places.iter().find(|place| place.join(HAYASE).is_file());
        let place = place.with_context(|| {
            format!(
                "no build to compare with in {} or its {IN_CHECKOUT}: expected a program `{HAYASE}`, as \
                 `cargo build --release -p hayase -p hayase-mpi` makes it in a checkout of the other commit",
                directory.display()
            )
        })?;
        let place = std::fs::canonicalize(place)?;
        Ok(Self { name: "before", hayase: place.join(HAYASE), program: place.join(PROGRAM) })
    }

    /// The product.
    pub(crate) fn hayase(&self) -> &Path {
        &self.hayase
    }

    /// The bench of this build: for workloads that measure what is linked into them.
    pub(crate) fn linked_program(&self) -> anyhow::Result<&Path> {
        ensure!(
            self.program.exists(),
            "{} is not there, and this group measures what is linked into it: build the bench of the other commit \
             into the same directory",
            self.program.display()
        );
        Ok(&self.program)
    }

    /// The commit of the checkout in which it lies, with `+ changes`; else the version that it says it has.
    pub(crate) fn commit(&self) -> String {
        let directory = self.hayase.parent().unwrap_or(Path::new("."));
        commit_of(directory)
            .or_else(|| said(Command::new(&self.hayase).arg("--version")))
            .unwrap_or_else(|| "unknown".to_owned())
    }
}

/// Of the checkout in which `directory` lies.
pub(crate) fn commit_of(directory: &Path) -> Option<String> {
    let git =
        |arguments: &[&str]| said(Command::new("git").arg("-C").arg(directory).args(arguments));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some();
    Some(if changed { format!("{commit} + changes") } else { commit })
}

/// The output of a command that succeeds and says something.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn a_build_is_a_directory_or_a_checkout() {
        let place = tempfile::tempdir().unwrap();
        let error = Build::before(place.path()).unwrap_err().to_string();
        assert!(error.contains("no build to compare with"), "{error}");
        let release = place.path().join("target/release");
        touch(&release.join("hayase"));
        let of_checkout = Build::before(place.path()).unwrap();
        assert_eq!(of_checkout, Build::before(&release).unwrap());
        assert!(of_checkout.linked_program().is_err());
        touch(&release.join("hayase-bench"));
        assert!(of_checkout.linked_program().is_ok());
        assert_eq!(
            of_checkout.commit(),
            "unknown",
            "no checkout, and no program that says its version"
        );
    }

    #[test]
    fn a_checkout_knows_its_commit() {
        let commit = commit_of(Path::new(env!("CARGO_MANIFEST_DIR")));
        if let Some(commit) = commit {
            let hex = commit.split(' ').next().unwrap_or_default();
            assert!(hex.len() >= 12 && hex.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
        }
    }
}
