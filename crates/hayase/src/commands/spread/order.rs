//! What a worker is told: all of it, so that nothing secret stands in a command line or an environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use hayase_layout::ByteCount;
use hayase_stage::limits::{BATCH_BYTES, BATCH_ITEMS_MAX};
use hayase_stage::pack::{Index, Row};
use hayase_stage::{Options, PackOptions, Share, Sizes};
use serde::{Deserialize, Serialize};

use crate::commands::transfer::{CopyArgs, OverwriteArg, PackArgs};

/// Most that an order tells of files beside packs, in bytes: some 30,000 files.
const LOOSE_BYTES_MAX: usize = 3 << 20;

/// One copy, or a removal, on one node.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) source: OsString,
    pub(crate) target: OsString,
    pub(crate) copy: CopyArgs,
    /// The text of the key of sealed packs: of the source, or of what goes out.
    pub(crate) key: Option<Vec<u8>>,
    /// Node, number of nodes, whether directories are copied.
    pub(crate) share: Option<(u16, u16, bool)>,
    pub(crate) verb: Verb,
    /// How what goes out is packed.
    #[serde(default)]
    pub(crate) pack: PackArgs,
    /// By `run`, where the key of what goes out has options of its own.
    #[serde(default)]
    pub(crate) is_of_run: bool,
    /// Each node has its own source, which may be missing: the directory of all targets.
    #[serde(default)]
    pub(crate) above: Option<OsString>,
    /// On the way through `shared`.
    pub(crate) passing: Option<Passing>,
    /// All nodes have copied their parts, just now: what has the right size is there.
    pub(crate) trusts_sizes: bool,
    /// Every part arrived.
    #[serde(default)]
    pub(crate) is_after_parts: bool,
    /// Indexes without packs: what parts put beside packs.
    #[serde(default)]
    pub(crate) loose: Vec<String>,
    /// What the person's environment says of object stores.
    pub(crate) variables: BTreeMap<String, String>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verb {
    In,
    /// In packs as the order says; the key seals them.
    Out,
    /// Only the set of packs that the order would write into, with its key.
    Begin,
    /// Of the target, which passed its bytes on.
    Remove,
}

/// What passes through `shared` on its way to each node, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Passing {
    /// Large files, as they are.
    Large,
    /// Everything else, in packs: of a small file its name costs more than its bytes, and so it costs
    /// `shared` and each node one name for some hundred files.
    Small,
}

impl Passing {
    /// Changes the options of a copy to it.
    pub(super) fn apply(self, options: &mut Options) {
        options.sizes = match self {
            Self::Large => Sizes::Large,
            Self::Small => Sizes::Small,
        };
        // No larger than what streams take at a time, so that as many streams work.
        options.packs = (self == Self::Small).then(|| PackOptions {
            bytes: BATCH_BYTES,
            entries: BATCH_ITEMS_MAX,
            // Beside the packs lie the large files, and nothing that looks as if it was one.
            is_complete: true,
            ..PackOptions::default()
        });
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key, nor the variables.
        write!(f, "Order({:?} {:?} -> {:?})", self.verb, self.source, self.target)
    }
}

impl Order {
    /// Without a target.
    pub(super) fn new(source: &OsStr, copy: &CopyArgs, key: Option<Vec<u8>>) -> Self {
        Self {
            source: source.to_owned(),
            target: OsString::new(),
            copy: copy.clone(),
            key,
            share: None,
            verb: Verb::In,
            pack: PackArgs::default(),
            is_of_run: false,
            above: None,
            passing: None,
            trusts_sizes: false,
            is_after_parts: false,
            loose: Vec::new(),
            variables: crate::config::store_variables(),
        }
    }

    /// The same into this directory.
    pub(super) fn to(&self, target: PathBuf) -> Self {
        Self { target: target.into(), ..self.clone() }
    }

    /// The same out of this directory, which holds plain files.
    pub(super) fn from(self, source: PathBuf) -> Self {
        Self { source: source.into(), key: None, ..self }
    }

    /// Out to a place.
    pub(super) fn out_to(self, target: OsString, pack: PackArgs, is_of_run: bool) -> Self {
        Self { target, verb: Verb::Out, pack, is_of_run, ..self }
    }

    /// What must be there before several nodes write packs.
    pub(super) fn beginning(self) -> Self {
        Self { verb: Verb::Begin, ..self }
    }

    /// Out to a directory of the node's own below the place, as one of `nodes`.
    pub(super) fn of_node(mut self, node: u16, nodes: u16) -> Self {
        let mut target = self.target.clone();
        target.push(format!("/node-{node}"));
        self.limit_to_one_of(nodes);
        Self { above: Some(self.target), target, ..self }
    }

