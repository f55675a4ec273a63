//! Notes of parts: which parts of files with another home are on this server.
//!
//! A part of a striped file is made when its first byte comes, so none may be there yet. With a note
//! made before the part, one that is not there but noted was lost, and is never read as zeros.

use super::bad_key;
use crate::namespace::{NamespaceError, Txn, keys};
use crate::part::PartId;

/// What a power cut may have done to the bytes of a noted part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartBytes {
    /// Nothing, as far as anybody keeps account of it.
    Kept,
    /// Some are not synced: the next power cut may take them.
    Unsynced,
    /// Some were not synced when the power failed.
    Lost,
}

/// As the value of a note.
const UNSYNCED: &[u8] = &[1];
const LOST: &[u8] = &[2];

/// Notes that `part` is here.
pub fn note_part(txn: &mut Txn<'_>, part: PartId) {
    txn.put(keys::part_note(part), Vec::new());
}

/// Notes that `part` is here, and what is known of its bytes.
pub fn note_bytes(txn: &mut Txn<'_>, part: PartId, bytes: PartBytes) {
    let value = match bytes {
        PartBytes::Kept => &[],
        PartBytes::Unsynced => UNSYNCED,
        PartBytes::Lost => LOST,
    };
    txn.mark_essential();
    txn.put(keys::part_note(part), value.to_vec());
}

/// What is known of the bytes of `part`; [`PartBytes::Kept`] of one that is not noted.
pub fn bytes_of_part(txn: &Txn<'_>, part: PartId) -> Result<PartBytes, NamespaceError> {
    let note = txn.get(&keys::part_note(part))?.unwrap_or_default();
    Ok(match &*note {
        UNSYNCED => PartBytes::Unsynced,
        LOST => PartBytes::Lost,
        _ => PartBytes::Kept,
    })
}

/// The power failed: what was not synced may be gone. Costs a look at all notes.
pub fn power_failed(txn: &mut Txn<'_>) -> Result<usize, NamespaceError> {
    let pairs = txn.scan(&keys::part_notes(), &[], usize::MAX)?;
    let unsynced = pairs.into_iter().filter(|(_, value)| value.as_slice() == UNSYNCED);
    let keys: Vec<_> = unsynced.map(|(key, _)| key).collect();
    for key in &keys {
        txn.put(key.clone(), LOST.to_vec());
    }
    Ok(keys.len())
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
    fn what_was_not_synced_is_lost_when_the_power_fails() {
        let namespace = namespace();
        let part = |index| PartId { ino: InodeId(7), epoch: 1, index };
        let mut txn = namespace.begin();
        note_part(&mut txn, part(0));
        note_bytes(&mut txn, part(1), PartBytes::Unsynced);
        note_bytes(&mut txn, part(2), PartBytes::Unsynced);
        note_bytes(&mut txn, part(2), PartBytes::Kept);
        assert_eq!(power_failed(&mut txn).unwrap(), 1);
        txn.commit().unwrap();
        let txn = namespace.begin();
        let bytes = [0, 1, 2, 3].map(|index| bytes_of_part(&txn, part(index)).unwrap());
        let kept = PartBytes::Kept;
        assert_eq!(bytes, [kept, PartBytes::Lost, kept, kept]);
        assert!(has_part(&txn, part(1)).unwrap());
    }

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
