//! Small files that outlive the process that wrote them: JSON with a checksum.
//!
//! Here: reading and writing them, and two durable copies of those without which nothing else can be found. Not here:
//! what they say.
//!
//! A file appears by rename(2) when its bytes are on storage, so no crash tears one: whatever can not be read, or has
//! another checksum than its text, is damaged. It is never taken for one that is not there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest file that is read.
const BYTES_MAX: u64 = 4 << 20;

/// How the text of a structure ends.
const END: &str = "\n}";

/// Before the checksum, which is the last field.
const CHECKSUM: &str = ",\n  \"checksum\": \"";

/// Behind it.
const CHECKSUM_END: &str = "\"\n}\n";

/// Digits of the checksum: the first half of BLAKE3.
const DIGITS: usize = 32;

/// Behind the name of a file, until it is written.
const UNFINISHED: &str = ".new-";

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeptFileError {
    /// It is not as it was written.
    #[error("{} is damaged: {why}", .path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// In words.
        why: String,
    },
    /// What it says of processes means nothing here.
    #[error("{} was written in another container (PID namespace), whose processes are not visible here", .path.display())]
    OtherProcesses {
        /// Which.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{action} {}", .path.display())]
    Io {
        /// Verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes a structure, for the owner's eyes only. After a power cut it is there whole, or as it was before.
pub(crate) fn write(path: &Path, content: &impl Serialize) -> Result<(), KeptFileError> {
    let text = serde_json::to_string_pretty(content).expect("it is plain data");
    let body = text.strip_suffix(END).expect("it is a structure with fields");
    let sum = checksum(body);
    write_bytes(path, format!("{body}{CHECKSUM}{sum}{CHECKSUM_END}").as_bytes())
}

/// What was written; `None` where nothing was.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, KeptFileError> {
    read_by(path, open)
}

fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// The same, opened by `open`: from a directory that is held.
pub(crate) fn read_by<T: DeserializeOwned>(
    path: &Path,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<Option<T>, KeptFileError> {
    let damaged = |why: String| KeptFileError::Damaged { path: path.to_owned(), why };
    let mut bytes = Vec::new();
    match open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(source) => {
            return Err(KeptFileError::Io { action: "read", path: path.to_owned(), source });
        }
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| damaged(error.to_string()))?;
    let body = whole_body(text).map_err(|why| damaged(why.to_owned()))?;
    let content = serde_json::from_str(&format!("{body}{END}"));
    content.map(Some).map_err(|error| damaged(error.to_string()))
}

/// Writes a structure twice, since one of the files may be damaged; durable when it returns.
///
/// The file that counts comes first: where this ends half way, its content is the new one or no file has it.
pub(crate) fn write_twice(path: &Path, content: &impl Serialize) -> Result<(), KeptFileError> {
    write(path, content)?;
    write(&copy_of(path), content)?;
    sync_directory_of(path)
}

/// What was written twice; from the copy where the file is damaged or gone.
///
/// # Errors
/// What is wrong with the file, when the copy is no better.
pub(crate) fn read_either<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, KeptFileError> {
    read_either_by(path, open)
}

/// The same, opened by `open`.
pub(crate) fn read_either_by<T: DeserializeOwned>(
    path: &Path,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<Option<T>, KeptFileError> {
    let first = read_by(path, &open);
    if let Ok(Some(content)) = first {
        return Ok(Some(content));
    }
    match read_by(&copy_of(path), &open) {
        Ok(Some(content)) => {
            warn_of(path, first.err());
            Ok(Some(content))
        }
        Ok(None) => first,
        // A damaged copy of a file that is gone: it was there.
        Err(error) => first.and(Err(error)),
    }
}

fn warn_of(path: &Path, error: Option<KeptFileError>) {
    match error {
        Some(error) => tracing::warn!("{error}; its copy is read"),
        None => tracing::warn!("{} is gone; its copy is read", path.display()),
    }
}

/// Where the second copy lies.
fn copy_of(path: &Path) -> PathBuf {
    with_end(path, ".copy")
}

/// Whether `other` was to become the file at `path` by rename(2) when its writer ended.
pub(crate) fn is_unfinished(path: &Path, other: &Path) -> bool {
    let begin = with_end(path, UNFINISHED).into_os_string();
    other.as_os_str().as_encoded_bytes().starts_with(begin.as_encoded_bytes())
}

/// Writes a file, for the owner's eyes only. After a power cut it is there whole, or as it was before.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), KeptFileError> {
    // Several nodes may write the same file at once.
    let temporary = with_end(path, &format!("{UNFINISHED}{:016x}", RandomState::new().hash_one(0)));
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&temporary);
        KeptFileError::Io { action: "write", path: path.to_owned(), source }
    })
}