    /// What the person allows is for all nodes together.
    fn limit_to_one_of(&mut self, nodes: u16) {
        let each = |all: ByteCount| ByteCount((all.get() / u64::from(nodes)).max(1));
        self.copy.bandwidth = self.copy.bandwidth.map(each);
    }

    /// One node's part. Nothing is removed by one that copies no directories: it does not see all.
    pub(super) fn share(&self, node: u16, nodes: u16, directories: bool) -> Self {
        let mut order = Self { share: Some((node, nodes, directories)), ..self.clone() };
        order.copy.delete &= directories;
        order.limit_to_one_of(nodes);
        order
    }

    /// The complete copy after parts that all arrived, and what they told of files beside packs.
    pub(super) fn after_parts(self, loose: Vec<String>) -> Self {
        // What is not told is read again for its checksum.
        let mut room = LOOSE_BYTES_MAX;
        let is_told = |text: &String| {
            let fits = text.len() <= room;
            room -= if fits { text.len() } else { 0 };
            fits
        };
        let loose = loose.into_iter().filter(is_told).collect();
        Self { is_after_parts: true, trusts_sizes: true, loose, ..self }
    }

    /// Rows of [`Self::after_parts`].
    pub(super) fn loose_rows(&self) -> Vec<Row> {
        let read = |text: &String| Index::read(text.as_bytes(), "what a part told").ok();
        self.loose.iter().filter_map(read).flat_map(|index| index.rows).collect()
    }

    /// Where every part is known to have arrived: what has the right size is there.
    pub(super) fn trusting(self, trusts_sizes: bool) -> Self {
        Self { trusts_sizes, ..self }
    }

    /// Only looks at what there is to do.
    pub(super) fn looking(mut self) -> Self {
        (self.copy.dry_run, self.copy.delete) = (true, false);
        self.verb = Verb::In;
        self
    }

    /// An exact copy of what is selected, whatever is said about the real target.
    pub(super) fn mirror(&self, target: PathBuf) -> Self {
        let mut order = self.to(target);
        (order.copy.delete, order.copy.max_delete) = (true, None);
        order.copy.overwrite = OverwriteArg::Changed;
        order
    }

    /// A part of a mirror.
    pub(super) fn passing(&self, passing: Passing) -> Self {
        Self { passing: Some(passing), ..self.clone() }
    }

    /// Removes a directory that [`super::AreaPlace::hidden`] named.
    pub(super) fn removal(target: PathBuf) -> Self {
        let order = Self::new(OsStr::new(""), &CopyArgs::default(), None);
        Self { verb: Verb::Remove, ..order.to(target) }
    }

    /// As the stage crate takes it.
    pub(super) fn part(&self) -> Option<Share> {
        self.share.map(|(node, nodes, directories)| Share { node, nodes, directories })
    }
}

#[cfg(test)]
mod tests {
    use hayase_stage::{Item, Kind, Mtime};
    use hayase_tier::Key;

    use super::*;

    fn order() -> Order {
        let mut copy = CopyArgs::default();
        copy.bandwidth = Some(ByteCount(90));
        Order::new(OsStr::new("from"), &copy, None).to("to".into())
    }

    #[test]
    fn nodes_share_what_the_person_allows() {
        for order in [order().share(1, 3, false), order().of_node(1, 3)] {
            assert_eq!(order.copy.bandwidth, Some(ByteCount(30)), "{order:?}");
        }
        assert_eq!(order().of_node(1, 3).target, "to/node-1");
    }

    #[test]
    fn an_order_tells_no_more_of_loose_files_than_fits() {
        let row = |name: &str| {
            let item = Item {
                name: Key::new(name).unwrap(),
                kind: Kind::File { bytes: 5 },
                mode: 0o644,
                mtime: Mtime::EPOCH,
            };
            Row { item, crc32c: 7, location: None }
        };
        let text = |rows: Vec<Row>| {
            String::from_utf8(Index { packs: Vec::new(), rows }.to_text()).unwrap()
        };
        let many = (0..90_000).map(|number| row(&format!("f{number:06}"))).collect();
        let told = order().after_parts(vec![text(vec![row("odd \n name")]), text(many)]);
        assert!(told.loose_rows() == [row("odd \n name")], "{} rows", told.loose_rows().len());
        assert!(serde_json::to_vec(&told).unwrap().len() < LOOSE_BYTES_MAX);
    }
}
