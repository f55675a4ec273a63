//! Random calls on a directory and on the memory model give the same answers.

use hayase_tier::{
    Attributes, Depth, Entry, EntryKind, Key, ListRequest, Memory, Posix, Precondition, Tier,
    TierError,
};
use proptest::prelude::*;

/// Few names that touch each other: objects, directories and neighbours of the slash.
const NAMES: [&str; 8] = ["a", "a/b", "a/b/c", "a.b", "a0", "b", "b/c", "c"];

#[derive(Clone, Debug)]
enum Call {
    Put { name: usize, offset: u64, bytes: Vec<u8>, absent: bool },
    Drop { name: usize },
    Read { name: usize, offset: u64, len: usize },
    SetMode { name: usize, mode: u32 },
    Delete { name: usize },
    Rename { from: usize, to: usize },
    List { prefix: usize, one: bool, limit: usize },
}

fn any_call() -> impl Strategy<Value = Call> {
    let name = || 0..NAMES.len();
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        4 => (name(), 0..50_u64, bytes, any::<bool>())
            .prop_map(|(name, offset, bytes, absent)| Call::Put { name, offset, bytes, absent }),
        1 => name().prop_map(|name| Call::Drop { name }),
        2 => (name(), 0..60_u64, 0..60_usize)
            .prop_map(|(name, offset, len)| Call::Read { name, offset, len }),
        1 => (name(), 0..0o1000_u32).prop_map(|(name, mode)| Call::SetMode { name, mode }),
        2 => name().prop_map(|name| Call::Delete { name }),
        2 => (name(), name()).prop_map(|(from, to)| Call::Rename { from, to }),
        2 => (0..=NAMES.len(), any::<bool>(), 1..5_usize)
            .prop_map(|(prefix, one, limit)| Call::List { prefix, one, limit }),
    ]
}

fn key(name: usize) -> Key {
    Key::new(NAMES[name]).unwrap()
}

/// What both tiers must agree on: the kind of error, sizes, modes and bytes.
fn answer(tier: &dyn Tier, call: &Call) -> String {
    match act(tier, call) {
        Ok(seen) => seen,
        Err(TierError::NotObject { .. }) => "no object".into(),
        Err(TierError::Missing { .. }) => "missing".into(),
        Err(TierError::Exists { .. }) => "exists".into(),
        Err(other) => format!("unexpected: {other:?}"),
    }
}

fn act(tier: &dyn Tier, call: &Call) -> Result<String, TierError> {
    let mode = |mode| Attributes { mode: Some(mode), mtime: None };
    match call {
        Call::Put { name, offset, bytes, absent } => {
            let mut upload = tier.begin(&key(*name), mode(0o600))?;
            upload.write_at(*offset, bytes)?;
            let when = if *absent { Precondition::Absent } else { Precondition::Any };
            upload.commit(when).map(|meta| format!("{} {:o}", meta.size, meta.mode))
        }
        Call::Drop { name } => tier.begin(&key(*name), mode(0o600)).map(|_| "dropped".into()),
        Call::Read { name, offset, len } => {
            let mut buffer = vec![0; *len];
            let reader = tier.open(&key(*name))?;
            let count = reader.read_at(*offset, &mut buffer)?;
            Ok(format!("{:?} {:o}", &buffer[..count], reader.meta().mode))
        }
        Call::SetMode { name, mode: new } => {
            tier.set_attributes(&key(*name), mode(*new))?;
            Ok(format!("{:o}", tier.stat(&key(*name))?.mode))
        }
        Call::Delete { name } => tier.delete(&key(*name)).map(|()| "deleted".into()),
        Call::Rename { from, to } => tier.rename(&key(*from), &key(*to)).map(|()| "renamed".into()),
        Call::List { prefix, one, limit } => {
            let prefix = NAMES.get(*prefix).copied().unwrap_or("");
            let depth = if *one { Depth::One } else { Depth::All };
            listing(tier, ListRequest { depth, limit: *limit, ..ListRequest::all(prefix) })
        }
    }
}

fn listing(tier: &dyn Tier, mut request: ListRequest) -> Result<String, TierError> {
    let mut seen = String::new();
    loop {
        let page = tier.list(&request)?;
        for Entry { name, kind } in page.entries {
            let size = match kind {
                EntryKind::Object(meta) => meta.size.to_string(),
                EntryKind::Directory | EntryKind::Other(_) => String::new(),
            };
            seen.push_str(&format!("{}:{size} ", String::from_utf8_lossy(&name)));
        }
        let Some(next) = page.next else { return Ok(seen) };
        request = request.continued(next);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_directory_answers_as_the_model_does(
        calls in proptest::collection::vec(any_call(), 1..40),
    ) {
        let root = tempfile::tempdir().unwrap();
        let (posix, model) = (Posix::attach(root.path()).unwrap(), Memory::new());
        for call in &calls {
            prop_assert_eq!(answer(&posix, call), answer(&model, call), "{:?}", call);
        }
        let everything = Call::List { prefix: NAMES.len(), one: false, limit: 3 };
        prop_assert_eq!(answer(&posix, &everything), answer(&model, &everything));
    }
}
