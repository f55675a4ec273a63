//! Inodes that the kernel knows of a Gfarm, and where their names are.
//!
//! Gfarm is asked by paths. So each inode remembers in which directory and under which name it was seen last; a
//! path is put together when it is needed, and follows directories that are renamed here. What is renamed or replaced on
//! another host is noticed by the inode number that comes back.
//! Gfarm gives numbers away again; the kernel is told what stands behind one by kind, size and time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Stat, Time};
use hayase_wire::message::{Name, Refused};

use super::open_file::OpenFile;

/// Deeper paths are longer than any kernel takes.
const DEPTH_MAX: usize = 2048;
/// Where in an inode number it is counted how often its place on this host was given up for another one.
const INCARNATION_SHIFT: u32 = 56;
/// The attributes of a directory in which this mount makes files are asked for this often.
pub(super) const KNOWN_FOR: Duration = Duration::from_millis(500);

/// One inode.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ino: InodeId,
    /// Gfarm's number.
    pub(super) gfarm: u64,
    state: Mutex<State>,
    /// Shared by calls that use an open of Gfarm; alone: nobody does.
    uses: RwLock<()>,
    /// Held while an open joins the others, and while these follow another version: then nobody here begins to write.
    /// No read waits for it.
    pub(super) joining: Mutex<()>,
    /// Held while a write finds the end of the file.
    pub(super) appending: Mutex<()>,
}

/// What changes about it.
#[derive(Debug)]
pub(super) struct State {
    /// As the metadata server told it last.
    pub(super) seen: Stat,
    pub(super) file: OpenFile,
    pub(super) directory: Directory,
}

/// How well this host knows the attributes of a directory.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Counts what this mount did in it.
    changes: u64,
    /// When the metadata server was asked last, if this mount did nothing in it since but make files.
    asked: Option<Instant>,
    /// It made some.
    made: bool,
}

impl State {
    /// Before its attributes are asked for: for [`State::told`].
    pub(super) fn asks(&self) -> (u64, Instant) {
        (self.directory.changes, Instant::now())
    }

    /// The metadata server told its attributes.
    pub(super) fn told(&mut self, stat: Stat, (changes, asked): (u64, Instant)) {
        self.seen = stat;
        let asked = (self.directory.changes == changes).then_some(asked);
        self.directory = Directory { asked, made: false, ..self.directory };
    }

    /// Something in it is another thing now, or may be: the next time its attributes are asked for.
    pub(super) fn changed(&mut self) {
        self.directory = Directory { changes: self.directory.changes + 1, ..Directory::default() };
    }

    /// This mount made a file in it, which changes nothing about it but its times.
    pub(super) fn file_was_made(&mut self, when: Time) {
        self.directory.changes += 1;
        self.directory.made = true;
        self.seen.mtime = self.seen.mtime.max(when);
        self.seen.ctime = self.seen.ctime.max(when);
    }

    /// Whether what is here does: the kernel asks after each new file, and the metadata server was asked a moment ago.
    pub(super) fn is_known(&self, now: Instant) -> bool {
        let Directory { asked, made, .. } = self.directory;
        made && asked.is_some_and(|asked| now.saturating_duration_since(asked) <= KNOWN_FOR)
    }
}

