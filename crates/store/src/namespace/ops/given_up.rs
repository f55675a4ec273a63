//! Operations whose home has decided that they bind no name: a shard refuses what comes late of them.

use super::bad_key;
use crate::namespace::{NamespaceError, Txn, keys};

/// The intent `op` at another server binds no name here from now on.
pub fn give_up(txn: &mut Txn<'_>, op: u64) {
    txn.put(keys::given_up(op), Vec::new());
}

/// All that were given up, ascending.
pub fn given_up(txn: &Txn<'_>) -> Result<Vec<u64>, NamespaceError> {
    let pairs = txn.scan(&keys::all_given_up(), &[], usize::MAX)?;
    pairs.iter().map(|(key, _)| keys::parse_number(key).ok_or_else(|| bad_key(key))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::namespace;
    use super::*;

    #[test]
    fn given_up_is_given_up() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        [9, 7, 9].into_iter().for_each(|op| give_up(&mut txn, op));
        txn.commit().unwrap();
        assert_eq!(given_up(&namespace.begin()).unwrap(), [7, 9]);
    }
}
