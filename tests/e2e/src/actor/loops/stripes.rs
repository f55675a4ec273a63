//! Writes that one truncate must not tear.

use rustix::fs::Mode;
use rustix::io::Errno;

use super::Run;
use crate::actor::buffer::Buffer;
use crate::actor::errno;

pub(super) fn write_across(
    run: &mut Run<'_>,
    path: &str,
    (offset, len): (u64, usize),
    read_flags: &str,
) -> Result<(), String> {
    let open = |flags| {
        rustix::fs::open(path, errno::open_flags(flags)?, Mode::empty()).map_err(errno::name)
    };
    let (writer, reader) = (open("rw")?, open(read_flags)?);
    let (mut source, mut target) = (Buffer::new(len), Buffer::new(len));
    while let Some(round) = run.next() {
        source.bytes_mut().fill((round % 255 + 1) as u8);
        let written = run.timed(|| rustix::io::pwrite(&writer, source.bytes(), offset));
        if run.count(written).is_some_and(|count| count != len) || written.is_err() {
            run.violation(format!("round {round}: wrote {written:?} of {len}"));
        }
        match read_back(&reader, target.bytes_mut(), offset) {
            Err(error) => run.violation(format!("round {round}: read {}", errno::name(error))),
            // The truncate came between: then nothing, or a beginning, is there.
            Ok(count) => {
                if let Some(at) = target.bytes()[..count].iter().position(|byte| *byte == 0) {
                    let zeros = target.bytes()[at..count].iter().take_while(|b| **b == 0).count();
                    run.violation(format!(
                        "round {round}: {zeros} zeros at {at} of {count} bytes of a completed write"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn read_back(file: &std::os::fd::OwnedFd, target: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut have = 0;
    while have < target.len() {
        match rustix::io::pread(file, &mut target[have..], offset + have as u64)? {
            0 => break,
            count => have += count,
        }
    }
    Ok(have)
}

pub(super) fn truncate(run: &mut Run<'_>, path: &str, size: u64) -> Result<(), String> {
    let file =
        rustix::fs::open(path, errno::open_flags("rw")?, Mode::empty()).map_err(errno::name)?;
    while run.next().is_some() {
        let result = run.timed(|| rustix::fs::ftruncate(&file, size));
        if run.count(result).is_none() {
            run.violation(format!("truncate: {result:?}"));
        }
    }
    Ok(())
}
