//! What can be wrong with packs, told so that a caller can branch and a person can act.

use hayase_tier::{KeyError, TierError};

/// Why packs can not be read or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what each message is made of")]
pub enum PackError {
    /// The storage said so.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The place holds no packs.
    #[error("there are no packs in {place}")]
    NoPacks { place: String },
    /// Packs, and no index that says what counts of them.
    #[error("{place} has packs without an index")]
    IndexLost { place: String },
    /// Nothing is to be made again.
    #[error("the packs in {place} already have an index")]
    IndexThere { place: String },
    /// What is sealed is opened only by who copies it to plain files.
    #[error("the source {place} holds sealed packs")]
    SourceSealed { place: String },
    /// Nothing to be kept, and everything else to be removed.
    #[error("{place} is empty, and all files at the target would be removed")]
    RemovesAll { place: String },
    /// Nothing at all where a tree was to be: a store has no empty directories.
    #[error("{place} is empty or does not exist")]
    Nothing { place: String },
    /// Loose files would not be seen beside the packs.
    #[error(
        "{place} has packs, and this copy does not create packs: readers would still read the packs"
    )]
    TargetPacked { place: String },
    /// Loose files would come back when they are removed from the packs.
    #[error("{place} has files that are not packed, and this copy creates packs")]
    TargetLoose { place: String },
    /// Bytes are not what was written: damage, truncation, or somebody's intent.
    #[error("{object} is damaged: {why}")]
    Damaged { object: String, why: String },
    /// It was to be in the same pack as something that failed.
    #[error("its pack was not written: {why}")]
    Unwritten { why: String },
    /// A line of an index says what can not be.
    #[error("{object} is damaged: line {line}: {why}")]
    Line { object: String, line: u64, why: &'static str },
    /// An entry's bytes have another checksum than its row.
    #[error("entry {name} in {object} is damaged: {why}")]
    Entry { object: String, name: String, why: &'static str },
    /// What stands in the source is nothing that can be copied, or nothing that the target can have.
    #[error("left out: {why}")]
    LeftOut { why: &'static str },
    /// The target has something of another kind under this name, and it stays.
    #[error("{why}")]
    InTheWay { why: &'static str },
    /// More would go than the person allowed.
    #[error("{count} names would be removed, but --max-delete is {max}: nothing was removed")]
    TooManyRemovals { count: u64, max: u64 },
    /// Written by a later version.
    #[error("{object} has version {found} of the format; this program reads version 1")]
    Version { object: String, found: u32 },
    /// The set is sealed.
    #[error("the packs in {place} are sealed, and no key was given")]
    KeyMissing { place: String },
    /// The set is not sealed.
    #[error("a key was given, but the packs in {place} are not sealed")]
    KeyUnexpected { place: String },
    /// Another key.
    #[error("wrong key for the packs in {place}: they need key {wanted}, this is {given}")]
    WrongKey { place: String, wanted: String, given: String },
    /// Sealed packs, and no object that holds their data key.
    #[error("{place}/.hayase-packs/key.json is missing: without it no key opens the packs")]
    KeyLost { place: String },
    /// Nobody else may write the first key, and the storage can not promise that.
    #[error(
        "cannot create sealed packs in {place}: the storage cannot create an object only if it does not exist"
    )]
    FirstKey { place: String },
    /// A bucket may hold both, a tree does not.
    #[error("the packs in {place} are not a tree: {name} is both a file and a directory")]
    TwoKinds { place: String, name: String },
    /// No key at all.
    #[error("{0}")]
    KeyFormat(&'static str),
    /// The system gives no randomness.
    #[error("the system provides no random numbers")]
    Random,
    /// The file was not what it was when staging began.
    #[error("{name} changed while it was read")]
    Changed { name: String },
    /// Another process changed the set meanwhile.
    #[error("another program changed the packs in {place} at the same time; nothing was replaced")]
    Conflict { place: String },
    /// A name of the tree and the place together are too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// zstd does not want to.
    #[error("compress {name}")]
    Compress { name: String, source: std::io::Error },
}

impl PackError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Tier(error) => error.help(),
            Self::NoPacks { .. } => Some(
                "name the directory that `hayase pack create` or `hayase stage out --pack` wrote",
            ),
            Self::IndexLost { .. } => Some(
                "rebuild it with `hayase pack reindex`; to continue a first copy that was interrupted within a day, run it again",
            ),
            Self::IndexThere { .. } => Some(
                "`hayase pack verify` checks whether it is damaged; if so, move the index-* files away first",
            ),
            Self::SourceSealed { .. } => {
                Some("copy it to plain files first, with `hayase stage in` and the key")
            }
            Self::RemovesAll { .. } => {
                Some("check whether the source is mounted; if you mean it, use --max-delete N")
            }
            Self::Nothing { .. } => Some("check the name"),
            Self::TargetPacked { .. } => Some(
                "copy to another place, or remove the directory .hayase-packs there first; `stage out --pack` adds to packs",
            ),
            Self::TargetLoose { .. } => Some(
                "copy to another place, or remove the files first; `stage out --pack none` adds to files",
            ),
            Self::Damaged { .. } | Self::Line { .. } | Self::Entry { .. } => Some(
                "`hayase pack verify` lists all damage; write the packs again from their source",
            ),
            Self::LeftOut { .. } => Some("rename it, or exclude it with --exclude"),
            Self::InTheWay { .. } => Some("move it away, or use --delete"),
            Self::TooManyRemovals { .. } => {
                Some("list the names with --dry-run, then choose --max-delete")
            }
            Self::Version { .. } => Some("use a newer hayase"),
            Self::KeyLost { .. } => Some(
                "restore a copy of it, even one from before a `pack rekey`; without a copy the data is lost",
            ),
            Self::FirstKey { .. } => Some(
                "set credentials; or set HAYASE_S3_CONDITIONAL=trusted if the store supports If-None-Match; or do not seal",
            ),
            Self::KeyMissing { .. } => {
                Some("give the key with --key-file, --key-env or --key-command")
            }
            Self::WrongKey { .. } => {
                Some("use the key of the last `pack rekey`, or the one that sealed them")
            }
            Self::KeyUnexpected { .. } => Some("omit the key, or check the path"),
            Self::KeyFormat(_) => Some(
                "create one with `openssl rand -hex 32 > KEYFILE`, and keep it: without it the data is lost",
            ),
            Self::Changed { .. } | Self::Conflict { .. } => Some("run the same command again"),
            Self::TwoKinds { .. } => {
                Some("copy them with `hayase stage in`, and exclude one of the two with --exclude")
            }
            Self::Unwritten { .. } | Self::Random | Self::Key(_) | Self::Compress { .. } => None,
        }
    }
}
