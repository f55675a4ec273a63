//! What the environment says, read once at the start; nothing below reads it again.
//!
//! Here: the variables we know and who we are; [`variables`] says what they mean. Not here: arguments ([`crate::cli`]), the settings
//! of a job that follow from both ([`crate::launch::plan`]).

pub(crate) mod variables;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

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
    /// What a batch system told of the allocation that we are in.
    pub(crate) batch: Batch,
    /// `SLURMD_NODENAME`: what Slurm calls this host, in a task of a step.
    pub(crate) slurm_node: Option<String>,
    /// `HAYASE_MPIIO_LIBRARY`: the library that MPI programs preload, where it is not beside us.
    pub(crate) mpiio_library: Option<PathBuf>,
    /// `LD_PRELOAD`: what is preloaded already.
    pub(crate) preload: Option<OsString>,
    /// `PATH`, for programs that are looked for.
    pub(crate) path: OsString,
    /// Effective user.
    pub(crate) uid: u32,
    /// Effective group.
    pub(crate) gid: u32,
    /// Root with `CAP_SYS_ADMIN`: may mount, and make namespaces and loop devices.
    pub(crate) is_privileged: bool,
}

/// The variable that `--endpoint` speaks for; it counts before the others.
const ENDPOINT_VARIABLE: &str = "AWS_ENDPOINT_URL_S3";

/// What `--endpoint` said, once, before anything asks.
static ENDPOINT: OnceLock<String> = OnceLock::new();

/// Which server buckets are on.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EndpointArg {
    /// URL of the S3 server: http[s]://HOST[:PORT] [default: $AWS_ENDPOINT_URL, else AWS]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) endpoint: Option<String>,
}

impl EndpointArg {
    /// From here on it is there, whatever the environment says.
    pub(crate) fn apply(&self) {
        if let Some(url) = &self.endpoint {
            let _ = ENDPOINT.set(url.clone());
        }
    }
}

/// A variable of a client of object stores (`AWS_*`, `HAYASE_S3_*`): which ones count, its library knows.
pub(crate) fn variable(name: &str) -> Option<String> {
    let typed = ENDPOINT.get().filter(|_| name == ENDPOINT_VARIABLE);
    typed.cloned().or_else(|| std::env::var(name).ok())
}

/// The same, where the S3 server of a job is at `endpoint`.
pub(crate) fn variable_at(endpoint: Option<&str>, name: &str) -> Option<String> {
    let told = endpoint.filter(|_| name == ENDPOINT_VARIABLE);
    told.map(str::to_owned).or_else(|| variable(name))
}

/// All variables of clients of object stores and their way out, for workers on other nodes.
pub(crate) fn store_variables() -> std::collections::BTreeMap<String, String> {
    let all = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let is_meant = |name: &str| {
        name.starts_with("AWS_")
            || name.starts_with("HAYASE_S3_")
            || ["https_proxy", "all_proxy", "no_proxy"]
                .iter()
                .any(|it| name.eq_ignore_ascii_case(it))
    };
    let typed = ENDPOINT.get().map(|url| (ENDPOINT_VARIABLE.to_owned(), url.clone()));
    all.filter(|(name, _)| is_meant(name)).chain(typed).collect()
}

impl Environment {
    /// Looks at the process; never fails: what is not there has a default.
    pub(crate) fn read() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let uid = geteuid().as_raw();
        Self {
            job: variable("HAYASE_JOB"),
            runtime: runtime(uid),
            tmpdir: variable("TMPDIR").map(PathBuf::from),
            log: std::env::var("HAYASE_LOG").unwrap_or_else(|_| "info".to_owned()),
            no_color: variable("NO_COLOR").is_some(),
            has_hydra: variable("HYDRA_LAUNCHER_EXTRA_ARGS") != Some(HYDRA_ARGUMENTS.into())
                && ["HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE"]
                    .iter()
                    .any(|name| variable(name).is_some()),
            batch: Batch::read(),
            slurm_node: std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty()),
            mpiio_library: variable("HAYASE_MPIIO_LIBRARY").map(PathBuf::from),
            preload: variable("LD_PRELOAD"),
            path: variable("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into()),
            uid,
            gid: getegid().as_raw(),
            is_privileged: uid == 0 && has_sys_admin(),
        }
    }
}

/// Where this user's jobs, and what commands remember, lie on this machine.
pub(crate) fn runtime(uid: u32) -> PathBuf {
    let typed = std::env::var_os("HAYASE_RUNTIME_DIR").filter(|value| !value.is_empty());
    typed.map_or_else(|| PathBuf::from(format!("/tmp/hayase-{uid}")), PathBuf::from)
}

/// The variables of batch systems that name the hosts of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// `SLURM_JOB_ID` and `SLURM_JOB_NODELIST`, the latter folded into ranges.
    pub(crate) slurm: Option<(String, String)>,
    /// `SLURM_JOB_END_TIME`: seconds since 1970.
    pub(crate) slurm_end: Option<String>,
    /// `PBS_NODEFILE`: a line for each slot.
    pub(crate) pbs: Option<PathBuf>,
    /// `PBS_JOBID`.
    pub(crate) pbs_job: Option<String>,
    /// `PBS_WALLTIME`, of Torque: seconds from the job's start.
    pub(crate) pbs_walltime: Option<String>,
    /// `PJM_O_NODEINF`: a line for each node.
    pub(crate) pjm: Option<PathBuf>,
    /// `PJM_SUBJOBID`, else `PJM_JOBID`.
    pub(crate) pjm_job: Option<String>,
}

impl Batch {
    fn read() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let file = |name| text(name).map(PathBuf::from);
        Self {
            slurm: text("SLURM_JOB_ID").zip(text("SLURM_JOB_NODELIST")),
            slurm_end: text("SLURM_JOB_END_TIME"),
            pbs: file("PBS_NODEFILE"),
            pbs_job: text("PBS_JOBID"),
            pbs_walltime: text("PBS_WALLTIME"),
            pjm: file("PJM_O_NODEINF"),
            pjm_job: text("PJM_SUBJOBID").or_else(|| text("PJM_JOBID")),
        }
    }

    /// This is a job of one of them.
    pub(crate) fn is_some(&self) -> bool {
        self.slurm.is_some() || self.pbs_job.is_some() || self.pjm_job.is_some()
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
