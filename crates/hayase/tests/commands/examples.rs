//! Scripts of `examples/`, with programs that stand for the batch system and for `hayase`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::done;

/// A host on which a job of Slurm has ended.
struct Host {
    top: tempfile::TempDir,
    /// Below /tmp, as the epilog has it; no user has this number.
    runtime: PathBuf,
    user: String,
}

impl Host {
    /// `down --here` ends with `status` there, and the job has an entry in the registry of its user if `is_known`.
    fn new(status: u8, is_known: bool) -> Self {
        let top = tempfile::tempdir().unwrap();
        let name = top.path().file_name().unwrap().to_str().unwrap();
        let user = format!("test-{}", name.trim_start_matches('.'));
        let runtime = PathBuf::from(format!("/tmp/hayase-{user}"));
        fs::create_dir_all(runtime.join("jobs")).unwrap();
        if is_known {
            // It leads nowhere: that is no proof that nothing is there.
            std::os::unix::fs::symlink("/nowhere", runtime.join("jobs/slurm-7")).unwrap();
        }
        let host = Self { top, runtime, user };
        host.write("bin/hayase", &format!("echo \"said $*\"; exit {status}"));
        host.write("bin/logger", "cat >>$LOG");
        // Tests may run without root, and the user is none.
        let as_user = r#"[ "$1 $3 $5" = "--reuid --regid --init-groups" ] || exit 9
            echo "as $2 $4 $6" >>$CALLS; AS_USER=yes; export AS_USER; shift 5; exec "$@""#;
        host.write("bin/setpriv", as_user);
        let ends =
            r#"echo "timeout $1 $2 $3 $4" >>$CALLS; ENDS=yes; export ENDS; shift 3; exec "$@""#;
        host.write("bin/timeout", ends);
        for name in ["find", "rm", "chmod", "rmdir"] {
            let call =
                format!(r#"echo "$ENDS,$AS_USER {name} $*" >>$CALLS; exec /usr/bin/{name} "$@""#);
            host.write(&format!("bin/{name}"), &call);
        }
        // What is of who runs the test is of the user.
        let own = rustix::process::getuid().as_raw();
        let stat = format!(
            r#"echo "$ENDS,$AS_USER stat $*" >>$CALLS; said=$(/usr/bin/stat "$@" 2>&1); status=$?
            case $said in *" {own}") said="${{said% *}} $SLURM_JOB_UID" ;; esac
            printf '%s\n' "$said"; exit $status"#
        );
        host.write("bin/stat", &stat);
        fs::create_dir_all(host.storage().join("slurm-7/node-0")).unwrap();
        host
    }

