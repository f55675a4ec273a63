//! What lies in a job directory. All nodes of a job see the same one.
//!
//! Here: names of the files, reading and writing those that belong to the binary: `job.json`,
//! `secret`, `node-<i>/supervisor.json`. Not here: `members.d`, `members.json` (`hayase_wire`).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hayase_wire::{Secret, SecretError};
use serde::{Deserialize, Serialize};

use super::held::Held;
use super::{JobError, SETTINGS_FORMAT, Settings, trust};
use crate::kept_file::{self, KeptFileError};
use crate::process::{ProcessId, are_hidden, is_this_boot};

/// A job directory, by its absolute path.
///
/// From when its settings were read it is held: what is read and removed then is in the directory that was looked at, even
/// if another user has put something else in its path meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct JobDir {
    path: PathBuf,
    held: OnceLock<Held>,
}

/// What a supervisor tells of itself: `node-<i>/supervisor.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SupervisorRecord {
    /// Which node it keeps.
    pub(crate) node: u16,
    /// The process whose namespaces are the node's.
    pub(crate) process: ProcessId,
    /// The boot in which that process number means something.
    pub(crate) boot_id: String,
    /// The same of its [PID namespace](crate::process::pid_namespace); empty where that is not known.
    #[serde(default)]
    pub(crate) pid_namespace: String,
    /// Host name on the node.
    pub(crate) host: String,
    /// Its address.
    pub(crate) address: String,
    /// `net`, `mnt` and `uts` as the kernel names them, when they are the node's own.
    pub(crate) namespaces: Vec<String>,
}

/// `node-<i>/made.json`.
#[derive(Serialize, Deserialize)]
struct Made {
    made: Vec<PathBuf>,
}

/// `node-<i>/control-group`.
#[derive(Serialize, Deserialize)]
struct Group {
    group: PathBuf,
}

