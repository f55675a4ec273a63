//! A launcher of MPI told to preload `libhayase_mpiio.so` into its ranks, and into nothing else.
//!
//! Here: which launcher it is, which option says so. Not here: what the library does (`hayase_mpi`).
//! A variable that were set for the launcher itself would reach its daemons and helpers too.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::system::program;

/// The library, as it is built and installed.
const LIBRARY: &str = "libhayase_mpiio.so";

/// For scripts: the value of `LD_PRELOAD` for MPI programs.
pub(crate) const PRELOAD_VARIABLE: &str = "HAYASE_MPIIO_PRELOAD";

/// Where it is looked for, from the directory of this program.
const PLACES: [&str; 3] = [".", "../lib/hayase", "../lib"];

/// Why a program can not be started so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreloadError {
    /// Not one of those whose options are known.
    #[error("--mpiio: {} is not a known MPI launcher", .program.display())]
    UnknownLauncher {
        /// As it was typed.
        program: OsString,
        /// What is to be preloaded.
        library: PathBuf,
    },
    /// Ours would be lost beside it.
    #[error("--mpiio: srun already has an --export option")]
    HasExport {
        /// What is to be preloaded.
        library: PathBuf,
    },
    /// It is not where it is installed.
    #[error(
        "--mpiio: {LIBRARY} is not in the directory of this program, in ../lib/hayase or in ../lib"
    )]
    NoLibrary,
}

impl PreloadError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::UnknownLauncher { library, .. } => format!(
                "omit --mpiio, and put `env LD_PRELOAD={}` before the MPI program; scripts find the path in {PRELOAD_VARIABLE}",
                library.display()
            ),
            Self::HasExport { library } => {
                format!("omit --mpiio and add LD_PRELOAD={} to --export", library.display())
            }
            Self::NoLibrary => {
                "build it (`cargo build --release -p hayase-mpi`), or name it in HAYASE_MPIIO_LIBRARY"
                    .to_owned()
            }
        }
    }
}

impl Advise for PreloadError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::usage(Some(self.help())))
    }
}

/// Launchers by the options that they understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    /// MPICH, Intel MPI, MVAPICH.
    Hydra,
    /// Open MPI, all versions.
    OpenMpi,
    /// `srun`.
    Slurm,
}

/// The same command, whose ranks preload the library.
pub(crate) fn preloaded(
    command: &[OsString],
    environment: &Environment,
) -> Result<Vec<OsString>, PreloadError> {
    let library = library(environment).ok_or(PreloadError::NoLibrary)?;
    let (program, _) = command.split_first().expect("clap requires one");
    let unknown =
        || PreloadError::UnknownLauncher { program: program.clone(), library: library.clone() };
    let launcher = launcher(program, environment).ok_or_else(unknown)?;
    if launcher == Launcher::Slurm && command.iter().any(is_export) {
        return Err(PreloadError::HasExport { library });
    }
    Ok(with_preload(launcher, command, &with_others(library, environment)))
}

/// What scripts give to the launchers in them as `LD_PRELOAD`; `None` where the library is not found.
pub(crate) fn value(environment: &Environment) -> Option<OsString> {
    library(environment).map(|library| with_others(library, environment))
}

fn with_others(library: PathBuf, environment: &Environment) -> OsString {
    let mut value = library.into_os_string();
    if let Some(others) = &environment.preload {
        value.push(":");
        value.push(others);
    }
    value
}

fn library(environment: &Environment) -> Option<PathBuf> {
    if let Some(library) = &environment.mpiio_library {
        return std::path::absolute(library).ok().filter(|library| library.is_file());
    }
    let this = std::env::current_exe().ok()?;
    let beside = this.parent()?;
    PLACES
        .iter()
        .map(|place| beside.join(place).join(LIBRARY))
        .find_map(|library| library.canonicalize().ok())
}

/// By its name and by what it says of itself.
fn launcher(program: &OsStr, environment: &Environment) -> Option<Launcher> {
    let name = Path::new(program).file_name()?.to_string_lossy().into_owned();
    if name == "srun" {
        return Some(Launcher::Slurm);
    }
    if !["mpiexec", "mpirun", "orterun", "prterun"].iter().any(|known| name.starts_with(known)) {
        return None;
    }
    let found = match Path::new(program).components().count() {
        1 => program::find(&name, &environment.path)?,
        _ => PathBuf::from(program),
    };
    let told = Command::new(found).arg("--version").output().ok()?;
    kind_of(&String::from_utf8_lossy(&told.stdout))
}

/// From what `mpiexec --version` prints.
fn kind_of(text: &str) -> Option<Launcher> {
    let says = |mark: &str| text.contains(mark);
    if ["HYDRA", "Intel(R) MPI"].iter().any(|mark| says(mark)) {
        return Some(Launcher::Hydra);
    }
    let is_open = ["Open MPI", "OpenRTE", "PRRTE", "prterun"].iter().any(|mark| says(mark));
    is_open.then_some(Launcher::OpenMpi)
}

fn is_export(word: &OsString) -> bool {
    let word = word.to_string_lossy();
    word == "--export" || word.starts_with("--export=")
}

fn with_preload(launcher: Launcher, command: &[OsString], value: &OsStr) -> Vec<OsString> {
    let variable = || {
        let mut variable = OsString::from("LD_PRELOAD=");
        variable.push(value);
        variable
    };
    let options: Vec<OsString> = match launcher {
        Launcher::Hydra => vec!["-genv".into(), "LD_PRELOAD".into(), value.to_owned()],
        Launcher::OpenMpi => vec!["-x".into(), variable()],
        Launcher::Slurm => {
            let mut export = OsString::from("--export=ALL,");
            export.push(variable());
            vec![export]
        }
    };
    let mut words = Vec::with_capacity(command.len() + options.len());
    for (at, word) in command.iter().enumerate() {
        words.push(word.clone());
        // Open MPI's option is for one of the programs that a colon separates.
        if at == 0 || (launcher == Launcher::OpenMpi && word == ":") {
            words.extend(options.iter().cloned());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_what_they_say() {
        let check = |text: &str, expected| assert_eq!(kind_of(text), expected, "{text}");
        check("HYDRA build details:\n    Version:  4.0.2\n", Some(Launcher::Hydra));
        check("Intel(R) MPI Library for Linux* OS, Version 2021.13\n", Some(Launcher::Hydra));
        check("mpiexec (OpenRTE) 4.1.4\n", Some(Launcher::OpenMpi));
        check("mpiexec (Open MPI) 5.0.8\n", Some(Launcher::OpenMpi));
        check("some other launcher 1.0\n", None);
    }

    #[test]
    fn the_preload_is_said_as_each_launcher_wants_it() {
        let check = |launcher, command: &str, expected: &str| {
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            let words = with_preload(launcher, &words, OsStr::new("/l.so"));
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(words.join(" "), expected);
        };
        check(Launcher::Hydra, "mpiexec -n 2 a b", "mpiexec -genv LD_PRELOAD /l.so -n 2 a b");
        check(Launcher::OpenMpi, "mpirun -n 2 a", "mpirun -x LD_PRELOAD=/l.so -n 2 a");
        check(
            Launcher::OpenMpi,
            "mpirun a : b",
            "mpirun -x LD_PRELOAD=/l.so a : -x LD_PRELOAD=/l.so b",
        );
        check(Launcher::Slurm, "srun -n 2 a", "srun --export=ALL,LD_PRELOAD=/l.so -n 2 a");
        assert!(is_export(&"--export=NONE".into()) && !is_export(&"--exports".into()));
    }
}
