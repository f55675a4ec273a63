//! Records that tell who wrote them and in which order.

use rustix::fs::Mode;

use super::Run;
use crate::actor::errno;

/// Bytes of one record.
pub const RECORD_BYTES: usize = 100;

/// `<writer>:<number>:` filled up with the writer's letter, and a line end.
pub fn record(writer: u8, number: u64) -> [u8; RECORD_BYTES] {
    let letter = b'A' + writer;
    let mut bytes = [letter; RECORD_BYTES];
    let head = format!("{}:{number:08}:", letter as char);
    bytes[..head.len()].copy_from_slice(head.as_bytes());
    bytes[RECORD_BYTES - 1] = b'\n';
    bytes
}

pub(super) fn append(run: &mut Run<'_>, path: &str, writer: u8) -> Result<(), String> {
    let file = rustix::fs::open(path, errno::open_flags("w+append")?, Mode::empty())
        .map_err(errno::name)?;
    while let Some(number) = run.next() {
        let written = run.timed(|| rustix::io::write(&file, &record(writer, number)));
        if let Some(count) = run.count(written)
            && count != RECORD_BYTES
        {
            run.violation(format!("record {number}: {count} bytes written"));
        }
    }
    Ok(())
}
