//! What the environment says, read once at the start; nothing below reads it again.
//!
//! Here: the variables we know and who we are. Not here: arguments ([`crate::cli`]), the settings
//! of a job that follow from both ([`crate::launch::plan`]).

use std::ffi::OsString;
use std::path::PathBuf;

use rustix::process::{getegid, geteuid};

/// What MPICH's launcher puts between our name and the host; also how we know our own choice again.
pub(crate) const HYDRA_ARGUMENTS: &str = "exec --launcher";

/// The process environment, as far as it means something to us.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// `HAYASE_JOB`: the job that commands mean when `--job` is not given.
    pub(crate) job: Option<OsString>,
    /// Where jobs of this user are registered: `HAYASE_RUNTIME_DIR`, else `/tmp/hayase-<uid>`.
    pub(crate) runtime: PathBuf,
    /// `TMPDIR`: the default storage.
    pub(crate) tmpdir: Option<PathBuf>,
    /// `HAYASE_LOG`: the filter of the log files, as `tracing` writes it.
    pub(crate) log: String,
    /// `NO_COLOR` is set and not empty.
    pub(crate) no_color: bool,
    /// A launcher of MPICH was already chosen (`HYDRA_*`): ours is not put in its place.
    pub(crate) has_hydra: bool,
    /// `PATH`, for programs that are looked for.
    pub(crate) path: OsString,
    /// Effective user.
    pub(crate) uid: u32,
    /// Effective group.
    pub(crate) gid: u32,
    /// Root with `CAP_SYS_ADMIN`: may mount, and make namespaces and loop devices.
    pub(crate) is_privileged: bool,
}

impl Environment {
    /// Looks at the process; never fails: what is not there has a default.
    pub(crate) fn read() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let uid = geteuid().as_raw();
        Self {
            job: variable("HAYASE_JOB"),
            runtime: variable("HAYASE_RUNTIME_DIR")
                .map_or_else(|| PathBuf::from(format!("/tmp/hayase-{uid}")), PathBuf::from),
            tmpdir: variable("TMPDIR").map(PathBuf::from),
            log: std::env::var("HAYASE_LOG").unwrap_or_else(|_| "info".to_owned()),
            no_color: variable("NO_COLOR").is_some(),
            has_hydra: variable("HYDRA_LAUNCHER_EXTRA_ARGS") != Some(HYDRA_ARGUMENTS.into())
                && ["HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE"]
                    .iter()
                    .any(|name| variable(name).is_some()),
            path: variable("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into()),
            uid,
            gid: getegid().as_raw(),
            is_privileged: uid == 0 && has_sys_admin(),
        }
    }
}

/// Bit 21 of the effective capabilities.
fn has_sys_admin() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}
