//! The environment variables that users meet: for `--help`, manual pages and `docs/reference/environment.md`.
//!
//! Here: names and meanings. Not here: reading them ([`super::Environment`], `hayase_mpi`, `hayase_tier`).

/// A variable, or several that belong together.
pub(crate) struct Variable {
    /// Comma-separated.
    pub(crate) names: &'static str,
    /// As Markdown, without a full stop.
    pub(crate) meaning: &'static str,
    /// What `hayase --help` says of it; empty where it leaves it out.
    pub(crate) help: &'static str,
}

/// Read by `hayase`.
pub(crate) const READ: &[Variable] = &[
    Variable {
        names: "HAYASE_JOB",
        meaning: "the job that commands mean when `--job` is not given, by its name or its directory; `hayase exec` and `run` set it for programs",
        help: "name or directory of the job, when --job is not given",
    },
    Variable {
        names: "HAYASE_RUNTIME_DIR",
        meaning: "where a user's jobs are known and commands remember what they found out; by default `/tmp/hayase-<uid>`. It has to belong to the user, with mode 0700",
        help: "where the jobs of a user are registered [default: /tmp/hayase-<uid>]",
    },
    Variable {
        names: "HAYASE_LOG",
        meaning: "what servers, mounts and supervisors log: `error`, `warn`, `info` (the default), `debug`, or targets such as `hayase_server=debug`; ssh does not pass it to other hosts",
        help: "log filter of the daemons, for example debug [default: info]",
    },
    Variable {
        names: "HAYASE_MPIIO_LIBRARY",
        meaning: "the `libhayase_mpiio.so` that `--mpiio` preloads, when it is not next to `hayase`",
        help: "",
    },
    Variable {
        names: "TMPDIR",
        meaning: "where storage lies by default",
        help: "default for --storage",
    },
    Variable {
        names: "NO_COLOR",
        meaning: "no colours, when it is set and not empty",
        help: "no colours, if set and not empty",
    },
];

/// Set for the programs of a job.
pub(crate) const FOR_PROGRAMS: &[Variable] = &[
    Variable {
        names: "HAYASE_SHARED, HAYASE_LOCAL, HAYASE_CACHE",
        meaning: "the directories of the areas; the last one only with a tier",
        help: "",
    },
    Variable { names: "HAYASE_NODE", meaning: "the number of the node, from 0", help: "" },
    Variable { names: "HAYASE_JOB", meaning: "the job directory", help: "" },
    Variable {
        names: "HAYASE_MPIIO_PRELOAD",
        meaning: "what MPI programs need in `LD_PRELOAD`: the path of `libhayase_mpiio.so`, and after it what `LD_PRELOAD` was; absent where the library is not found",
        help: "",
    },
    Variable {
        names: "HAYASE_MARK",
        meaning: "by this mark Hayase knows the programs of a job again; it is for no other use",
        help: "",
    },
];

/// Read by `libhayase_mpiio.so`.
pub(crate) const OF_MPI: &[Variable] = &[
    Variable {
        names: "HAYASE_MPIIO",
        meaning: "`auto`, `on` or `off`: which files are kept as containers",
        help: "",
    },
    Variable { names: "HAYASE_MPIIO_PATHS", meaning: "patterns for `on`", help: "" },
    Variable {
        names: "HAYASE_MPIIO_CONSISTENCY",
        meaning: "`mpi` or `posix`: when others see what was written",
        help: "",
    },
    Variable {
        names: "HAYASE_MPIIO_EXCHANGE",
        meaning: "`auto`, `on` or `off`: whether collective reads exchange",
        help: "",
    },
    Variable {
        names: "HAYASE_MPIIO_TRACE",
        meaning: "`1`: each process prints at its end how often calls were served",
        help: "",
    },
];

/// The lines of `hayase --help`.
pub(crate) fn help() -> String {
    let lines = READ.iter().filter(|variable| !variable.help.is_empty());
    lines.map(|variable| format!("  {:<19} {}\n", variable.names, variable.help)).collect()
}