/// Makes durable that the file, or directory, `path` is there under its name.
pub(crate) fn sync_directory_of(path: &Path) -> Result<(), KeptFileError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(|source| KeptFileError::Io { action: "sync", path: parent.to_owned(), source })
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    PathBuf::from(name)
}

fn checksum(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex()[..DIGITS].to_owned()
}

/// What the checksum is of; why there is none.
fn whole_body(text: &str) -> Result<&str, &'static str> {
    let missing = "its end is missing, or an earlier version of hayase wrote it";
    let (body, rest) = text.rsplit_once(CHECKSUM).ok_or(missing)?;
    match rest.strip_suffix(CHECKSUM_END) {
        Some(sum) if sum == checksum(body) => Ok(body),
        Some(_) => Err("its text has another checksum"),
        None => Err(missing),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Content {
        number: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    }

    fn content() -> Content {
        Content { number: 17, text: Some("a \"quoted\" name".into()) }
    }

    /// Calls `check` with every bit flipped and every byte the last one.
    fn damage_each(good: &[u8], mut check: impl FnMut(Vec<u8>, String)) {
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            check(bad, format!("byte {}, bit {}", bit / 8, bit % 8));
        }
        (0..good.len()).for_each(|len| check(good[..len].to_vec(), format!("cut at {len}")));
    }

    #[test]
    fn a_kept_file_with_any_bit_flipped_or_any_end_missing_is_damaged() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f.json");
        assert_eq!(read::<Content>(&path).unwrap(), None);
        write(&path, &content()).unwrap();
        assert_eq!(read(&path).unwrap(), Some(content()));
        let good = fs::read(&path).unwrap();
        assert_eq!(serde_json::from_slice::<Content>(&good).unwrap(), content(), "it is JSON");
        damage_each(&good, |bad, place| {
            fs::write(&path, bad).unwrap();
            let error = read::<Content>(&path).expect_err(&place).to_string();
            assert!(error.contains("f.json is damaged"), "{place}: {error}");
        });
    }

    #[test]
    fn what_is_written_twice_is_read_while_one_of_both_is_whole() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f.json");
        assert_eq!(read_either::<Content>(&path).unwrap(), None);
        write_twice(&path, &content()).unwrap();
        let good = fs::read(&path).unwrap();
        for file in [path.clone(), copy_of(&path)] {
            damage_each(&good, |bad, place| {
                fs::write(&file, bad).unwrap();
                assert_eq!(read_either(&path).expect(&place), Some(content()), "{place}");
            });
            fs::remove_file(&file).unwrap();
            assert_eq!(read_either(&path).unwrap(), Some(content()));
            fs::write(&file, &good).unwrap();
        }
        fs::write(&path, "").unwrap();
        fs::write(copy_of(&path), "").unwrap();
        assert!(read_either::<Content>(&path).is_err());
        fs::remove_file(&path).unwrap();
        let error = read_either::<Content>(&path).unwrap_err().to_string();
        assert!(error.contains("f.json.copy is damaged"), "{error}");
    }

    #[test]
    fn of_two_files_the_one_that_counts_is_written_first() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("f.json");
        write_twice(&path, &content()).unwrap();
        fs::remove_file(copy_of(&path)).unwrap();
        fs::create_dir(copy_of(&path)).unwrap();
        let new = Content { number: 18, text: None };
        let error = write_twice(&path, &new).unwrap_err().to_string();
        assert!(error.contains("f.json.copy"), "{error}");
        assert_eq!(read_either(&path).unwrap(), Some(new));
    }
}
