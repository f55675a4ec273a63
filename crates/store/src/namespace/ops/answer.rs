//! Answers that are given again: what a request that must happen once was answered with, recorded
//! in the transaction in which it happened. One for each slot of a process, the last.

use serde::{Deserialize, Serialize};

use super::bad_key;
use crate::namespace::{AnswerSlot, NamespaceError, Txn, codec, keys};

/// The last answer of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Of the request, in its sequence.
    pub number: u64,
    /// What it was answered with, as the caller writes it.
    pub reply: Vec<u8>,
}

/// Records the answer of a slot, in the place of the one before.
pub fn put_answer(txn: &mut Txn<'_>, slot: AnswerSlot, answer: &Answer) {
    txn.put(keys::answer(slot), codec::encode(answer));
}

/// The last answer of a slot.
pub fn answer(txn: &Txn<'_>, slot: AnswerSlot) -> Result<Option<Answer>, NamespaceError> {
    let key = keys::answer(slot);
    txn.get(&key)?.map(|bytes| codec::decode(&key, &bytes)).transpose()
}

/// All slots with the numbers of their last answers.
pub fn answers(txn: &Txn<'_>) -> Result<Vec<(AnswerSlot, u64)>, NamespaceError> {
    let pairs = txn.scan(&keys::all_answers(), &[], usize::MAX)?;
    let slot = |(key, value): &(Vec<u8>, Vec<u8>)| {
        let slot = keys::parse_answer(key).ok_or_else(|| bad_key(key))?;
        let answer: Answer = codec::decode(key, value)?;
        Ok((slot, answer.number))
    };
    pairs.iter().map(slot).collect()
}

/// A process is gone: it repeats nothing any more.
pub fn drop_answers(txn: &mut Txn<'_>, process: u64) -> Result<(), NamespaceError> {
    for (key, _) in txn.scan(&keys::answers_of(process), &[], usize::MAX)? {
        txn.delete(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::namespace;
    use super::*;

    #[test]
    fn the_last_answer_of_each_slot_is_kept() {
        let namespace = namespace();
        let slot = |process, slot| AnswerSlot { process, slot };
        let mut txn = namespace.begin();
        for (at, number, reply) in
            [(slot(7, 0), 1, b"a"), (slot(7, 0), 2, b"b"), (slot(8, 3), 9, b"c")]
        {
            put_answer(&mut txn, at, &Answer { number, reply: reply.to_vec() });
        }
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        let found = answer(&txn, slot(7, 0)).unwrap();
        assert_eq!(found, Some(Answer { number: 2, reply: b"b".to_vec() }));
        assert_eq!(answer(&txn, slot(7, 1)).unwrap(), None);
        assert_eq!(answers(&txn).unwrap(), [(slot(7, 0), 2), (slot(8, 3), 9)]);
        drop_answers(&mut txn, 7).unwrap();
        assert_eq!(answers(&txn).unwrap(), [(slot(8, 3), 9)]);
    }
}
