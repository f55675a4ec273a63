//! Who is where: the servers of a job and their addresses, agreed on in its shared directory.
//!
//! Each server publishes `members.d/<server>.json`; server 0 waits for all, then seals the list as
//! `members.json`, which everyone else reads. Files appear whole, by rename, and carry a code made
//! with the job's secret. Not here: what becomes of a member that dies (it keeps its place).
//!
//! The sealed list binds each server to its key. What a server publishes later, when it is started again, counts for its
//! addresses and must have the same key; each server keeps the keys of the first list in its own storage, so that a
//! process that can write to the directory changes none of them later.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hayase_layout::ServerId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::deadline::{MEMBERS_POLL_MAX, MEMBERS_POLL_MIN};
use crate::keys::{KnownServer, KnownServers, PublicKey};
use crate::limits::MEMBERS_BYTES_MAX;
use crate::message::PROTOCOL_VERSION;
use crate::secret::Secret;
use crate::transport::Address;

mod error;

pub use error::MembersError;

/// The server that seals the list, and that alone declares who is lost.
pub const COORDINATOR: ServerId = ServerId(0);

const CODE_CONTEXT: &str = "hayase wire v1: list of members";

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its number, from 0.
    pub server: ServerId,
    /// Its host, for people.
    pub host: String,
    /// Where it listens, best first.
    pub addresses: Vec<Address>,
    /// Of this incarnation.
    pub start_id: u64,
    /// By which it proves itself, in all incarnations.
    pub key: PublicKey,
    /// Of its messages ([`PROTOCOL_VERSION`]).
    pub version: u16,
}

/// All servers of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Members {
    /// Grows with each change of the list.
    pub epoch: u64,
    /// Server `i` at place `i`.
    pub servers: Vec<Member>,
}

impl Members {
    /// One of them.
    pub fn get(&self, server: ServerId) -> Option<&Member> {
        self.servers.get(usize::from(server.0))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// What each server proves itself by.
    pub fn known(&self) -> KnownServers {
        let known = |member: &Member| KnownServer { host: member.host.clone(), key: member.key };
        self.servers.iter().map(known).collect()
    }

    /// A sealed list is never empty.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}

/// Where the sealed list lies.
pub fn sealed_path(job_dir: &Path) -> PathBuf {
    job_dir.join("members.json")
}

/// Where a server says who it is.
pub fn published_path(job_dir: &Path, server: ServerId) -> PathBuf {
    job_dir.join("members.d").join(format!("{server}.json"))
}

/// Tells the others about `member`; replaces what an older incarnation said.
pub fn publish(job_dir: &Path, member: &Member, secret: &Secret) -> Result<(), MembersError> {
    let path = published_path(job_dir, member.server);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)
            .map_err(|source| MembersError::Write { path: parent.to_owned(), source })?;
    }
    write_signed(&path, member, secret)
}