impl JobDir {
    /// Takes the path as it is; whether a job lies there is seen by [`JobDir::settings`].
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), held: OnceLock::new() }
    }

    /// The job directory of this user to which `path` leads, held from here on; no link of another user leads there. None
    /// where no directory is.
    pub(crate) fn find(path: &Path) -> Result<Option<Self>, JobError> {
        let found = trust::find_own(path)?;
        Ok(found.map(|(path, held)| Self { path, held: OnceLock::from(held) }))
    }

    /// Makes the directory and those of its nodes, readable by the owner only.
    pub(crate) fn create(&self, nodes: u16) -> Result<(), JobError> {
        let make = |path: &Path| {
            fs::DirBuilder::new().mode(0o700).create(path).map_err(JobError::io("make", path))
        };
        make(&self.path)?;
        (0..nodes).try_for_each(|node| make(self.node(node).path()))
    }

    /// Makes the directory of a node in a job directory that its host shares with the launcher.
    pub(crate) fn create_node(&self, node: u16) -> Result<(), JobError> {
        let own = self.node(node);
        let made = fs::DirBuilder::new().mode(0o700).create(own.path());
        made.map_err(JobError::io("make", own.path()))
    }

    /// Makes the directory for the one node of this host, where the launcher's can not be seen.
    pub(crate) fn create_private(&self, node: u16) -> Result<(), JobError> {
        self.create(0)?;
        self.create_node(node)?;
        let link = self.own_node();
        std::os::unix::fs::symlink(format!("node-{node}"), link.path())
            .map_err(JobError::io("make", link.path()))?;
        write_atomically(&self.private_mark(), b"")
    }

    /// Whether it is the copy of a job directory that this host can not see.
    pub(crate) fn is_private(&self) -> bool {
        self.private_mark().exists()
    }

    /// Notes that the nodes live without the launcher, on whatever hosts they are.
    pub(crate) fn mark_kept(&self) -> Result<(), JobError> {
        write_atomically(&self.kept_mark(), b"")
    }

    /// Whether they do.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept_mark().exists()
    }

    fn kept_mark(&self) -> PathBuf {
        self.path.join("kept")
    }

    fn private_mark(&self) -> PathBuf {
        self.path.join("private")
    }

    /// The directory itself, once its settings were read.
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.get()
    }

    /// Its absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lines for `/etc/hosts` inside simulated nodes.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.path.join("hosts")
    }

    /// Host names, one in a line, for launchers of MPI.
    pub(crate) fn hostfile(&self) -> PathBuf {
        self.path.join("hostfile")
    }

    /// What belongs to one node.
    pub(crate) fn node(&self, node: u16) -> NodeDir {
        let path = self.path.join(format!("node-{node}"));
        NodeDir { path, held: self.held.get().cloned() }
    }

    /// The same on every node: the node's own directory. An empty directory on which each simulated node
    /// with namespaces sees its own; a link when the job has one node. Missing on loopback nodes.
    pub(crate) fn own_node(&self) -> NodeDir {
        // Not by the held directory: what a node has mounted there is seen by its path.
        NodeDir { path: self.path.join("self"), held: None }
    }

    /// The file of its settings.
    pub(super) fn settings_file(&self) -> PathBuf {
        self.path.join("job.json")
    }

    fn secret_file(&self) -> PathBuf {
        self.path.join("secret")
    }

    /// Reads `job.json`, or its copy; what another user could have written is refused before anything is read.
    pub(crate) fn settings(&self) -> Result<Settings, JobError> {
        let not_a_job = || JobError::NotAJob { path: self.path.clone(), from_environment: false };
        // What was not there a moment ago may be somebody else's now.
        let held = match self.held.get() {
            Some(held) => held.clone(),
            None => trust::expect_own(&self.path)?.ok_or_else(not_a_job)?,
        };
        let held = self.held.get_or_init(|| held);
        let open = |path: &Path| open_in(Some(held), &self.path, path);
        let found: Option<Settings> = kept_file::read_either_by(&self.settings_file(), open)?;
        let settings = found.ok_or_else(not_a_job)?;
        if settings.format != SETTINGS_FORMAT {
            let why =
                format!("it has format {}, this program reads {SETTINGS_FORMAT}", settings.format);
            return Err(JobError::Corrupt { path: self.path.clone(), why });
        }
        Ok(settings)
    }

    /// Opens a file below it to read.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        open_in(self.held.get(), &self.path, path)
    }

    /// Writes `job.json` and its copy; durable when it returns.
    pub(crate) fn write_settings(&self, settings: &Settings) -> Result<(), JobError> {
        Ok(kept_file::write_twice(&self.settings_file(), settings)?)
    }

    /// Draws the job's secret; it is never in an argument or in the environment.
    pub(crate) fn write_secret(&self) -> Result<(), SecretError> {
        Secret::generate()?.write(&self.secret_file())
    }

    /// Keeps the secret that the launcher drew.
    pub(crate) fn write_given_secret(&self, secret: &Secret) -> Result<(), SecretError> {
        secret.write(&self.secret_file())
    }

    /// The job's secret.
    pub(crate) fn secret(&self) -> Result<Secret, SecretError> {
        Secret::read(&self.secret_file())
    }
}

