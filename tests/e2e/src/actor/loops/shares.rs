//! Bytes of one block that belong to different writers: what one writes, the others' writes must leave alone.

use rustix::fs::Mode;

use super::Run;
use crate::actor::errno;

/// The file is one block of a disk and of a page.
pub(super) const BLOCK: usize = 4096;

/// Writes its own pieces (every `writers`th of `piece` bytes, from `writer` on) through one descriptor, one a round,
/// and looks now and then whether each still holds what it wrote there last.
pub(super) fn write_own(
    run: &mut Run<'_>,
    (path, flags): (&str, &str),
    piece: usize,
    (writer, writers): (usize, usize),
) -> Result<(), String> {
    let file =
        rustix::fs::open(path, errno::open_flags(flags)?, Mode::empty()).map_err(errno::name)?;
    let own: Vec<usize> = (0..BLOCK / piece).filter(|at| at % writers == writer).collect();
    let mut written = vec![0; own.len()];
    let look = |run: &mut Run<'_>, written: &[u8], round: u64| {
        let mut block = [0; BLOCK];
        match rustix::io::pread(&file, &mut block, 0) {
            Ok(BLOCK) => {}
            other => return run.violation(format!("round {round}: read {other:?}")),
        }
        for (at, expected) in own.iter().zip(written) {
            let found = &block[at * piece..(at + 1) * piece];
            if found.iter().any(|byte| byte != expected) {
                run.violation(format!("round {round}: piece {at} is {found:?}, not {expected}"));
            }
        }
    };
    while let Some(round) = run.next() {
        let which = round as usize % own.len();
        let byte = (round / own.len() as u64 % 255 + 1) as u8;
        let bytes = vec![byte; piece];
        let offset = (own[which] * piece) as u64;
        let done = run.timed(|| rustix::io::pwrite(&file, &bytes, offset));
        if run.count(done).is_some_and(|count| count == piece) {
            written[which] = byte;
        } else {
            run.violation(format!("round {round}: wrote {done:?} of {piece}"));
        }
        if round % 64 == 63 {
            look(run, &written, round);
        }
    }
    look(run, &written, u64::MAX);
    Ok(())
}
