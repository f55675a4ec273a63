//! Notes of parts: which parts of files with another home are on this server.
//!
//! A part of a striped file is made when its first byte comes, so none may be there yet. With a note
//! made before the part, one that is not there but noted was lost, and is never read as zeros.

use super::bad_key;
use crate::namespace::{NamespaceError, Txn, keys};
use crate::part::PartId;

/// Notes that `part` is here.
pub fn note_part(txn: &mut Txn<'_>, part: PartId) {
    txn.put(keys::part_note(part), Vec::new());
}

/// Whether `part` was noted.
pub fn has_part(txn: &Txn<'_>, part: PartId) -> Result<bool, NamespaceError> {
    Ok(txn.get(&keys::part_note(part))?.is_some())
}

/// `part` is not here any more.
pub fn forget_part(txn: &mut Txn<'_>, part: PartId) {
    txn.delete(keys::part_note(part));
}

/// Noted parts behind `after`, ascending, `limit` at most; for recovery and checks.
pub fn part_notes(
    txn: &Txn<'_>,
    after: Option<PartId>,
    limit: usize,
) -> Result<Vec<PartId>, NamespaceError> {
    let from = after.map_or_else(Vec::new, |part| {
        let mut next = keys::part_note(part);
        next.push(0); // the next key there can be
        next
    });
    let pairs = txn.scan(&keys::part_notes(), &from, limit)?;
    pairs.iter().map(|(key, _)| keys::parse_part_note(key).ok_or_else(|| bad_key(key))).collect()
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;

    use super::super::testing::namespace;
    use super::*;

    #[test]
    fn parts_are_noted_until_forgotten() {
        let namespace = namespace();
        let part = |ino, index| PartId { ino: InodeId(ino), epoch: 1, index };
        let mut txn = namespace.begin();
        for noted in [part(7, 2), part(7, 0), part(5, 9)] {
            note_part(&mut txn, noted);
        }
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        assert!(has_part(&txn, part(7, 2)).unwrap() && !has_part(&txn, part(7, 1)).unwrap());
        forget_part(&mut txn, part(7, 2));
        forget_part(&mut txn, part(7, 1));
        assert!(!has_part(&txn, part(7, 2)).unwrap());
        assert_eq!(part_notes(&txn, None, 10).unwrap(), [part(5, 9), part(7, 0)]);
        assert_eq!(part_notes(&txn, Some(part(5, 9)), 10).unwrap(), [part(7, 0)]);
        assert_eq!(part_notes(&txn, None, 1).unwrap(), [part(5, 9)]);
    }
}