/// Waits until servers `0..servers` have published, then writes the list; the task of server 0.
pub async fn seal(
    job_dir: &Path,
    servers: u16,
    secret: &Secret,
    wait: Duration,
) -> Result<Members, MembersError> {
    let mut found: Vec<Option<Member>> = vec![None; usize::from(servers)];
    let mut patience = Patience::new(wait);
    loop {
        for (server, member) in (0..servers).map(ServerId).zip(&mut found) {
            if member.is_none() {
                *member = read_member(job_dir, server, secret)?;
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
        if !patience.pause().await {
            let missing = (0..servers).map(ServerId).zip(&found);
            let missing = missing.filter(|(_, member)| member.is_none()).map(|(id, _)| id);
            return Err(MembersError::Missing { missing: missing.collect(), waited: wait });
        }
    }
    let members = Members { epoch: 1, servers: found.into_iter().flatten().collect() };
    write_signed(&sealed_path(job_dir), &members, secret)?;
    Ok(members)
}

/// The sealed list; `None` before it was sealed.
pub fn read(job_dir: &Path, secret: &Secret) -> Result<Option<Members>, MembersError> {
    let path = sealed_path(job_dir);
    let Some(members) = read_signed::<Members>(&path, secret)? else {
        return Ok(None);
    };
    let numbered = members.servers.iter().zip(0..=u16::MAX);
    if members.is_empty() || numbered.clone().any(|(member, number)| member.server.0 != number) {
        let what = "the servers are not numbered from 0".to_owned();
        return Err(MembersError::Malformed { path, what });
    }
    for member in &members.servers {
        check_version(member, &path)?;
    }
    Ok(Some(members))
}

/// What a server last published of itself.
pub fn published(
    job_dir: &Path,
    server: ServerId,
    secret: &Secret,
) -> Result<Option<Member>, MembersError> {
    read_member(job_dir, server, secret)
}

/// The servers of the sealed list, where they are to be found now: those that were started again have published again
/// since, as far as this directory shows it. An entry that is damaged, or has another key, counts for nothing: every
/// process of the job can write there, and a server proves itself by the key of the sealed list in any case.
pub fn current(job_dir: &Path, sealed: Members, secret: &Secret) -> Members {
    let now = |before: Member| match published_since(job_dir, &before, secret) {
        Ok(now) => now.unwrap_or(before),
        Err(error) => {
            let server = before.server;
            tracing::warn!(%server, %error, "its address is taken from the sealed list");
            before
        }
    };
    Members { servers: sealed.servers.into_iter().map(now).collect(), ..sealed }
}

fn published_since(
    job_dir: &Path,
    before: &Member,
    secret: &Secret,
) -> Result<Option<Member>, MembersError> {
    let now = read_member(job_dir, before.server, secret)?;
    if now.as_ref().is_none_or(|now| now.key == before.key) {
        return Ok(now);
    }
    let (server, host) = (before.server, before.host.clone());
    Err(MembersError::KeyChanged { server, host, path: published_path(job_dir, server) })
}

/// What was kept of the first list in a file of a server's own ([`keep_known`]).
pub fn kept_known(path: &Path, secret: &Secret) -> Result<Option<KnownServers>, MembersError> {
    read_signed(path, secret)
}

/// Keeps by what the servers of the first list prove themselves; durable when this returns.
pub fn keep_known(path: &Path, known: &KnownServers, secret: &Secret) -> Result<(), MembersError> {
    write_signed(path, known, secret)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| MembersError::Write { path: path.to_owned(), source })
}

/// Waits for the sealed list.
pub async fn wait_sealed(
    job_dir: &Path,
    secret: &Secret,
    wait: Duration,
) -> Result<Members, MembersError> {
    let mut patience = Patience::new(wait);
    loop {
        if let Some(members) = read(job_dir, secret)? {
            return Ok(members);
        }
        if !patience.pause().await {
            return Err(MembersError::Unsealed { path: sealed_path(job_dir), waited: wait });
        }
    }
}

/// Looks again after growing pauses, until its time is over.
struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    fn new(wait: Duration) -> Self {
        Self { until: Instant::now() + wait, pause: MEMBERS_POLL_MIN }
    }

    /// False when there is no time left.
    async fn pause(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(MEMBERS_POLL_MAX);
        true
    }
}

fn read_member(
    job_dir: &Path,
    server: ServerId,
    secret: &Secret,
) -> Result<Option<Member>, MembersError> {
    let path = published_path(job_dir, server);
    let Some(member) = read_signed::<Member>(&path, secret)? else {
        return Ok(None);
    };
    if member.server != server {
        let what = format!("it is by server {}", member.server);
        return Err(MembersError::Malformed { path, what });
    }
    check_version(&member, &path)?;
    Ok(Some(member))
}

fn check_version(member: &Member, path: &Path) -> Result<(), MembersError> {
    if member.version == PROTOCOL_VERSION {
        return Ok(());
    }
    Err(MembersError::Version { path: path.to_owned(), theirs: member.version })
}

