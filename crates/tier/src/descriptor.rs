//! Whole reads and writes of a plain file, whatever signals and short answers the kernel gives.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// Fills `buffer` from `offset` on; fewer bytes only at the end of the file.
pub(crate) fn read_fully(
    file: impl AsFd,
    offset: u64,
    buffer: &mut [u8],
) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset.saturating_add(done as u64);
        // Behind the largest offset of the kernel there is nothing.
        if i64::try_from(at).is_err() {
            break;
        }
        match rustix::io::pread(&file, &mut buffer[done..], at) {
            Err(Errno::INTR) => {}
            Ok(0) => break,
            Ok(count) => done += count,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Repeats `write(offset, rest)` until all of `data` is taken, whatever signals and short writes say.
pub(crate) fn write_fully(
    offset: u64,
    data: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        let at = offset.checked_add(done as u64).ok_or(Errno::FBIG)?;
        match write(at, &data[done..]) {
            Err(Errno::INTR) => {}
            // The kernel took nothing and gave no reason: repeating could go on for ever.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `write_fully` of `abcdefgh` at 100 against a kernel that answers as scripted.
    fn check(script: &[rustix::io::Result<usize>], result: rustix::io::Result<()>, calls: &str) {
        let mut answers = script.iter().copied();
        let mut seen = Vec::new();
        let outcome = write_fully(100, b"abcdefgh", |at, rest| {
            seen.push(format!("{at}:{}", String::from_utf8_lossy(rest)));
            answers.next().expect("more calls than scripted")
        });
        assert_eq!(outcome, result);
        assert_eq!(seen.join(" "), calls);
    }

    #[test]
    fn short_writes_and_signals_are_continued_where_they_stopped() {
        check(&[Ok(8)], Ok(()), "100:abcdefgh");
        check(&[Ok(3), Ok(5)], Ok(()), "100:abcdefgh 103:defgh");
        check(&[Err(Errno::INTR), Ok(8)], Ok(()), "100:abcdefgh 100:abcdefgh");
        check(&[Ok(7), Err(Errno::NOSPC)], Err(Errno::NOSPC), "100:abcdefgh 107:h");
        check(&[Ok(0)], Err(Errno::IO), "100:abcdefgh");
    }
}
