//! List: the entries of a directory that this shard holds, in cookie order.

use hayase_layout::InodeId;

use super::bad_key;
use crate::namespace::{EntryRecord, NamespaceError, Txn, codec, keys};

/// Entries of `dir` with cookies above `after`, ascending by cookie, then name: cookie, name, entry.
///
/// At most `limit`, and more only to keep names of equal cookie together: a cookie is where the next
/// page starts, so a name behind it would be lost. Fewer than `limit` mean that it was the last page.
pub fn list(
    txn: &Txn<'_>,
    dir: InodeId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, Vec<u8>, EntryRecord)>, NamespaceError> {
    let Some(first) = after.checked_add(1) else { return Ok(Vec::new()) };
    let prefix = keys::entries(dir);
    let mut pairs = txn.scan(&prefix, &keys::entries_at(dir, first), limit)?;
    if let Some((last, _)) = pairs.last().filter(|_| pairs.len() == limit) {
        let (cookie, _) = keys::parse_entry(last).ok_or_else(|| bad_key(last))?;
        let mut rest = last.clone();
        rest.push(0); // the next key there can be
        pairs.extend(txn.scan(&keys::entries_at(dir, cookie), &rest, usize::MAX)?);
    }
    pairs
        .iter()
        .map(|(key, value)| {
            let (cookie, name) = keys::parse_entry(key).ok_or_else(|| bad_key(key))?;
            Ok((cookie, name.to_vec(), codec::decode(key, value)?))
        })
        .collect()
}

/// This shard holds no entry of `dir`.
pub fn is_empty(txn: &Txn<'_>, dir: InodeId) -> Result<bool, NamespaceError> {
    Ok(txn.scan(&keys::entries(dir), &[], 1)?.is_empty())
}

/// One entry of a shard, whatever directory it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyEntry {
    /// Where it lies: entries follow each other in this order.
    pub key: Vec<u8>,
    /// The directory.
    pub parent: InodeId,
    /// The name in it.
    pub name: Vec<u8>,
    /// What it stands for.
    pub entry: EntryRecord,
}

/// All entries of this shard after the one with key `after` (empty: from the first), at most `limit`.
pub fn all_entries(
    txn: &Txn<'_>,
    after: &[u8],
    limit: usize,
) -> Result<Vec<AnyEntry>, NamespaceError> {
    let mut from = after.to_vec();
    if !from.is_empty() {
        from.push(0); // the next key that there can be
    }
    let pairs = txn.scan(&keys::every_entry(), &from, limit)?;
    let entry = |(key, value): (Vec<u8>, Vec<u8>)| {
        let parent = key.get(1..9).and_then(|bytes| bytes.try_into().ok());
        let parent = InodeId(u64::from_be_bytes(parent.ok_or_else(|| bad_key(&key))?));
        let name = keys::parse_entry(&key).ok_or_else(|| bad_key(&key))?.1.to_vec();
        let entry = codec::decode(&key, &value)?;
        Ok(AnyEntry { key, parent, name, entry })
    };
    pairs.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::namespace;
    use super::super::{insert, remove_entry};
    use super::*;
    use crate::namespace::{FileKind, Txn};

    fn entry(ino: u64) -> EntryRecord {
        EntryRecord { ino: InodeId(ino), kind: FileKind::Regular }
    }

    fn names(txn: &Txn<'_>, limit: usize) -> Vec<Vec<u8>> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let page = list(txn, InodeId(1), after, limit).unwrap();
            let Some((cookie, ..)) = page.last() else { return names };
            after = *cookie;
            names.extend(page.into_iter().map(|(_, name, _)| name));
        }
    }

    #[test]
    fn pages_together_are_the_directory() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        let mut expected: Vec<Vec<u8>> = Vec::new();
        for i in 0..100u64 {
            let name = format!("file-{i}").into_bytes();
            insert(&mut txn, InodeId(1), &name, entry(i)).unwrap().unwrap();
            insert(&mut txn, InodeId(2), &name, entry(i)).unwrap().unwrap();
            expected.push(name);
        }
        txn.commit().unwrap();
        // Half committed, half in the transaction.
        let mut txn = namespace.begin();
        remove_entry(&mut txn, InodeId(1), b"file-7");
        insert(&mut txn, InodeId(1), b"new", entry(200)).unwrap().unwrap();
        expected.retain(|name| name != b"file-7");
        expected.push(b"new".to_vec());
        expected.sort_by_key(|name| super::super::cookie(name));
        for limit in [1, 2, 3, 50, 100, 1000] {
            assert_eq!(names(&txn, limit), expected, "pages of {limit}");
        }
        assert!(list(&txn, InodeId(1), u64::MAX, 10).unwrap().is_empty());
    }

    #[test]
    fn names_of_one_cookie_stay_on_one_page() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        // Real names that collide are out of reach, so the keys are made by hand.
        for (cookie, name) in [(5, b"a"), (9, b"b"), (9, b"c"), (9, b"d"), (12, b"e")] {
            let mut key = keys::entries_at(InodeId(1), cookie);
            key.extend_from_slice(name);
            txn.put(key, codec::encode(&entry(3)));
        }
        let check = |after, limit, expected: &[&[u8]]| {
            let page = list(&txn, InodeId(1), after, limit).unwrap();
            assert_eq!(page.iter().map(|(_, name, _)| &name[..]).collect::<Vec<_>>(), expected);
        };
        check(0, 1, &[b"a"]);
        check(0, 2, &[b"a", b"b", b"c", b"d"]);
        check(5, 1, &[b"b", b"c", b"d"]);
        check(9, 1, &[b"e"]);
        check(12, 1, &[]);
    }

    #[test]
    fn all_entries_come_page_by_page() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        for (dir, name) in [(1, b"a"), (1, b"b"), (7, b"a")] {
            insert(&mut txn, InodeId(dir), name, entry(dir)).unwrap().unwrap();
        }
        for limit in 1..4 {
            let (mut found, mut after) = (Vec::new(), Vec::new());
            loop {
                let page = all_entries(&txn, &after, limit).unwrap();
                let Some(last) = page.last() else { break };
                after.clone_from(&last.key);
                found.extend(page.into_iter().map(|e| (e.parent.0, e.name)));
            }
            found.sort();
            assert_eq!(found, [(1, b"a".to_vec()), (1, b"b".to_vec()), (7, b"a".to_vec())]);
        }
    }

    #[test]
    fn empty_means_no_entry_of_this_directory() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        insert(&mut txn, InodeId(1), b"a", entry(3)).unwrap().unwrap();
        assert!(!is_empty(&txn, InodeId(1)).unwrap());
        assert!(is_empty(&txn, InodeId(2)).unwrap());
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        remove_entry(&mut txn, InodeId(1), b"a");
        assert!(is_empty(&txn, InodeId(1)).unwrap());
    }
}
