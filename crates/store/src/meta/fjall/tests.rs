//! What only the store on storage can show: it is there again, or says what is wrong.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use super::*;

fn batch(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(key.to_vec(), value.to_vec());
    batch
}

fn number(number: u32) -> Batch {
    batch(&number.to_be_bytes(), &[b'v'; 20])
}

/// The keys `0..n`, when that is what the store holds.
fn count(store: &FjallStore) -> u32 {
    let pairs = store.scan(&[], &[], usize::MAX).unwrap();
    for (expected, (key, value)) in pairs.iter().enumerate() {
        assert_eq!(**key, (expected as u32).to_be_bytes(), "no prefix of what was committed");
        assert_eq!(*value, [b'v'; 20]);
    }
    pairs.len() as u32
}

#[test]
fn passes_the_suite() {
    let dir = directory();
    let count = std::cell::Cell::new(0);
    super::super::conformance::run(&|| {
        count.set(count.get() + 1);
        Box::new(FjallStore::open(&dir.path().join(count.get().to_string())).unwrap())
    });
}

#[test]
fn one_process_has_it_open() {
    let dir = directory();
    let _first = FjallStore::open(dir.path()).unwrap();
    let second = FjallStore::open(dir.path()).err().expect("a second open");
    assert!(matches!(second, MetaError::Locked { .. }), "{second}");
    assert!(second.help().unwrap().contains("hayase down"));
}

/// What looks torn off is a commit that the other process is writing.
#[test]
fn the_journal_of_an_open_store_is_not_cut() {
    let dir = directory();
    let store = FjallStore::open(dir.path()).unwrap();
    store.commit(number(0)).unwrap();
    let journal = dir.path().join("0.jnl");
    let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
    file.write_all_at(&[1, 7], used(&journal)).unwrap();
    let len = file.metadata().unwrap().len();
    let second = FjallStore::open(dir.path()).err().expect("a second open");
    assert!(matches!(second, MetaError::Locked { .. }), "{second}");
    assert_eq!(file.metadata().unwrap().len(), len);
    drop(store);
    assert_eq!(count(&FjallStore::open(dir.path()).unwrap()), 1);
    assert!(file.metadata().unwrap().len() < len, "what is torn is cut");
}

#[test]
fn missing_storage_is_said() {
    let error = FjallStore::open(Path::new("/proc/nothing/here")).err().expect("an error");
    assert!(error.to_string().contains("/proc/nothing/here"), "{error}");
}

/// Tells a process of [`what_was_committed_survives_kill_9`] that it is the one to be killed, and where
/// its store is.
const VICTIM: &str = "HAYASE_TEST_VICTIM";

/// Commits and says so until it is killed, while another thread syncs.
fn commit_for_ever(path: &Path) {
    let store = FjallStore::open(path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                store.sync().unwrap();
            }
        });
        for i in 0..u32::MAX {
            store.commit(number(i)).unwrap();
            println!("committed {i}");
        }
    });
}

#[test]
fn what_was_committed_survives_kill_9() {
    use std::io::BufRead;
    if let Some(path) = std::env::var_os(VICTIM) {
        return commit_for_ever(Path::new(&path));
    }
    let dir = directory();
    for kill_after in [1, 57, 20_000] {
        let path = dir.path().join(kill_after.to_string());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["meta::fjall::tests::what_was_committed_survives_kill_9"])
            .args(["--exact", "--nocapture"])
            .env(VICTIM, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = io::BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.map_while(Result::ok).filter(|line| line.starts_with("committed"));
        let told = told.take(kill_after).count();
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        assert_eq!(told, kill_after);
        let found = count(&FjallStore::open(&path).unwrap());
        assert!(found >= kill_after as u32, "{found} of {kill_after} commits are left");
    }
}

