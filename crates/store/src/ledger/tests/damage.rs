//! Every bit of a ledger flipped, every byte of it the last one: what is lost is reported.

use super::*;

type States = BTreeMap<u64, (FileState, u64)>;

/// A ledger of some twenty records, of which the last few were not synced.
struct Sample {
    device: Arc<MemoryDevice>,
    generation: u32,
    /// What each of the copies holds.
    bytes: Vec<u8>,
    /// The states that the ledger had, and where its log ended then.
    states: Vec<(usize, States)>,
    synced: usize,
}

impl Sample {
    fn new(unsynced: u64) -> Self {
        let device = Arc::new(MemoryDevice::new());
        let mut ledger = Ledger::open(device.clone()).unwrap();
        let mut seen = vec![(ledger.end as usize, states(&ledger))];
        let mut synced = 0;
        for step in 0..20 {
            match step % 7 {
                6 => ledger.remove(InodeId(step / 2)).unwrap(),
                _ => ledger.put(record(step % 13, FileState::Dirty, step)).unwrap(),
            }
            if step % 5 == 0 || step + unsynced == 19 {
                ledger.sync().unwrap();
                synced = ledger.end as usize;
            }
            seen.push((ledger.end as usize, states(&ledger)));
        }
        let generation = ledger.copies.generation();
        let mut bytes = vec![0; ledger.end as usize];
        let file = device.open(log_id(generation, 0)).unwrap();
        assert_eq!(file.read_at(LocalOffset(0), &mut bytes).unwrap(), bytes.len());
        Self { device, generation, bytes, states: seen, synced }
    }

    fn last(&self) -> &States {
        &self.states.last().unwrap().1
    }

    fn write(&self, copy: u16, bytes: &[u8]) {
        let file = self.device.open(log_id(self.generation, copy)).unwrap();
        file.truncate(bytes.len() as u64).unwrap();
        file.write_at(LocalOffset(0), bytes).unwrap();
    }

    /// The same files on another device, which may be opened.
    fn copied(&self) -> Arc<MemoryDevice> {
        let copied = Arc::new(MemoryDevice::new());
        for id in self.device.list().unwrap() {
            let from = self.device.open(id).unwrap();
            let mut bytes = vec![0; from.stat().unwrap().size as usize];
            from.read_at(LocalOffset(0), &mut bytes).unwrap();
            copied.create(id).unwrap().write_at(LocalOffset(0), &bytes).unwrap();
        }
        copied
    }

    fn look(&self) -> Result<States, LedgerError> {
        let records = Ledger::look(&*self.device)?;
        Ok(records.iter().map(|record| (record.ino.0, (record.state, record.bytes))).collect())
    }