    fn write(&self, name: &str, script: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn storage(&self) -> PathBuf {
        self.path("disk/hayase-7")
    }

    /// What the epilog wrote to the system log.
    fn epilog(&self) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/slurm/epilog.sh");
        let _ = fs::remove_file(self.path("calls"));
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let mut command = Command::new("sh");
        command.arg(script).env("PATH", path).env("LOG", self.path("log"));
        command.env("CALLS", self.path("calls"));
        command.env("HAYASE", self.path("bin/hayase")).env("HAYASE_DISK", self.path("disk"));
        command.env("SLURM_JOB_ID", "7").env("SLURM_JOB_UID", &self.user).env("SLURM_JOB_GID", "6");
        done(&command.output().unwrap()).with(0);
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// What the last run of it has called: who did, and whether that ends in time.
    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

#[test]
fn the_epilog_keeps_storage_unless_down_here_ended_well() {
    for status in [1, 2, 3, 124] {
        let host = Host::new(status, true);
        let log = host.epilog();
        assert!(host.storage().exists(), "{status}");
        assert!(log.starts_with("said down --here --drain 20 --job slurm-7"), "{log}");
        let called = format!("timeout -k 5 100 setpriv\nas {} 6 env\n", host.user);
        assert!(host.calls().contains(&called), "{}", host.calls());
        let told = format!("is kept: hayase down --here ended with {status}");
        let resume = format!("hayase resume {}", host.storage().join("slurm-7").display());
        assert!(log.contains(&told) && log.contains(&resume), "{log}");
    }
    let host = Host::new(0, true);
    let log = host.epilog();
    assert!(!host.storage().exists() && !log.contains("is kept"), "{log}");
}

/// `hayase down` in the job itself has kept it, and the registry knows the job no longer.
#[test]
fn the_epilog_keeps_a_ledger_that_down_has_left() {
    for job in ["slurm-7", "other", "deeper/other"] {
        for ledger in ["node-0/ledger", "node-0/shared/ledger"] {
            let host = Host::new(0, false);
            let place = host.storage().join(job);
            let ledger = place.join(ledger);
            fs::create_dir_all(&ledger).unwrap();
            let log = host.epilog();
            assert!(ledger.exists() && log.contains(ledger.to_str().unwrap()), "{log}");
            assert!(log.contains(&format!("hayase resume {},", place.display())), "{log}");
        }
    }
    let host = Host::new(0, false);
    assert_eq!(host.epilog(), "");
    assert!(!host.storage().exists());
}

/// As after a kill: what `hayase resume` needs is in the registry, and next to the bytes only when `hayase down` kept them.
#[test]
fn the_epilog_names_what_resume_can_begin_with() {
    let host = Host::new(1, false);
    let entry = host.runtime.join("jobs/slurm-7");
    let place = host.storage().join("slurm-7");
    fs::create_dir(&entry).unwrap();
    assert!(host.epilog().contains(&format!("hayase resume {},", entry.display())));
    fs::write(place.join("resume.json"), "").unwrap();
    assert!(host.epilog().contains(&format!("hayase resume {},", place.display())));
}

/// What stands for `find` says nothing, as one that can not enter a directory.
#[test]
fn the_epilog_keeps_storage_that_it_can_not_search() {
    let host = Host::new(0, true);
    host.write("bin/find", "exit 1");
    let log = host.epilog();
    assert!(host.storage().exists() && log.contains("not all of it can be read"), "{log}");
}

/// Backslashes stay as they are, whatever `echo` of the shell makes of them.
#[test]
fn the_epilog_logs_what_down_said_as_it_is() {
    let host = Host::new(1, true);
    host.write("bin/hayase", r#"printf '%s\n' 'a\tb\nc'; exit 1"#);
    assert!(host.epilog().starts_with("a\\tb\\nc\n"));
}

/// The directory that the prolog made is gone, and the disk has something else of its name.
#[test]
fn the_epilog_touches_no_storage_but_that_of_the_prolog() {
    let host = Host::new(0, true);
    let bytes = host.path("others/bytes");
    fs::create_dir(host.path("others")).unwrap();
    fs::write(&bytes, "of others").unwrap();
    fs::remove_dir_all(host.storage()).unwrap();
    std::os::unix::fs::symlink(host.path("others"), host.storage()).unwrap();
    let log = host.epilog();
    assert!(log.contains("is not touched") && log.contains("symbolic link"), "{log}");
    assert!(bytes.exists() && host.storage().is_symlink());
    fs::remove_file(host.storage()).unwrap();
    fs::write(host.storage(), "").unwrap();
    assert!(host.epilog().contains("is not touched") && host.storage().exists());
    if !rustix::process::geteuid().is_root() {
        return println!("SKIP a directory of another user: only root can make one");
    }
    fs::remove_file(host.storage()).unwrap();
    fs::create_dir(host.storage()).unwrap();
    std::os::unix::fs::chown(host.storage(), Some(4711), None).unwrap();
    let log = host.epilog();
    assert!(log.contains("this is: directory 4711") && host.storage().exists(), "{log}");
}

/// What a user has made is looked at and removed as that user, and never waited for without an end.
#[test]
fn the_epilog_works_as_the_user_and_ends_in_time() {
    let host = Host::new(0, true);
    let locked = host.storage().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::write(locked.join("bytes"), "").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    assert!(!host.epilog().contains("is kept") && !host.storage().exists());
    let (calls, storage) = (host.calls(), host.storage());
    let on_storage = calls.lines().filter(|line| line.contains(storage.to_str().unwrap()));
    let (mut by_root, mut by_user) = (Vec::new(), Vec::new());
    for line in on_storage {
        let (who, call) = line.split_once(' ').unwrap();
        match who {
            "yes,yes" => by_user.push(call.split(' ').next().unwrap()),
            "yes," => by_root.push(call.split(' ').next().unwrap()),
            _ => panic!("it may never end: {line}"),
        }
    }
    by_root.dedup();
    by_user.dedup();
    assert_eq!(by_root, ["stat", "rmdir", "stat"], "{calls}");
    assert_eq!(by_user, ["find", "chmod", "rm"], "{calls}");
}

/// As a file system of the user that never answers (FUSE).
#[test]
fn the_epilog_waits_for_no_file_system_of_a_user() {
    let host = Host::new(0, true);
    host.write("bin/find", "exec sleep 1000");
    let ends =
        r#"shift 3; case "$*" in *" find "*) exec /usr/bin/timeout -k 1 1 "$@" ;; esac; exec "$@""#;
    host.write("bin/timeout", ends);
    let log = host.epilog();
    assert!(host.storage().exists() && log.contains("not all of it can be read"), "{log}");
}