#[test]
fn what_is_in_no_table_yet_is_bounded() {
    const VALUE_BYTES: usize = 20_000;
    let dir = directory();
    let store = FjallStore::open(dir.path()).unwrap();
    let (writers, each) = (2u32, 2_500u32); // 100 MB
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let store = &store;
            scope.spawn(move || {
                for i in 0..each {
                    let value = vec![i as u8; VALUE_BYTES];
                    store
                        .commit(batch(&[writer.to_be_bytes(), i.to_be_bytes()].concat(), &value))
                        .unwrap();
                    let unwritten = store.database.write_buffer_size();
                    let slack = u64::from(writers) * (VALUE_BYTES as u64 + 100);
                    assert!(unwritten < UNWRITTEN_BYTES_MAX.get() + slack, "{unwritten} bytes");
                }
            });
        }
    });
    // The worker is alive: it writes what waits, though nothing comes any more.
    let start = Instant::now();
    while store.database.write_buffer_size() > 2 * MEMTABLE_BYTES.get() {
        assert!(start.elapsed().as_secs() < 60, "the worker stands still");
        std::thread::sleep(WORKER_WAIT_STEP);
    }
    assert_eq!(store.scan(&[], &[], usize::MAX).unwrap().len() as u32, writers * each);
    drop(store);
    let store = FjallStore::open(dir.path()).unwrap();
    assert_eq!(store.scan(&[], &[], usize::MAX).unwrap().len() as u32, writers * each);
    assert!(store.database.write_buffer_size() <= UNWRITTEN_BYTES_MAX.get());
}

/// A closed store of `commits` commits, and its journal.
fn written(directory: &Path, commits: u32) -> PathBuf {
    let store = FjallStore::open(directory).unwrap();
    (0..commits).for_each(|i| store.commit(number(i)).unwrap());
    directory.join("0.jnl")
}

/// Bytes of the journal before the zeros.
fn used(journal: &Path) -> u64 {
    let mut bytes = Vec::new();
    std::fs::File::open(journal).unwrap().take(HEAD_BYTES).read_to_end(&mut bytes).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1
}

fn change_byte(file: &Path, at: u64) {
    flip(file, 8 * at + 4);
}

fn flip(file: &Path, bit: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).unwrap();
}