    /// Calls `check` with every bit flipped, in these copies.
    fn flip_each(&self, copies: &[u16], mut check: impl FnMut(&Self, usize, u8)) {
        let files: Vec<_> = copies
            .iter()
            .map(|copy| self.device.open(log_id(self.generation, *copy)).unwrap())
            .collect();
        for (at, byte) in self.bytes.iter().enumerate() {
            for bit in 0..8 {
                let write = |byte| {
                    for file in &files {
                        file.write_at(LocalOffset(at as u64), &[byte]).unwrap();
                    }
                };
                write(byte ^ (1 << bit));
                check(self, at, bit);
                write(*byte);
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_one_copy_is_mended_from_the_other() {
    for copy in [0, 1] {
        Sample::new(3).flip_each(&[copy], |sample, at, bit| {
            let place = format!("byte {at}, bit {bit} of copy {copy}");
            assert_eq!(&sample.look().expect(&place), sample.last(), "{place}");
            // Opening one writes it again: one bit of each byte is enough.
            if usize::from(bit) == at % 8 {
                let device = sample.copied();
                let ledger = Ledger::open(device.clone()).expect(&place);
                assert_eq!(&states(&ledger), sample.last(), "{place}");
                let (again, read) = newest(&*device).unwrap().1.unwrap();
                assert!(again.whole_copies(&read).is_some(), "{place}");
            }
        });
    }
}

#[test]
fn a_flipped_bit_of_both_copies_is_told() {
    for unsynced in [0, 3] {
        let (mut told, mut harmless) = (0, 0);
        Sample::new(unsynced).flip_each(&[0, 1], |sample, at, bit| match sample.look() {
            Ok(states) => {
                assert_eq!(&states, sample.last(), "byte {at}, bit {bit}");
                harmless += 1;
            }
            Err(LedgerError::Damaged { offset, .. }) => {
                assert!(offset <= at as u64, "{offset} for byte {at}");
                told += 1;
            }
            Err(error) => panic!("byte {at}, bit {bit}: {error}"),
        });
        assert!(told > 8 * 500 && harmless <= 8 * 1024, "{told} and {harmless}");
    }
}

#[test]
fn a_damaged_ledger_stays_as_it_is() {
    let sample = Sample::new(0);
    let mut bytes = sample.bytes.clone();
    bytes[1100] ^= 4;
    sample.write(0, &bytes);
    sample.write(1, &bytes);
    let device = sample.copied();
    for _ in 0..2 {
        let Err(LedgerError::Damaged { file, offset, .. }) = Ledger::open(device.clone()) else {
            panic!("it was believed");
        };
        assert!(file.to_string_lossy().starts_with("0000000000000000."), "{file:?}");
        assert!((1024..=1100).contains(&offset), "{offset}");
    }
    for copy in [0, 1] {
        let file = device.open(log_id(sample.generation, copy)).unwrap();
        let mut found = vec![0; bytes.len() + 1];
        assert_eq!(file.read_at(LocalOffset(0), &mut found).unwrap(), bytes.len());
        assert_eq!(found[..bytes.len()], bytes);
    }
}

#[test]
fn what_is_behind_the_damage_is_salvaged() {
    let sample = Sample::new(0);
    // The first record of a file of which there is a later one.
    let at = sample.states[1].0 + 20;
    let mut bytes = sample.bytes.clone();
    bytes[at] ^= 4;
    sample.write(0, &bytes);
    sample.write(1, &bytes);
    let salvaged = Ledger::salvage(&*sample.device).unwrap();
    assert_eq!(salvaged.damage.len(), 2, "{:?}", salvaged.damage);
    let found: BTreeMap<_, _> = salvaged
        .records
        .values()
        .map(|record| (record.ino.0, (record.state, record.bytes)))
        .collect();
    // A later record of the same file is there.
    assert_eq!(&found, sample.last());
}

#[test]
fn a_copy_that_is_cut_is_mended_from_the_other() {
    let sample = Sample::new(3);
    for copy in [0, 1] {
        for len in 0..sample.bytes.len() {
            sample.write(copy, &sample.bytes[..len]);
            assert_eq!(&sample.look().unwrap(), sample.last(), "copy {copy} cut at {len}");
        }
        sample.write(copy, &sample.bytes);
        let device = sample.copied();
        device.remove(log_id(sample.generation, copy)).unwrap();
        assert_eq!(&states(&Ledger::open(device).unwrap()), sample.last());
    }
}

/// A crash cuts off what was not synced. What was is not cut off by one.
#[test]
fn copies_that_are_cut_have_a_state_that_there_was_or_are_damaged() {
    let sample = Sample::new(3);
    for len in 0..sample.bytes.len() {
        sample.write(0, &sample.bytes[..len]);
        sample.write(1, &sample.bytes[..len]);
        match sample.look() {
            Ok(states) => {
                let last = sample.states.iter().rev().find(|(end, _)| *end <= len).unwrap();
                assert!(len >= sample.synced && states == last.1, "cut at {len}");
            }
            Err(LedgerError::Damaged { .. }) => assert!(len < sample.synced, "cut at {len}"),
            Err(error) => panic!("cut at {len}: {error}"),
        }
    }
}

/// Until the first log of a ledger is durable, it has no records.
#[test]
fn a_ledger_that_was_never_begun_is_begun_again() {
    for survivors in 0..64_u32 {
        let device = Arc::new(CrashDevice::new());
        device.create(log_id(BEGINNING, 0)).unwrap().sync(false).unwrap();
        for copy in [0, 1] {
            let file = device.create(log_id(1, copy)).unwrap();
            file.write_at(LocalOffset(0), &[0; 1030]).unwrap();
        }
        let mut survivors = survivors;
        let left = device.after_power_cut(|| {
            survivors >>= 1;
            survivors & 1 == 1
        });
        let ledger = Ledger::open(Arc::new(left)).unwrap();
        assert!(states(&ledger).is_empty());
    }
}

#[test]
fn a_log_of_an_earlier_format_is_told() {
    let device = Arc::new(MemoryDevice::new());
    let payload = [6, 2]; // `Complete`
    let mut log = vec![2, 0, 0, 0];
    log.extend_from_slice(&xxhash_rust::xxh3::xxh3_64_with_seed(&payload, 0).to_le_bytes());
    log.extend_from_slice(&payload);
    device.create(log_id(0, 0)).unwrap().write_at(LocalOffset(0), &log).unwrap();
    let told = Ledger::open(device).map(drop);
    assert!(matches!(told, Err(LedgerError::Format { found: 6, .. })), "{told:?}");
}