/// Opens a file below the directory `top` to read: in `held`, where that directory is.
fn open_in(held: Option<&Held>, top: &Path, path: &Path) -> io::Result<File> {
    match (held, path.strip_prefix(top)) {
        (Some(held), Ok(below)) => held.open_file(below),
        _ => File::open(path),
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], JobError> {
    let mut bytes = [0; N];
    let path = "/dev/urandom";
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(JobError::io("read", path))?;
    Ok(bytes)
}

/// `node-<i>` in a job directory.
#[derive(Clone, Debug)]
pub(crate) struct NodeDir {
    path: PathBuf,
    /// The job directory, where that is held.
    held: Option<Held>,
}

impl NodeDir {
    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        open_in(self.held.as_ref(), self.path.parent().unwrap_or(&self.path), path)
    }

    /// Removes it with all that is in it; fine when it is not there.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match (&self.held, self.path.file_name()) {
            (Some(held), Some(name)) => held.remove_all(name),
            // This process has made the job directory, and nobody else has looked at it yet.
            _ => match fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }

    /// Where processes of the node reach its server.
    pub(crate) fn server_socket(&self) -> PathBuf {
        self.path.join("server.sock")
    }

    /// What the server of a node without storage must remember: how often it was started, who is lost.
    pub(crate) fn server_state(&self) -> PathBuf {
        self.path.join("server")
    }

    /// Where commands reach its supervisor.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Log of `supervisor`, `serve` or `serve-mount`.
    pub(crate) fn log(&self, of: &str) -> PathBuf {
        self.path.join(format!("{of}.log"))
    }

    fn record_file(&self) -> PathBuf {
        self.path.join("supervisor.json")
    }

    /// What the supervisor wrote when it began; `None` before that.
    ///
    /// # Errors
    /// When neither copy can be read, or it was written in another PID namespace of this boot: the supervisor may run.
    pub(crate) fn record(&self) -> Result<Option<SupervisorRecord>, KeptFileError> {
        let open = |path: &Path| self.open(path);
        let record: Option<SupervisorRecord> =
            kept_file::read_either_by(&self.record_file(), open)?;
        let is_hidden = |record: &SupervisorRecord| {
            is_this_boot(&record.boot_id) && are_hidden(&record.pid_namespace)
        };
        match record {
            Some(record) if is_hidden(&record) => {
                Err(KeptFileError::OtherProcesses { path: self.record_file() })
            }
            record => Ok(record),
        }
    }

    /// Written once, by the supervisor, with a copy.
    pub(crate) fn write_record(&self, record: &SupervisorRecord) -> Result<(), JobError> {
        Ok(kept_file::write_twice(&self.record_file(), record)?)
    }

    fn made_file(&self) -> PathBuf {
        self.path.join("made.json")
    }

    /// Directories, and the entry in the registry, that were made on this host for the node, deepest last. None where that
    /// can not be read: they stay.
    pub(crate) fn made(&self) -> Vec<PathBuf> {
        let read = kept_file::read_by::<Made>(&self.made_file(), |path| self.open(path));
        let made = read.inspect_err(|error| tracing::warn!("what was made stays: {error}"));
        made.ok().flatten().map(|made| made.made).unwrap_or_default()
    }

    /// Notes them.
    pub(crate) fn write_made(&self, made: &[PathBuf]) -> Result<(), JobError> {
        Ok(kept_file::write(&self.made_file(), &Made { made: made.to_vec() })?)
    }

    fn group_file(&self) -> PathBuf {
        self.path.join("control-group")
    }

    /// The control group of the node's daemons, if one was made for them. None where that can not be read: it stays.
    pub(crate) fn group(&self) -> Option<PathBuf> {
        let read = kept_file::read_by::<Group>(&self.group_file(), |path| self.open(path));
        let group = read.inspect_err(|error| tracing::warn!("the control group stays: {error}"));
        group.ok().flatten().map(|group| group.group)
    }

    /// Notes it.
    pub(crate) fn write_group(&self, group: &Path) -> Result<(), JobError> {
        Ok(kept_file::write(&self.group_file(), &Group { group: group.to_owned() })?)
    }

    /// The last `count` lines of a log, bounded also in bytes.
    pub(crate) fn last_lines(&self, of: &str, count: usize) -> Vec<String> {
        last_lines(&self.log(of), count)
    }
}

