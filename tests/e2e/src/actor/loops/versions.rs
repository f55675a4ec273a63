//! A file that is replaced as a whole: every version has its own length and its own byte.

use rustix::fs::Mode;
use rustix::io::Errno;

use super::Run;
use crate::actor::errno;

/// Versions go round: 1 to this, as the byte that fills them.
pub const VERSIONS: u64 = 200;

/// Bytes of a version.
pub const fn version_len(version: u8) -> usize {
    3000 + version as usize * 997
}

pub(super) fn replace(run: &mut Run<'_>, path: &str, temporary: &str) {
    while let Some(round) = run.next() {
        let version = (round % VERSIONS + 1) as u8;
        let result = write_version(temporary, version)
            .and_then(|()| run.timed(|| rustix::fs::rename(temporary, path)));
        if run.count(result).is_none() {
            run.violation(format!("round {round}: {result:?}"));
        }
    }
}

fn write_version(path: &str, version: u8) -> Result<(), Errno> {
    let flags = errno::open_flags("w+creat+trunc").expect("these are flags");
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
    let bytes = vec![version; version_len(version)];
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    Ok(())
}

pub(super) fn read(run: &mut Run<'_>, path: &str) {
    while let Some(round) = run.next() {
        let result = run.timed(|| read_all(path));
        let fault = match &result {
            Ok(bytes) => fault(bytes),
            Err(error) => Some(errno::name(*error)),
        };
        run.count(result);
        if let Some(fault) = fault {
            run.violation(format!("round {round}: {fault}"));
        }
    }
}

fn read_all(path: &str) -> Result<Vec<u8>, Errno> {
    let flags = errno::open_flags("r").expect("this is a flag");
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match rustix::io::read(&file, &mut buffer)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// What is wrong with these bytes as a version.
fn fault(bytes: &[u8]) -> Option<String> {
    let Some(first) = bytes.first() else { return Some("empty".into()) };
    if let Some(at) = bytes.iter().position(|byte| byte != first) {
        return Some(format!("version {first} up to {at}, then {}", bytes[at]));
    }
    let len = version_len(*first);
    (bytes.len() != len).then(|| format!("version {first} has {} of {len} bytes", bytes.len()))
}
