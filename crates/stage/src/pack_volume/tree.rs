//! The names of an index as a tree: nodes, and for each directory its children by name. Pure.
//!
//! A node knows the row that gives it its name, and where in that row's path the name stands: so no name
//! is stored twice. Directories that no row names (a bucket has none) are nodes all the same.
//! Costs 24 bytes for each node beside the rows. Source: the compressed sparse rows of graph libraries.

use super::Node;
use crate::pack::Row;

/// One name.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The row that names it, or one that lies below it.
    row: u32,
    /// Its name in the path of that row; a path has at most 4095 bytes.
    name: (u16, u16),
    /// It is that row itself.
    is_own: bool,
    /// Where its children begin, and how many there are.
    children: (u32, u32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root first.
    places: Vec<Place>,
    /// Nodes, grouped by their directory, in each group by name.
    children: Vec<Node>,
}

impl Tree {
    /// From rows in the order of trees. O(n log n).
    ///
    /// # Errors
    /// A name that is there twice: as a directory and as something else.
    pub(super) fn new(rows: &[Row]) -> Result<Self, Vec<u8>> {
        let root = Place { row: 0, name: (0, 0), is_own: false, children: (0, 0) };
        let mut tree = Self { places: vec![root], children: Vec::new() };
        let mut parents = vec![Node(0)];
        // The directories that the walk is in, outermost first, with the lengths of their paths.
        let mut open: Vec<(Node, usize)> = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            let path = row.item.name.as_bytes();
            while let Some(&(node, len)) = open.last() {
                let above = &rows[tree.places[node.0 as usize].row as usize].item.name;
                let is_below =
                    path.get(len) == Some(&b'/') && path[..len] == above.as_bytes()[..len];
                if is_below {
                    break;
                }
                open.pop();
            }
            loop {
                let begin = open.last().map_or(0, |(_, len)| len + 1);
                let slash = path[begin..].iter().position(|&byte| byte == b'/');
                let end = slash.map_or(path.len(), |slash| begin + slash);
                let node = Node(tree.places.len() as u32);
                tree.places.push(Place {
                    row: number as u32,
                    name: (begin as u16, end as u16),
                    is_own: slash.is_none(),
                    children: (0, 0),
                });
                parents.push(open.last().map_or(Node(0), |(node, _)| *node));
                if slash.is_some() || row.item.is_directory() {
                    open.push((node, end));
                }
                if slash.is_none() {
                    break;
                }
            }
        }
        tree.group(rows, &parents)?;
        Ok(tree)
    }

    /// Sorts nodes by directory, then by name.
    fn group(&mut self, rows: &[Row], parents: &[Node]) -> Result<(), Vec<u8>> {
        for parent in &parents[1..] {
            self.places[parent.0 as usize].children.1 += 1;
        }
        let mut start = 0;
        for place in &mut self.places {
            place.children.0 = start;
            start += std::mem::take(&mut place.children.1);
        }
        let mut children = vec![Node(0); start as usize];
        for (node, parent) in parents.iter().enumerate().skip(1) {
            let (first, count) = &mut self.places[parent.0 as usize].children;
            children[(*first + *count) as usize] = Node(node as u32);
            *count += 1;
        }
        for place in &self.places {
            let (first, count) = (place.children.0 as usize, place.children.1 as usize);
            let group = &mut children[first..first + count];
            group.sort_by(|a, b| self.name(rows, *a).cmp(self.name(rows, *b)));
            let mut pairs = group.windows(2);
            let twice = pairs.find(|pair| self.name(rows, pair[0]) == self.name(rows, pair[1]));
            if let Some(pair) = twice {
                let place = self.places[pair[0].0 as usize];
                let path = rows[place.row as usize].item.name.as_bytes();
                return Err(path[..usize::from(place.name.1)].to_vec());
            }
        }
        self.children = children;
        Ok(())
    }

    /// The row that describes a node; `Some(None)` for a directory that no row names.
    pub(super) fn row(&self, node: Node) -> Option<Option<u32>> {
        self.places.get(node.0 as usize).map(|place| place.is_own.then_some(place.row))
    }

    /// The last name of a node's path; empty for the root.
    pub(super) fn name<'a>(&self, rows: &'a [Row], node: Node) -> &'a [u8] {
        let place = self.places[node.0 as usize];
        let (start, end) = place.name;
        match rows.get(place.row as usize) {
            Some(row) => &row.item.name.as_bytes()[usize::from(start)..usize::from(end)],
            None => b"", // the root of an empty index
        }
    }

    /// Nodes of a directory, by name.
    pub(super) fn children(&self, directory: Node) -> &[Node] {
        let place = self.places.get(directory.0 as usize);
        let (first, count) = place.map_or((0, 0), |place| place.children);
        &self.children[first as usize..(first + count) as usize]
    }

    /// The child of this name.
    pub(super) fn find(&self, rows: &[Row], directory: Node, name: &[u8]) -> Option<Node> {
        let children = self.children(directory);
        let at = children.binary_search_by(|&node| self.name(rows, node).cmp(name)).ok()?;
        Some(children[at])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use hayase_tier::Key;
    use proptest::prelude::*;

    use super::*;
    use crate::item::{Item, Kind, Mtime};

    fn row(name: &[u8], kind: Kind) -> Row {
        let name = Key::new(name).unwrap();
        Row {
            item: Item { name, kind, mode: 0o644, mtime: Mtime::EPOCH },
            crc32c: 0,
            location: None,
        }
    }

    fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
        rows.sort_by(|a, b| a.item.order(&b.item));
        rows
    }

    fn paths(
        tree: &Tree,
        rows: &[Row],
        node: Node,
        path: &[u8],
        out: &mut BTreeMap<Vec<u8>, bool>,
    ) {
        for &child in tree.children(node) {
            let name = tree.name(rows, child);
            assert_eq!(tree.find(rows, node, name), Some(child));
            let path = [path, name].concat();
            let row = tree.row(child).unwrap();
            if let Some(row) = row {
                assert_eq!(rows[row as usize].item.name.as_bytes(), path);
            }
            out.insert(path.clone(), row.is_some());
            paths(tree, rows, child, &[&path[..], b"/"].concat(), out);
        }
    }

    #[test]
    fn directories_are_there_with_and_without_a_row() {
        let file = |name: &str| row(name.as_bytes(), Kind::File { bytes: 1 });
        let rows =
            sorted(vec![file("a/b/c"), file("a-b"), file("a/x"), row(b"a/b", Kind::Directory)]);
        let tree = Tree::new(&rows).unwrap();
        let mut found = BTreeMap::new();
        paths(&tree, &rows, Node(0), b"", &mut found);
        let expected = [("a", false), ("a-b", true), ("a/b", true), ("a/b/c", true), ("a/x", true)];
        let expected = expected.map(|(name, has_row)| (name.as_bytes().to_vec(), has_row));
        assert_eq!(found, BTreeMap::from(expected));
        assert_eq!(tree.find(&rows, Node(0), b"none"), None);
        assert!(tree.row(Node(99)).is_none());
        assert!(Tree::new(&[]).unwrap().children(Node(0)).is_empty());
    }

    #[test]
    fn a_name_of_two_kinds_is_refused() {
        let file = |name: &str| row(name.as_bytes(), Kind::File { bytes: 1 });
        let check = |rows: Vec<Row>, name: &[u8]| {
            assert_eq!(Tree::new(&sorted(rows)).unwrap_err(), name);
        };
        check(vec![file("d/a"), file("d/a/b")], b"d/a");
        check(vec![file("a"), row(b"a", Kind::Directory)], b"a");
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set_of_paths(
            names in prop::collection::btree_set("[ab.-]{1,3}(/[ab.-]{1,3}){0,3}", 0..30),
        ) {
            let keys: BTreeSet<Vec<u8>> =
                names.iter().filter(|name| Key::new(name).is_ok()).map(|name| name.clone().into_bytes()).collect();
            // A file is never above another name.
            let is_above = |name: &Vec<u8>| keys.iter().any(|other| other.starts_with(&[name, &b"/"[..]].concat()));
            let kind = |name: &Vec<u8>| if is_above(name) { Kind::Directory } else { Kind::File { bytes: 1 } };
            let rows = sorted(keys.iter().map(|name| row(name, kind(name))).collect());
            let mut expected: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
            for name in &keys {
                let slashes = name.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
                for (slash, _) in slashes {
                    let above = name[..slash].to_vec();
                    expected.entry(above.clone()).or_insert(keys.contains(&above));
                }
                expected.insert(name.clone(), true);
            }
            let tree = Tree::new(&rows).unwrap();
            let mut found = BTreeMap::new();
            paths(&tree, &rows, Node(0), b"", &mut found);
            prop_assert_eq!(found, expected);
        }
    }
}