#[test]
fn every_flipped_bit_of_the_journal_is_told() {
    let dir = directory();
    let (clean, copy) = (dir.path().join("clean"), dir.path().join("copy"));
    let journal = written(&clean, 3);
    for bit in 0..8 * used(&journal) {
        copy_directory(&clean, &copy);
        flip(&copy.join("0.jnl"), bit);
        match FjallStore::open(&copy) {
            Err(MetaError::Corrupt { path, detail }) => {
                assert_eq!((path, detail.contains("journal")), (copy.join("0.jnl"), true));
            }
            Err(error) => panic!("bit {bit}: {error}"),
            // The sequence number of a batch is under no checksum.
            Ok(store) => assert_eq!(count(&store), 3, "bit {bit}: commits were lost silently"),
        }
        std::fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn a_cut_journal_is_a_prefix() {
    let dir = directory();
    let (clean, copy) = (dir.path().join("clean"), dir.path().join("copy"));
    let journal = written(&clean, 3);
    let used = used(&journal);
    let mut found = Vec::new();
    for len in 0..=used {
        copy_directory(&clean, &copy);
        let file = std::fs::OpenOptions::new().write(true).open(copy.join("0.jnl")).unwrap();
        file.set_len(len).unwrap();
        let store = FjallStore::open(&copy).unwrap();
        found.push(count(&store));
        store.commit(number(*found.last().unwrap())).unwrap();
        drop(store);
        assert_eq!(count(&FjallStore::open(&copy).unwrap()), found.last().unwrap() + 1);
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!(found.is_sorted() && found[0] == 0 && *found.last().unwrap() == 3, "{found:?}");
}

/// A store of three commits that were synced and two that were not: where the synced ones end, and all.
fn synced_in_part(directory: &Path) -> (u64, u64) {
    let journal = directory.join("0.jnl");
    let store = FjallStore::open(directory).unwrap();
    (0..3).for_each(|i| store.commit(number(i)).unwrap());
    store.sync().unwrap();
    let synced = used(&journal);
    (3..5).for_each(|i| store.commit(number(i)).unwrap());
    (synced, used(&journal))
}

fn is_shortened(opened: Result<FjallStore, MetaError>, journal: &Path, told: &str) -> bool {
    match opened {
        Err(MetaError::Corrupt { path, detail }) => {
            assert_eq!((path.as_path(), detail.contains(told)), (journal, true), "{detail}");
            true
        }
        Err(error) => panic!("{error}"),
        Ok(store) => {
            assert!(count(&store) >= 3, "commits that were synced are lost silently");
            false
        }
    }
}

/// A file that is cut, and sectors that storage has lost.
#[test]
fn a_journal_without_what_was_synced_is_damaged() {
    let dir = directory();
    let (clean, copy) = (dir.path().join("clean"), dir.path().join("copy"));
    let (synced, used) = synced_in_part(&clean);
    let told = format!("{synced} bytes of it were synced");
    let cuts = (0..=used).map(|len| (len, false));
    for (len, lost) in cuts.chain((0..=used).step_by(7).map(|len| (len, true))) {
        copy_directory(&clean, &copy);
        let journal = copy.join("0.jnl");
        let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
        match lost {
            true => file.write_all_at(&vec![0; (used - len) as usize], len).unwrap(),
            false => file.set_len(len).unwrap(),
        }
        let is_damaged = is_shortened(FjallStore::open(&copy), &journal, &told);
        assert_eq!(is_damaged, len < synced, "{len} of {synced}, lost {lost}");
        std::fs::remove_dir_all(&copy).unwrap();
    }
}

/// Its bytes have more than a sector of zeros: what is damaged was taken for torn.
#[test]
fn zeros_that_were_synced_are_not_torn() {
    let dir = directory();
    let store = FjallStore::open(dir.path()).unwrap();
    store.commit(batch(b"zeros", &[0; 4096])).unwrap();
    store.sync().unwrap();
    drop(store);
    let journal = dir.path().join("0.jnl");
    change_byte(&journal, used(&journal) - 6);
    assert!(is_shortened(FjallStore::open(dir.path()), &journal, "were synced"));
}

#[test]
fn a_journal_that_is_gone_is_missed() {
    let dir = directory();
    synced_in_part(dir.path());
    let journal = dir.path().join("0.jnl");
    std::fs::remove_file(&journal).unwrap();
    assert!(is_shortened(FjallStore::open(dir.path()), &journal, "is missing"));
}

#[test]
fn without_a_note_of_what_was_synced_nothing_is_believed() {
    let dir = directory();
    synced_in_part(dir.path());
    let note = dir.path().join("synced");
    let good = std::fs::read(&note).unwrap();
    let earlier = "an earlier version of hayase wrote these names: resume with that";
    let (short, other) = (&good[..7], vec![7; good.len()]);
    for (bad, told) in
        [(None, earlier), (Some(short), "can not be read"), (Some(&other[..]), "can not be read")]
    {
        std::fs::remove_file(&note).unwrap();
        if let Some(bytes) = bad {
            std::fs::write(&note, bytes).unwrap();
        }
        assert!(is_shortened(FjallStore::open(dir.path()), &note, told));
        std::fs::write(&note, &good).unwrap();
    }
    assert_eq!(count(&FjallStore::open(dir.path()).unwrap()), 5);
}

/// After a start the journal is followed from where it ended.
#[test]
fn what_a_later_process_syncs_is_noted() {
    let dir = directory();
    synced_in_part(dir.path());
    let store = FjallStore::open(dir.path()).unwrap();
    store.commit(number(5)).unwrap();
    store.sync().unwrap();
    drop(store);
    let journal = dir.path().join("0.jnl");
    let synced = used(&journal);
    let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
    file.set_len(synced - 1).unwrap();
    let told = format!("{synced} bytes of it were synced");
    assert!(is_shortened(FjallStore::open(dir.path()), &journal, &told));
}

#[test]
fn a_note_that_the_power_cut_short_is_begun_once_more() {
    let dir = directory();
    std::fs::write(dir.path().join("synced"), b"").unwrap();
    synced_in_part(dir.path());
    assert_eq!(count(&FjallStore::open(dir.path()).unwrap()), 5);
}

/// Commits between syncs that fill more than one journal, and a length for each that is left.
#[test]
fn journals_are_followed_when_the_next_one_is_begun() {
    const VALUE_BYTES: usize = 200_000;
    let dir = directory();
    let store = FjallStore::open(dir.path()).unwrap();
    let commit = |from: u32, to: u32| {
        for i in from..to {
            store.commit(batch(&i.to_be_bytes(), &vec![i as u8 | 1; VALUE_BYTES])).unwrap();
        }
    };
    let journals =
        || journal::journals(dir.path()).unwrap().into_iter().map(|(journal, _)| journal).collect();
    let noted = || -> Vec<(u64, u64)> {
        let (_, noted) = lengths::Lengths::read(dir.path()).unwrap().unwrap();
        noted.into_iter().collect()
    };
    commit(0, 10);
    store.sync().unwrap();
    assert_eq!(noted(), [(0, used_of(&dir.path().join("0.jnl")).unwrap())]);
    commit(10, 1000); // 200 MB
    store.names.rotate_memtable_and_wait().unwrap();
    commit(1000, 1001);
    store.sync().unwrap();
    let left: Vec<u64> = journals();
    assert!(*left.last().unwrap() >= 2, "{left:?}");
    let lengths: std::collections::BTreeMap<u64, u64> = noted().into_iter().collect();
    for journal in left {
        // The worker may have removed it since.
        if let Some(used) = used_of(&dir.path().join(format!("{journal}.jnl"))) {
            assert_eq!(lengths.get(&journal), Some(&used), "{journal}: {lengths:?}");
        }
    }
    drop(store);
    let last = journal::journals(dir.path()).unwrap().pop().unwrap().1;
    let file = std::fs::OpenOptions::new().write(true).open(&last).unwrap();
    let len = used_of(&last).unwrap();
    file.set_len(len - 1).unwrap();
    match FjallStore::open(dir.path()) {
        Err(MetaError::Corrupt { path, .. }) => assert_eq!(path, last),
        other => panic!("{:?}", other.err()),
    }
}

/// Each journal that is there has at least as many bytes as the note says. No note where both slots were being written.
fn check_noted(directory: &Path) -> Option<()> {
    let (_, noted) = lengths::Lengths::read(directory).unwrap()?;
    for (journal, len) in noted {
        let used = used_of(&directory.join(format!("{journal}.jnl"))).unwrap_or(u64::MAX);
        assert!(len <= used, "{len} of {used} bytes of journal {journal} are noted");
    }
    Some(())
}

/// Threads commit and sync while journals are begun and removed: no note tells of more than there is.
#[test]
fn commits_syncs_and_new_journals_at_once_note_nothing_that_is_not_there() {
    const VALUE_BYTES: usize = 50_000;
    let (writers, each) = (3u32, 1_400u32); // 210 MB
    let dir = directory();
    let store = FjallStore::open(dir.path()).unwrap();
    let left = AtomicU64::new(writers.into());
    let is_over = || left.load(Ordering::Acquire) == 0;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (store, left) = (&store, &left);
            scope.spawn(move || {
                for i in 0..each {
                    let key = [writer.to_be_bytes(), i.to_be_bytes()].concat();
                    store.commit(batch(&key, &[i as u8 | 1; VALUE_BYTES])).unwrap();
                    if i % 16 == writer {
                        store.sync().unwrap();
                    }
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        scope.spawn(|| {
            while !is_over() {
                store.sync().unwrap();
            }
        });
        scope.spawn(|| {
            while !is_over() {
                store.names.rotate_memtable_and_wait().unwrap();
            }
        });
        while !is_over() {
            check_noted(dir.path());
        }
    });
    store.sync().unwrap();
    check_noted(dir.path()).expect("a note");
    let journals = journal::journals(dir.path()).unwrap();
    assert!(journals.last().unwrap().0 > 0, "no other journal was ever begun");
    drop(store);
    let store = FjallStore::open(dir.path()).unwrap();
    assert_eq!(store.scan(&[], &[], usize::MAX).unwrap().len() as u32, writers * each);
}

/// As [`used`], of a journal of any length; `None` where tables have what was in it, and it is gone.
fn used_of(journal: &Path) -> Option<u64> {
    let bytes = match std::fs::read(journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        bytes => bytes.unwrap(),
    };
    Some(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1))
}

#[test]
fn a_hole_left_by_a_power_cut_is_a_prefix() {
    let dir = directory();
    let directory = dir.path().join("meta");
    let journal = written(&directory, 2);
    let before = used(&journal);
    let store = FjallStore::open(&directory).unwrap();
    store.commit(batch(b"large", &[b'x'; 3000].map(|byte| byte + 1).repeat(8))).unwrap();
    store.commit(number(3)).unwrap();
    drop(store);
    // One page in the middle of the large batch did not reach the disk; what follows did.
    let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
    assert!(used(&journal) > 2 * PAGE_BYTES, "the batch is large enough to have a hole");
    file.write_all_at(&[0; PAGE_BYTES as usize], before.next_multiple_of(PAGE_BYTES)).unwrap();
    assert_eq!(count(&FjallStore::open(&directory).unwrap()), 2);
}

const PAGE_BYTES: u64 = 4096;

#[test]
fn damaged_tables_and_settings_are_told() {
    let dir = directory();
    let clean = dir.path().join("clean");
    let store = FjallStore::open(&clean).unwrap();
    (0..2_000).for_each(|i| store.commit(number(i)).unwrap());
    store.names.rotate_memtable_and_wait().unwrap();
    drop(store);
    let mut damaged = 0;
    for file in files(&clean) {
        let len = std::fs::metadata(&file).unwrap().len();
        if file.extension().is_some_and(|extension| extension == "jnl") || len == 0 {
            continue;
        }
        for at in [0, len / 3, len / 2, len - 1] {
            let copy = dir.path().join("copy");
            copy_directory(&clean, &copy);
            change_byte(&copy.join(file.strip_prefix(&clean).unwrap()), at);
            let all = FjallStore::open(&copy).and_then(|store| store.scan(&[], &[], usize::MAX));
            match all {
                Ok(pairs) => assert_eq!(pairs.len(), 2_000, "{} byte {at}", file.display()),
                Err(MetaError::Corrupt { .. }) => damaged += 1,
                Err(error) => panic!("{} byte {at}: {error}", file.display()),
            }
            std::fs::remove_dir_all(&copy).unwrap();
        }
    }
    assert!(damaged > 0, "no damage was ever noticed");
}

/// A panic of fjall would be told by an abort where it is not alone.
#[test]
fn every_flipped_bit_of_a_list_of_tables_is_told() {
    let dir = directory();
    let clean = dir.path().join("clean");
    let store = FjallStore::open(&clean).unwrap();
    (0..10).for_each(|i| store.commit(number(i)).unwrap());
    store.names.rotate_memtable_and_wait().unwrap();
    drop(store);
    let is_list = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name == "current" || name.strip_prefix('v').is_some_and(|id| id.parse::<u64>().is_ok())
    };
    let mut told = 0;
    for file in files(&clean).into_iter().filter(is_list) {
        let good = std::fs::read(&file).unwrap();
        let is_current = file.ends_with("current");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&file, bad).unwrap();
            match versions::check(&clean) {
                Err(MetaError::Corrupt { .. }) => told += 1,
                Ok(()) => assert!(!is_current, "bit {bit} of {}", file.display()),
                Err(error) => panic!("bit {bit} of {}: {error}", file.display()),
            }
        }
        for len in 0..good.len() {
            std::fs::write(&file, &good[..len]).unwrap();
            assert!(
                versions::check(&clean).is_err() || !is_current,
                "{} cut at {len}",
                file.display()
            );
        }
        std::fs::write(&file, good).unwrap();
    }
    assert!(told > 8 * 500, "{told}");
    assert_eq!(count(&FjallStore::open(&clean).unwrap()), 10);
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all
}

