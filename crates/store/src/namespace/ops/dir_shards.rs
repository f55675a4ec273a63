//! Which servers may hold entries of a directory: told by its home, granted to each shard.
//!
//! The home adds a shard before it answers the grant, so its list may name a server that holds
//! nothing, and never misses one that holds something.

use hayase_layout::{InodeId, ServerId};

use super::bad_key;
use crate::namespace::{NamespaceError, Txn, keys};

/// At a shard: entries of `dir` may be inserted here.
pub fn grant_dir(txn: &mut Txn<'_>, dir: InodeId) -> Result<(), NamespaceError> {
    txn.put(keys::dir_grant(dir), Vec::new());
    Ok(())
}

/// At a shard: whether entries of `dir` may be inserted here.
pub fn has_dir_grant(txn: &Txn<'_>, dir: InodeId) -> Result<bool, NamespaceError> {
    Ok(txn.get(&keys::dir_grant(dir))?.is_some())
}

/// At a shard: no entry of `dir` may be inserted any more.
pub fn revoke_dir_grant(txn: &mut Txn<'_>, dir: InodeId) -> Result<(), NamespaceError> {
    txn.delete(keys::dir_grant(dir));
    Ok(())
}

/// At the home of `dir`: `server` may hold entries of it.
pub fn add_dir_shard(
    txn: &mut Txn<'_>,
    dir: InodeId,
    server: ServerId,
) -> Result<(), NamespaceError> {
    txn.put(keys::dir_shard(dir, server), Vec::new());
    Ok(())
}

/// At the home of `dir`: all servers that may hold entries of it, ascending.
pub fn dir_shards(txn: &Txn<'_>, dir: InodeId) -> Result<Vec<ServerId>, NamespaceError> {
    let pairs = txn.scan(&keys::dir_shards(dir), &[], usize::MAX)?;
    pairs.iter().map(|(key, _)| keys::parse_dir_shard(key).ok_or_else(|| bad_key(key))).collect()
}

/// At the home of `dir`: its entries are not all here any more.
pub fn spread_names(txn: &mut Txn<'_>, dir: InodeId) {
    txn.put(keys::names_spread(dir), Vec::new());
}

/// At the home of `dir`: whether [`spread_names`] was said.
pub fn are_names_spread(txn: &Txn<'_>, dir: InodeId) -> Result<bool, NamespaceError> {
    Ok(txn.get(&keys::names_spread(dir))?.is_some())
}

/// At the home of `dir`, which ends: no server holds entries of it.
pub fn clear_dir_shards(txn: &mut Txn<'_>, dir: InodeId) -> Result<(), NamespaceError> {
    for (key, _) in txn.scan(&keys::dir_shards(dir), &[], usize::MAX)? {
        txn.delete(key);
    }
    txn.delete(keys::names_spread(dir));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::namespace;
    use super::*;

    #[test]
    fn grants_and_shards_are_kept() {
        let namespace = namespace();
        let dir = InodeId(5);
        let mut txn = namespace.begin();
        grant_dir(&mut txn, dir).unwrap();
        for server in [300, 2, 2] {
            add_dir_shard(&mut txn, dir, ServerId(server)).unwrap();
        }
        add_dir_shard(&mut txn, InodeId(6), ServerId(9)).unwrap();
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        assert!(has_dir_grant(&txn, dir).unwrap() && !has_dir_grant(&txn, InodeId(6)).unwrap());
        assert_eq!(dir_shards(&txn, dir).unwrap(), [ServerId(2), ServerId(300)]);
        spread_names(&mut txn, dir);
        assert!(are_names_spread(&txn, dir).unwrap());
        assert!(!are_names_spread(&txn, InodeId(6)).unwrap());
        revoke_dir_grant(&mut txn, dir).unwrap();
        clear_dir_shards(&mut txn, dir).unwrap();
        assert!(!has_dir_grant(&txn, dir).unwrap());
        assert!(dir_shards(&txn, dir).unwrap().is_empty());
        assert!(!are_names_spread(&txn, dir).unwrap());
        assert_eq!(dir_shards(&txn, InodeId(6)).unwrap(), [ServerId(9)]);
    }
}
