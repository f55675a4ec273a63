//! Programs of others open what we write: tar, Python's tarfile, and a script of a few lines.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use hayase_stage::pack::Compression;
use hayase_stage::{Item, Kind, Place};
use hayase_tier::Posix;

use super::{Entry, directory, file, link, write};

/// Names and contents that tars of all ages have trouble with, in order.
fn entries() -> Vec<Entry> {
    let long = format!("{}/{}", "d".repeat(100), "f".repeat(99));
    let very_long = format!("{}z", "deep-directory/".repeat(30));
    let mut entries = vec![
        file("-rf", b"a dash"),
        file("caf\u{e9}", b"an accent"),
        file(b"latin-1 \xe9\xff", b"no UTF-8"),
        file("new\nline", b"a line"),
        directory("empty"),
        link("link", b"empty"),
        link("long-link", "x".repeat(180).as_bytes()),
        file(&long, b"two parts of ustar"),
        file(&very_long, b"only pax holds this name"),
        file("plain", &[b'x'; 5000]),
        file("z.zst", b"ends like a compressed one"),
        file(format!("{}\u{e9}", "n".repeat(180)), b"long and not ASCII"),
    ];
    let old = Item { mtime: hayase_stage::Mtime::new(-86_400, 0).unwrap(), ..file("old", b"").0 };
    entries.push((Item { kind: Kind::File { bytes: 3 }, ..old }, b"old".to_vec()));
    entries.sort_by(|a, b| a.0.order(&b.0));
    entries
}

/// A set in a directory; the path of its one pack.
fn set_in(top: &Path, compression: Compression) -> std::path::PathBuf {
    let place = Place::root(Arc::new(Posix::attach(top).unwrap()));
    let set = write(&place, None, &[entries()], compression);
    top.join(format!(".hayase-packs/pack-{}.tar", set.index.packs[0].id))
}

/// `None`, and a line that says so, where the program is not installed.
fn run(test: &str, command: &mut Command) -> Option<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(output)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIP {test}: needs {program}");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn tar_unpacks_a_pack() {
    let top = tempfile::tempdir().unwrap();
    let pack = set_in(top.path(), Compression::None);
    let out = top.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("--warning=no-timestamp").arg("-xpf").arg(&pack).arg("-C").arg(&out);
    tar.env("LC_ALL", "C.UTF-8");
    let Some(done) = run("tar_unpacks_a_pack", &mut tar) else { return };
    assert_eq!(String::from_utf8_lossy(&done.stderr), "", "tar has something to say");
    for (item, data) in entries() {
        let path = out.join(item.name.as_os_str());
        let meta = std::fs::symlink_metadata(&path).unwrap();
        match &item.kind {
            Kind::File { .. } => {
                assert_eq!(std::fs::read(&path).unwrap(), data, "{}", item.name);
                assert_eq!(meta.permissions().mode() & 0o777, item.mode);
                let mtime = hayase_stage::Mtime::from(meta.modified().unwrap());
                assert_eq!(mtime.seconds(), item.mtime.seconds(), "{}", item.name);
            }
            Kind::Directory => assert!(meta.is_dir()),
            Kind::Link { target } => {
                use std::os::unix::ffi::OsStrExt;
                let read = std::fs::read_link(&path).unwrap();
                assert_eq!(read.as_os_str().as_bytes(), &**target);
            }
        }
    }
}

#[test]
fn tar_lists_a_compressed_pack_and_zstd_opens_its_members() {
    let top = tempfile::tempdir().unwrap();
    let pack = set_in(top.path(), Compression::Zstd(3));
    let test = "tar_lists_a_compressed_pack_and_zstd_opens_its_members";
    let Some(listed) = run(test, Command::new("tar").arg("-tf").arg(&pack)) else { return };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.lines().any(|line| line == "plain.zst"), "{listed}");
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&pack).arg("-C").arg(top.path()).arg("plain.zst");
    run(test, &mut tar);
    let mut zstd = Command::new("zstd");
    let Some(done) = run(test, zstd.arg("-dc").arg(top.path().join("plain.zst"))) else { return };
    assert_eq!(done.stdout, [b'x'; 5000]);
}

#[test]
fn python_reads_a_pack_as_a_tar() {
    let top = tempfile::tempdir().unwrap();
    let pack = set_in(top.path(), Compression::None);
    let script = "import sys, tarfile\n\
        for m in tarfile.open(sys.argv[1], encoding='utf-8', errors='surrogateescape'):\n\
        \x20   print(m.name.encode('utf-8', 'surrogateescape').hex(), m.size, m.type.decode())\n";
    let mut python = Command::new("python3");
    let test = "python_reads_a_pack_as_a_tar";
    let Some(done) = run(test, python.args(["-c", script]).arg(&pack)) else { return };
    let told = String::from_utf8(done.stdout).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (item, data) in entries() {
        let kind = match item.kind {
            Kind::File { .. } => '0',
            Kind::Directory => '5',
            Kind::Link { .. } => '2',
        };
        let line = format!("{} {} {kind}", hex(item.name.as_bytes()), data.len());
        assert!(told.lines().any(|told| told == line), "{} is not in\n{told}", item.name);
    }
}

#[test]
fn a_script_of_a_few_lines_reads_a_set() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/read_packs.py");
    let test = "a_script_of_a_few_lines_reads_a_set";
    for compression in [Compression::None, Compression::Zstd(3)] {
        let top = tempfile::tempdir().unwrap();
        set_in(top.path(), compression);
        let mut python = Command::new("python3");
        let Some(done) = run(test, python.arg(&script).arg(top.path())) else { return };
        let files =
            entries().iter().filter(|(item, _)| matches!(item.kind, Kind::File { .. })).count();
        assert_eq!(String::from_utf8(done.stdout).unwrap().lines().count(), files);
        let mut python = Command::new("python3");
        let one = python.arg(&script).arg(top.path()).arg("plain");
        assert_eq!(run(test, one).unwrap().stdout, [b'x'; 5000]);
    }
}