fn copy_directory(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        // Journals are 64 MiB of mostly nothing.
        let (source, target) =
            (std::fs::File::open(&file).unwrap(), std::fs::File::create(&target).unwrap());
        io::copy(&mut (&source).take(HEAD_BYTES), &mut &target).unwrap();
        target.set_len(source.metadata().unwrap().len()).unwrap();
    }
}

/// More than these tests write to any file.
const HEAD_BYTES: u64 = 1 << 20;

/// Many stores are opened here, and each syncs a lot: in memory that costs nothing.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The journals still have what a table did not get.
#[test]
fn a_table_that_could_not_be_written_loses_nothing() {
    let dir = directory();
    let store = FjallStore::open(dir.path()).unwrap();
    store.commit(number(0)).unwrap();
    let failed = |error| match store.failed("change", error) {
        MetaError::Failed { is_whole, .. } => is_whole,
        other => panic!("{other}"),
    };
    assert!(failed(fjall::Error::Poisoned));
    let of = |errno: i32| fjall::Error::Io(io::Error::from_raw_os_error(errno));
    assert!(failed(of(libc::ENOSPC)) && failed(of(libc::EDQUOT)));
    assert!(!failed(of(libc::EIO)));
}

/// The worker syncs its journal meanwhile, which is no part of this.
#[test]
fn a_commit_waits_for_no_sync() {
    static IS_OPEN: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    static SYNCS: AtomicU64 = AtomicU64::new(0);
    const VALUE_BYTES: usize = 20_000;
    let dir = directory();
    let mut store = FjallStore::open(dir.path()).unwrap();
    store.sync_file = |file| {
        SYNCS.fetch_add(1, Ordering::AcqRel);
        drop(CHANGED.wait_while(IS_OPEN.lock().unwrap(), |is_open| !*is_open).unwrap());
        file.sync_data()
    };
    store.commit(number(0)).unwrap();
    let store = Arc::new(store);
    let syncing = Arc::clone(&store);
    let syncing = std::thread::spawn(move || syncing.sync());
    while SYNCS.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    let (tell, told) = std::sync::mpsc::channel();
    let committing = Arc::clone(&store);
    let committing = std::thread::spawn(move || {
        // More than a memtable, which is handed over.
        for i in 0..1000u32 {
            committing.commit(batch(&i.to_le_bytes(), &[7; VALUE_BYTES])).unwrap();
        }
        tell.send(()).unwrap();
    });
    let committed = told.recv_timeout(Duration::from_secs(20));
    let is_syncing = !syncing.is_finished();
    *IS_OPEN.lock().unwrap() = true;
    CHANGED.notify_all();
    syncing.join().unwrap().unwrap();
    committing.join().unwrap();
    committed.expect("it waited for the sync");
    assert!(is_syncing);
    // What came meanwhile is for the next one.
    store.sync().unwrap();
    assert_eq!(SYNCS.load(Ordering::Acquire), 2);
}