/// The version of the messages of who wrote the file, where the text says one: a member, or a list of them. Nothing but
/// the wording of an error depends on it.
fn version_in(text: &[u8]) -> Option<u16> {
    #[derive(Deserialize)]
    struct AnyMember {
        version: Option<u16>,
        #[serde(default)]
        servers: Vec<AnyMember>,
    }
    #[derive(Deserialize)]
    struct AnySigned {
        content: AnyMember,
    }
    let AnySigned { content } = serde_json::from_slice(text).ok()?;
    content.version.or_else(|| content.servers.first()?.version)
}

/// A file: its content, and the code over the content's compact JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed<T> {
    content: T,
    code: String,
}

/// The code binds content to its kind of file by `name`, so that none can stand for another.
fn code(
    name: &Path,
    content: &impl Serialize,
    secret: &Secret,
) -> serde_json::Result<blake3::Hash> {
    let key = blake3::derive_key(CODE_CONTEXT, secret.as_bytes());
    let name = name.file_name().unwrap_or_default();
    let mut hasher = blake3::Hasher::new_keyed(&key);
    hasher.update(name.as_encoded_bytes()).update(b"\0");
    hasher.update(&serde_json::to_vec(content)?);
    Ok(hasher.finalize())
}

fn write_signed<T: Serialize>(
    path: &Path,
    content: &T,
    secret: &Secret,
) -> Result<(), MembersError> {
    let temporary = path.with_extension(format!("json.{}", std::process::id()));
    let write = || -> io::Result<()> {
        let code = code(path, content, secret)?.to_hex().to_string();
        let mut text = serde_json::to_vec_pretty(&Signed { content, code })?;
        text.push(b'\n');
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| {
        // Whatever it was, half a file must not stay.
        let _ = fs::remove_file(&temporary);
        MembersError::Write { path: path.to_owned(), source }
    })
}