/// The last `count` lines of a file, bounded also in bytes; none when it can not be read.
pub(crate) fn last_lines(path: &Path, count: usize) -> Vec<String> {
    const TAIL_BYTES: u64 = 16 << 10;
    let read = || -> io::Result<Vec<u8>> {
        use std::io::{Seek, SeekFrom};
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

/// Writes a file that is there whole or not at all, for the owner's eyes only.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), JobError> {
    let temporary = path.with_extension("new");
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        fs::rename(&temporary, path)
    };
    write().map_err(JobError::io("write", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::job::{Kind, settings::tests::sample};

    #[test]
    fn settings_and_secret_are_read_back_and_private() {
        let top = tempfile::tempdir().unwrap();
        let dir = JobDir::new(top.path().join("j"));
        dir.create(2).unwrap();
        let settings = sample(Kind::ThisMachine, 1);
        dir.write_settings(&settings).unwrap();
        assert_eq!(dir.settings().unwrap(), settings);
        dir.write_secret().unwrap();
        assert_eq!(dir.secret().unwrap().as_bytes(), dir.secret().unwrap().as_bytes());
        assert!(dir.write_secret().is_err(), "a secret is never replaced");
        for path in [dir.settings_file(), dir.secret_file(), dir.path().to_owned()] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{path:?}");
        }
    }

    /// Another directory is in its place after its settings were read.
    #[test]
    fn a_job_that_was_read_is_held_whatever_takes_its_place() {
        let top = tempfile::tempdir().unwrap();
        let (own, others) = (top.path().join("own"), top.path().join("others"));
        let record = |node| SupervisorRecord {
            node,
            process: ProcessId { pid: 1, start: 1 },
            boot_id: String::new(),
            pid_namespace: String::new(),
            host: String::new(),
            address: String::new(),
            namespaces: Vec::new(),
        };
        for (path, node) in [(&own, 0), (&others, 1)] {
            let dir = JobDir::new(path);
            dir.create(1).unwrap();
            dir.write_settings(&sample(Kind::ThisMachine, 1)).unwrap();
            dir.node(0).write_record(&record(node)).unwrap();
            dir.node(0).write_made(std::slice::from_ref(path)).unwrap();
        }
        let dir = JobDir::new(&own);
        dir.settings().unwrap();
        let moved = top.path().join("moved");
        fs::rename(&own, &moved).unwrap();
        std::os::unix::fs::symlink(&others, &own).unwrap();
        assert_eq!(dir.node(0).record().unwrap(), Some(record(0)));
        assert_eq!(dir.node(0).made(), std::slice::from_ref(&own));
        dir.settings().unwrap();
        dir.node(0).remove().unwrap();
        assert!(!moved.join("node-0").exists() && others.join("node-0").exists());
        // What has its name now is not it, and stays.
        dir.remove();
        assert!(own.is_symlink() && others.join("job.json").exists());
        fs::remove_file(&own).unwrap();
        fs::rename(&others, &own).unwrap();
        dir.remove();
        assert!(own.join("job.json").exists());
        fs::rename(&own, &others).unwrap();
        fs::rename(&moved, &own).unwrap();
        dir.remove();
        assert!(!own.exists() && others.exists());
    }

    #[test]
    fn a_directory_without_settings_is_no_job() {
        let top = tempfile::tempdir().unwrap();
        let dir = JobDir::new(top.path());
        assert!(matches!(dir.settings(), Err(JobError::NotAJob { .. })));
        fs::write(top.path().join("job.json"), "{").unwrap();
        assert!(matches!(dir.settings(), Err(JobError::File(KeptFileError::Damaged { .. }))));
        let mut settings = sample(Kind::ThisMachine, 1);
        settings.format += 1;
        dir.write_settings(&settings).unwrap();
        assert!(dir.settings().unwrap_err().to_string().contains("has format 2"));
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        let top = tempfile::tempdir().unwrap();
        let dir = JobDir::new(top.path());
        fs::create_dir(dir.node(0).path()).unwrap();
        assert_eq!(dir.node(0).last_lines("serve", 5), Vec::<String>::new());
        fs::write(dir.node(0).log("serve"), "a\nb\nc\n").unwrap();
        assert_eq!(dir.node(0).last_lines("serve", 2), ["b", "c"]);
    }
}