#[test]
fn after_a_sync_that_failed_everything_is_refused() {
    let dir = directory();
    let mut store = FjallStore::open(dir.path()).unwrap();
    store.commit(number(0)).unwrap();
    store.sync_file = |_| Err(io::Error::from_raw_os_error(libc::EIO));
    let is_lost = |done| matches!(done, Err(MetaError::Failed { is_whole: false, .. }));
    assert!(is_lost(store.sync()));
    store.sync_file = File::sync_data;
    assert!(is_lost(store.sync()), "no later sync tells what was lost");
    assert!(is_lost(store.commit(number(1))));
    drop(store);
    assert_eq!(count(&FjallStore::open(dir.path()).unwrap()), 1);
}

/// A commit that has passed [`FjallStore::check_sync`] waits for the sync that gets the error.
#[test]
fn a_store_that_fails_after_a_sync_that_failed_has_no_full_disk() {
    let dir = directory();
    let mut store = FjallStore::open(dir.path()).unwrap();
    store.commit(number(0)).unwrap();
    assert!(is_whole(&store));
    store.sync_file = |_| Err(io::Error::from_raw_os_error(libc::EIO));
    assert!(store.sync().is_err());
    assert!(!is_whole(&store));
}

/// Whether a failure of the worker is taken for that of a table.
fn is_whole(store: &FjallStore) -> bool {
    match store.failed("change", fjall::Error::Poisoned) {
        MetaError::Failed { is_whole, .. } => is_whole,
        other => panic!("{other}"),
    }
}

#[test]
fn who_waits_in_time_never_waits_in_a_commit() {
    const VALUE_BYTES: usize = 20_000;
    let dir = directory();
    let store = FjallStore::open(dir.path()).unwrap();
    let mut waits = 0;
    for i in 0..5_000u32 {
        if store.is_behind() {
            store.catch_up().unwrap();
            waits += 1;
        }
        assert!(store.in_memtable.load(Ordering::Relaxed) < MEMTABLE_BYTES.get(), "none is full");
        assert!(store.database.write_buffer_size() < BEHIND_BYTES, "the worker has caught up");
        store.commit(batch(&i.to_be_bytes(), &[7; VALUE_BYTES])).unwrap();
    }
    assert!(waits >= 10, "{waits} times in 100 MB");
}