fn read_signed<T: Serialize + DeserializeOwned>(
    path: &Path,
    secret: &Secret,
) -> Result<Option<T>, MembersError> {
    let failed = |source| MembersError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mut text = Vec::new();
    file.take(MEMBERS_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    let malformed = |error: serde_json::Error| match version_in(&text) {
        Some(theirs) if theirs != PROTOCOL_VERSION => {
            MembersError::Version { path: path.to_owned(), theirs }
        }
        _ => MembersError::Malformed { path: path.to_owned(), what: error.to_string() },
    };
    let signed: Signed<T> = serde_json::from_slice(&text).map_err(malformed)?;
    let expected = code(path, &signed.content, secret).map_err(malformed)?;
    // Compared by `blake3::Hash`, in constant time.
    match blake3::Hash::from_hex(&signed.code) {
        Ok(found) if found == expected => Ok(Some(signed.content)),
        _ => Err(MembersError::Forged { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::ServerKey;

    const SECRET: Secret = Secret::from_bytes([6; 32]);
    const WAIT: Duration = Duration::from_secs(5);

    fn key(of: u8) -> PublicKey {
        ServerKey::of(Secret::from_bytes([of; 32])).public()
    }

    fn member(server: u16) -> Member {
        Member {
            server: ServerId(server),
            host: format!("node{server}"),
            addresses: vec!["tcp:10.0.0.1:4000".parse().unwrap()],
            start_id: 5 + u64::from(server),
            key: key(server as u8),
            version: PROTOCOL_VERSION,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_published_is_sealed_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path();
        assert_eq!(read(job, &SECRET).unwrap(), None);
        let publishing = async {
            for server in [2, 0, 1] {
                tokio::time::sleep(Duration::from_millis(300)).await;
                publish(job, &member(server), &SECRET).unwrap();
            }
        };
        let (sealed, read_by_all, ()) =
            tokio::join!(seal(job, 3, &SECRET, WAIT), wait_sealed(job, &SECRET, WAIT), publishing);
        let sealed = sealed.unwrap();
        assert_eq!(sealed, read_by_all.unwrap());
        assert_eq!(sealed.len(), 3);
        assert_eq!(sealed.get(ServerId(1)), Some(&member(1)));
        assert_eq!(sealed.get(ServerId(3)), None);
        let files = fs::read_dir(job.join("members.d")).unwrap().count();
        assert_eq!(files, 3, "no temporary file stays");
    }

    #[tokio::test(start_paused = true)]
    async fn the_missing_are_named() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), &member(1), &SECRET).unwrap();
        let error = seal(dir.path(), 4, &SECRET, WAIT).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "wait for the servers of the job: servers 0, 2, 3 not there after 5s"
        );
        assert!(error.help().is_some());
        let error = wait_sealed(dir.path(), &SECRET, WAIT).await.unwrap_err();
        assert!(matches!(error, MembersError::Unsealed { .. }));
        assert_eq!(error::names(&[ServerId(7)]), "server 7");
        let many: Vec<_> = (0..20).map(ServerId).collect();
        assert!(error::names(&many).ends_with("14, 15 and 4 more"));
    }

    #[tokio::test]
    async fn what_was_changed_or_made_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path();
        publish(job, &member(0), &SECRET).unwrap();
        seal(job, 1, &SECRET, WAIT).await.unwrap();
        let other = Secret::from_bytes([7; 32]);
        assert!(matches!(read(job, &other), Err(MembersError::Forged { .. })));
        assert!(matches!(seal(job, 1, &other, WAIT).await, Err(MembersError::Forged { .. })));

        let path = sealed_path(job);
        let text = fs::read_to_string(&path).unwrap();
        let check = |text: &str| {
            fs::write(&path, text).unwrap();
            read(job, &SECRET).unwrap_err()
        };
        let moved = text.replace("10.0.0.1", "10.6.6.6");
        assert!(matches!(check(&moved), MembersError::Forged { .. }));
        assert!(matches!(check(&text[..text.len() / 2]), MembersError::Malformed { .. }));
        assert!(matches!(check(""), MembersError::Malformed { .. }));
        let bad_address = text.replace("tcp:10.0.0.1:4000", "carrier pigeon");
        let error = check(&bad_address).to_string();
        assert!(error.contains("invalid address `carrier pigeon`"), "{error}");
        fs::write(&path, &text).unwrap();
        assert!(read(job, &SECRET).unwrap().is_some());

        // Genuine, but of somebody else.
        fs::copy(published_path(job, ServerId(0)), published_path(job, ServerId(1))).unwrap();
        let error = seal(job, 2, &SECRET, WAIT).await.unwrap_err();
        assert!(matches!(error, MembersError::Forged { .. }), "bound to its name");
    }

    #[test]
    fn a_flipped_or_cut_list_of_members_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        publish(dir.path(), &member(0), &SECRET).unwrap();
        let path = published_path(dir.path(), ServerId(0));
        let good = fs::read(&path).unwrap();
        let flip = |bit: usize| {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            bad
        };
        let flips = (0..good.len() * 8).map(flip);
        for bad in flips.chain((0..good.len()).map(|len| good[..len].to_vec())) {
            fs::write(&path, &bad).unwrap();
            match read_member(dir.path(), ServerId(0), &SECRET) {
                // Blanks between words, and the case of digits, mean nothing.
                Ok(found) => assert_eq!(found, Some(member(0))),
                Err(MembersError::Forged { .. } | MembersError::Malformed { .. }) => {}
                Err(error) => panic!("{error}: {}", bad.escape_ascii()),
            }
        }
    }

    #[tokio::test]
    async fn a_server_that_published_again_is_found_there_with_the_same_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path();
        (0..2).for_each(|server| publish(job, &member(server), &SECRET).unwrap());
        let sealed = seal(job, 2, &SECRET, WAIT).await.unwrap();
        let elsewhere = Member { addresses: Vec::new(), start_id: 90, ..member(1) };
        publish(job, &elsewhere, &SECRET).unwrap();
        let now = current(job, sealed.clone(), &SECRET);
        assert_eq!(now.servers, [member(0), elsewhere.clone()]);
        assert_eq!(now.known(), sealed.known());
        // Where each node has a directory of its own, the others are not in it.
        fs::remove_file(published_path(job, ServerId(0))).unwrap();
        assert_eq!(current(job, sealed.clone(), &SECRET).servers, now.servers);
    }

    #[tokio::test]
    async fn an_entry_that_is_damaged_or_foreign_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path();
        (0..3).for_each(|server| publish(job, &member(server), &SECRET).unwrap());
        let sealed = seal(job, 3, &SECRET, WAIT).await.unwrap();
        let elsewhere = Member { addresses: Vec::new(), ..member(2) };
        publish(job, &elsewhere, &SECRET).unwrap();
        let path = published_path(job, ServerId(1));
        let check = |what: &str| {
            let now = current(job, sealed.clone(), &SECRET).servers;
            assert_eq!(now, [member(0), member(1), elsewhere.clone()], "{what}");
        };
        let changed = Member { addresses: Vec::new(), ..member(1) };
        publish(job, &Member { key: key(9), ..changed.clone() }, &SECRET).unwrap();
        check("another key");
        let error = published_since(job, &member(1), &SECRET).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{} has another key for server 1 on host node1 than the first list of this job",
                path.display()
            )
        );
        publish(job, &changed, &Secret::from_bytes([7; 32])).unwrap();
        check("another secret");
        publish(job, &Member { version: 99, ..changed.clone() }, &SECRET).unwrap();
        check("another version");
        fs::copy(published_path(job, ServerId(2)), &path).unwrap();
        check("another server");
        fs::write(&path, b"{").unwrap();
        check("no entry");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        check("no file");
    }

    #[test]
    fn known_servers_are_kept_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("servers.json");
        assert_eq!(kept_known(&path, &SECRET).unwrap(), None);
        let known = Members { epoch: 1, servers: vec![member(0), member(1)] }.known();
        keep_known(&path, &known, &SECRET).unwrap();
        assert_eq!(kept_known(&path, &SECRET).unwrap(), Some(known));
        let other = fs::read_to_string(&path).unwrap().replace("node1", "node7");
        fs::write(&path, other).unwrap();
        assert!(matches!(kept_known(&path, &SECRET), Err(MembersError::Forged { .. })));
    }

    #[tokio::test]
    async fn another_version_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path();
        publish(job, &Member { version: 99, ..member(0) }, &SECRET).unwrap();
        let path = published_path(job, ServerId(0));
        let check = |error: MembersError, path: &Path| {
            let text = format!(
                "{} was written by a build with protocol version 99, and this one has {PROTOCOL_VERSION}",
                path.display()
            );
            assert_eq!(error.to_string(), text);
            assert!(error.help().unwrap().contains("`hayase down`"));
        };
        check(seal(job, 1, &SECRET, WAIT).await.unwrap_err(), &path);
        // Which has other fields.
        let member = r#"{"server": 0, "port": 40, "version": 99}"#;
        fs::write(&path, format!(r#"{{"content": {member}, "code": "0"}}"#)).unwrap();
        check(seal(job, 1, &SECRET, WAIT).await.unwrap_err(), &path);
        let list = format!(r#"{{"content": {{"servers": [{member}]}}, "code": "0", "of": 1}}"#);
        fs::write(sealed_path(job), list).unwrap();
        check(read(job, &SECRET).unwrap_err(), &sealed_path(job));
        // No version, or ours: it is damaged.
        for member in ["{}".to_owned(), member.replace("99", &PROTOCOL_VERSION.to_string())] {
            fs::write(&path, format!(r#"{{"content": {member}, "code": "0"}}"#)).unwrap();
            let error = seal(job, 1, &SECRET, WAIT).await.unwrap_err();
            assert!(matches!(error, MembersError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn a_directory_that_can_not_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("members.d"), b"a file").unwrap();
        let error = publish(dir.path(), &member(0), &SECRET).unwrap_err();
        assert!(matches!(error, MembersError::Write { .. }));
    }
}