impl Node {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open of Gfarm that is found in a slot from now on is not closed while this lives.
    pub(super) fn using(&self) -> RwLockReadGuard<'_, ()> {
        self.uses.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was taken out of its slot before is used by nobody when it returns. Not while [`Node::using`] lives.
    pub(super) fn wait_for_users(&self) {
        drop(self.uses.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// All that the kernel may ask for.
#[derive(Debug)]
pub(super) struct Nodes {
    /// How libgfarm calls the root: without a slash at the end.
    base: Vec<u8>,
    root: u64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    nodes: HashMap<InodeId, Arc<Node>>,
    places: HashMap<InodeId, (InodeId, Name)>,
    names: HashMap<(InodeId, Name), InodeId>,
    incarnations: HashMap<u64, u64>,
}

impl Nodes {
    /// `path`: of the directory that is shown, as libgfarm takes it.
    pub(super) fn new(path: &[u8], root: Stat) -> Self {
        let mut base = path.to_vec();
        while base.last() == Some(&b'/') {
            base.pop();
        }
        let nodes = Self { base, root: root.ino, table: Mutex::default() };
        let node = new_node(InodeId::ROOT, root);
        nodes.lock().nodes.insert(InodeId::ROOT, node);
        nodes
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `ESTALE` when the kernel was never told of it.
    pub(super) fn get(&self, ino: InodeId) -> Result<Arc<Node>, Refused> {
        self.lock().nodes.get(&ino).cloned().ok_or_else(|| Refused::new(libc::ESTALE))
    }

    /// How the kernel calls an inode of Gfarm. The root is 1 there, and what is 1 in Gfarm has the root's number.
    fn number(&self, table: &Table, gfarm: u64) -> InodeId {
        let number = match gfarm {
            root if root == self.root => return InodeId::ROOT,
            number if number == InodeId::ROOT.0 => self.root,
            number => number,
        };
        let incarnation = table.incarnations.get(&gfarm).copied().unwrap_or(0);
        InodeId(number | incarnation << INCARNATION_SHIFT)
    }

    /// Under this name `stat` was found: its node, which the kernel may be told of.
    pub(super) fn seen(&self, parent: InodeId, name: &[u8], stat: Stat) -> Arc<Node> {
        let mut table = self.lock();
        let ino = self.number(&table, stat.ino);
        if ino != InodeId::ROOT {
            table.put(ino, (parent, name.to_vec()));
        }
        let known = table.nodes.entry(ino).or_insert_with(|| new_node(ino, stat));
        let is_other = {
            let mut state = known.lock();
            // Of a file that was removed here, and is not open, Gfarm may give the number to another one.
            let was_removed = state.file.unlinked && state.file.slots.is_empty();
            let is_other = state.seen.kind != stat.kind || was_removed;
            state.seen = stat;
            state.changed();
            is_other
        };
        if is_other {
            *known = new_node(ino, stat);
        }
        Arc::clone(known)
    }

    /// Where libgfarm finds it now.
    pub(super) fn path(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        let table = self.lock();
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = ino;
        while at != InodeId::ROOT {
            let Some((parent, name)) = table.places.get(&at).filter(|_| names.len() < DEPTH_MAX)
            else {
                return Err(Refused::because(libc::ESTALE, "it has no name any more"));
            };
            names.push(name);
            at = *parent;
        }
        let mut path = self.base.clone();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if ino == InodeId::ROOT {
            path.push(b'/');
        }
        Ok(path)
    }

    pub(super) fn path_in(&self, parent: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut path = self.path(parent)?;
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Ok(path)
    }

    /// What this host knows there.
    pub(super) fn named(&self, parent: InodeId, name: &[u8]) -> Option<Arc<Node>> {
        let table = self.lock();
        let ino = table.names.get(&(parent, name.to_vec()))?;
        table.nodes.get(ino).cloned()
    }

    /// Whether something here has the file open that Gfarm calls so.
    pub(super) fn is_open(&self, gfarm: u64) -> bool {
        let table = self.lock();
        let node = table.nodes.get(&self.number(&table, gfarm));
        node.is_some_and(|node| !node.lock().file.slots.is_empty())
    }

    /// The name is no more: the node that had it.
    pub(super) fn unname(&self, parent: InodeId, name: &[u8]) -> Option<Arc<Node>> {
        let mut table = self.lock();
        let ino = table.names.remove(&(parent, name.to_vec()))?;
        let had = table.places.get(&ino).is_some_and(|place| place.0 == parent && place.1 == name);
        if had {
            table.places.remove(&ino);
        }
        table.nodes.get(&ino).cloned()
    }

    /// What was `from` is `to` now; what was there is returned.
    pub(super) fn renamed(
        &self,
        from: &(InodeId, Name),
        to: &(InodeId, Name),
    ) -> Option<Arc<Node>> {
        let mut table = self.lock();
        let moved = table.names.get(from).copied();
        if moved.is_some() && moved == table.names.get(to).copied() {
            return None; // two names of one file: both stay
        }
        drop(table);
        let replaced = self.unname(to.0, &to.1);
        table = self.lock();
        table.names.remove(from);
        if let Some(moved) = moved {
            table.put(moved, to.clone());
        }
        replaced
    }

    /// The kernel has dropped it.
    pub(super) fn forget(&self, ino: InodeId) {
        let mut table = self.lock();
        if ino == InodeId::ROOT || !table.nodes.contains_key(&ino) {
            return;
        }
        table.nodes.remove(&ino);
        if let Some(place) = table.places.remove(&ino)
            && table.names.get(&place) == Some(&ino)
        {
            table.names.remove(&place);
        }
    }

    /// The file has another place on this host than the one that the kernel uses: the next look at its name makes
    /// another inode of it.
    pub(super) fn retire(&self, node: &Node) {
        let mut table = self.lock();
        if self.number(&table, node.gfarm) == node.ino {
            *table.incarnations.entry(node.gfarm).or_default() += 1;
        }
    }
}

impl Table {
    /// `ino` is found there, and nothing else is.
    fn put(&mut self, ino: InodeId, place: (InodeId, Name)) {
        if self.places.get(&ino) == Some(&place) {
            self.names.insert(place, ino);
            return;
        }
        self.names.insert(place.clone(), ino);
        self.places.insert(ino, place);
    }
}

fn new_node(ino: InodeId, stat: Stat) -> Arc<Node> {
    let (file, directory) = (OpenFile::default(), Directory::default());
    let state = Mutex::new(State { seen: stat, file, directory });
    let (uses, joining, appending) = (RwLock::default(), Mutex::default(), Mutex::default());
    Arc::new(Node { ino, gfarm: stat.ino, state, uses, joining, appending })
}

#[cfg(test)]
mod tests {
    use hayase_tier::gfarm_lane::Kind;
    use hayase_wire::message::Access;

    use super::super::fake::stat;
    use super::super::open_file::Slot;
    use super::*;

    fn tree(path: &str) -> (Nodes, InodeId, InodeId) {
        let nodes = Nodes::new(path.as_bytes(), stat(2, Kind::Directory));
        let dir = nodes.seen(InodeId::ROOT, b"d", stat(10, Kind::Directory)).ino;
        let file = nodes.seen(dir, b"f", stat(11, Kind::File)).ino;
        (nodes, dir, file)
    }

    fn path(nodes: &Nodes, ino: InodeId) -> String {
        let path = nodes.path(ino);
        path.map_or_else(|why| why.errno.to_string(), |path| String::from_utf8(path).unwrap())
    }

    #[test]
    fn paths_follow_what_is_renamed_here() {
        let (nodes, dir, file) = tree("/home/");
        assert_eq!(
            (path(&nodes, InodeId::ROOT), path(&nodes, file)),
            ("/home/".into(), "/home/d/f".into())
        );
        assert_eq!(nodes.path_in(InodeId::ROOT, b"x").unwrap(), b"/home/x");
        assert!(
            nodes
                .renamed(&(InodeId::ROOT, b"d".to_vec()), &(InodeId::ROOT, b"e".to_vec()))
                .is_none()
        );
        assert_eq!(path(&nodes, file), "/home/e/f");
        let other = nodes.seen(dir, b"g", stat(12, Kind::File)).ino;
        let replaced = nodes.renamed(&(dir, b"g".to_vec()), &(dir, b"f".to_vec())).unwrap();
        assert_eq!((replaced.ino, path(&nodes, other)), (file, "/home/e/f".into()));
        assert_eq!(path(&nodes, file), libc::ESTALE.to_string());
        assert_eq!(nodes.unname(dir, b"f").unwrap().ino, other);
        assert!(nodes.unname(dir, b"f").is_none());
    }

    #[test]
    fn roots_of_all_kinds() {
        assert_eq!(path(&tree("/").0, InodeId::ROOT), "/");
        assert_eq!(path(&tree("/").0, InodeId(11)), "/d/f");
        assert_eq!(path(&tree("gfarm://md:601/").0, InodeId(11)), "gfarm://md:601/d/f");
        assert_eq!(path(&tree("gfarm://md:601/x").0, InodeId::ROOT), "gfarm://md:601/x/");
    }

    #[test]
    fn numbers_are_gfarms_but_for_the_root() {
        let (nodes, ..) = tree("/");
        assert_eq!(nodes.seen(InodeId::ROOT, b"..", stat(2, Kind::Directory)).ino, InodeId::ROOT);
        assert_eq!(nodes.seen(InodeId::ROOT, b"one", stat(1, Kind::File)).ino, InodeId(2));
        assert_eq!(path(&nodes, InodeId(2)), "/one");
    }

    #[test]
    fn the_number_of_a_removed_file_is_another_node_when_nobody_has_it_open() {
        let (nodes, dir, file) = tree("/");
        let before = nodes.get(file).unwrap();
        {
            let open = &mut before.lock().file;
            open.unlinked = true;
            let access = Access { read: true, write: true };
            open.slots.push(Slot { access, file: None });
        }
        assert!(Arc::ptr_eq(&before, &nodes.seen(dir, b"link", stat(11, Kind::File))));
        before.lock().file.slots.clear();
        let after = nodes.seen(dir, b"new", stat(11, Kind::File));
        assert!(!Arc::ptr_eq(&before, &after) && after.ino == file);
        assert!(!after.lock().file.unlinked);
    }

    #[test]
    fn a_number_that_means_something_else_now_is_another_node() {
        let (nodes, dir, file) = tree("/");
        let before = nodes.get(file).unwrap();
        let after = nodes.seen(dir, b"now", stat(11, Kind::Directory));
        assert!(!Arc::ptr_eq(&before, &after) && after.ino == file);
        nodes.retire(&after);
        let again = nodes.seen(dir, b"now", stat(11, Kind::Directory));
        assert!(again.ino != file && again.gfarm == 11);
        nodes.retire(&after);
        assert_eq!(nodes.seen(dir, b"now", stat(11, Kind::Directory)).ino, again.ino, "once");
        nodes.forget(again.ino);
        assert!(nodes.get(again.ino).is_err());
    }
}
