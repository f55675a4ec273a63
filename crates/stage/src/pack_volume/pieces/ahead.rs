//! Who reads in order, and how far ahead it is worth to read. Pure.
//!
//! Each object has a few cursors, so that some programs may read it in order at the same time. One that
//! goes on where it was doubles what is read ahead; one that jumps begins with nothing ahead, except at the
//! start of an object: who begins there mostly goes on.
//! Source: the on-demand readahead of Linux (Wu Fengguang, Linux Symposium 2007).

use std::ops::Range;

use crate::limits::{AHEAD_PIECES_MAX, CURSORS_MAX};

#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// The piece behind what was read last.
    next: u64,
    /// Pieces that are worth to be read ahead.
    window: u64,
    /// Up to where somebody was asked to read.
    asked: u64,
}

/// The cursors of one object, the latest last.
#[derive(Debug, Default)]
pub(super) struct Cursors(Vec<Cursor>);

impl Cursors {
    /// Pieces `read` are wanted now; answers which should be read next, when it is time to ask.
    pub(super) fn read(&mut self, read: Range<u64>) -> Option<Range<u64>> {
        // Small files share a piece: staying is no news, going on is.
        let follows = |cursor: &Cursor| read.start <= cursor.next && read.end >= cursor.next;
        let mut cursor = match self.0.iter().position(follows) {
            Some(at) => self.0.remove(at),
            None if read.start == 0 => Cursor { next: 0, window: 1, asked: read.end },
            None => Cursor { next: read.end, window: 0, asked: read.end },
        };
        let has_moved = read.end > cursor.next;
        if has_moved {
            cursor.window = (cursor.window * 2).clamp(1, AHEAD_PIECES_MAX);
        }
        (cursor.next, cursor.asked) = (read.end, cursor.asked.max(read.end));
        let until = cursor.next + cursor.window;
        // Asked for by halves, so that one half is on its way while the other is read.
        let is_due = has_moved && until >= cursor.asked + cursor.window.div_ceil(2);
        let wanted = is_due.then_some(cursor.asked..until);
        if is_due {
            cursor.asked = until;
        }
        if self.0.len() == CURSORS_MAX {
            self.0.remove(0);
        }
        self.0.push(cursor);
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reads: &[Range<u64>], expected: &[Option<Range<u64>>]) {
        let mut cursors = Cursors::default();
        let asked: Vec<_> = reads.iter().map(|read| cursors.read(read.clone())).collect();
        assert_eq!(asked, expected);
    }

    #[test]
    fn who_goes_on_is_read_ahead_of_and_who_jumps_is_not() {
        check(&[0..1, 0..1, 1..2], &[Some(1..3), None, Some(3..6)]);
        check(&[5..6, 9..10, 40..41], &[None, None, None]);
        check(&[5..6, 6..7, 7..8], &[None, Some(7..8), Some(8..10)]);
    }

    #[test]
    fn two_readers_do_not_disturb_each_other() {
        check(
            &[10..11, 50..51, 11..12, 51..52, 12..13],
            &[None, None, Some(12..13), Some(52..53), Some(13..15)],
        );
    }

    #[test]
    fn a_reader_in_order_asks_for_each_piece_once() {
        let mut cursors = Cursors::default();
        let mut asked_until = 1;
        for number in 0..1000 {
            if let Some(asked) = cursors.read(number..number + 1) {
                assert_eq!(asked.start, asked_until, "nothing twice, nothing left out");
                assert!(asked.end - number <= AHEAD_PIECES_MAX + 1);
                asked_until = asked.end;
            }
            assert!(asked_until > number, "it is asked for before it is needed");
        }
    }
}
