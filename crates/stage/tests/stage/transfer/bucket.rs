//! Loose objects of a bucket keep what files had, and no request is spent on it where none is needed.

use std::time::{Duration, SystemTime};

use hayase_s3_server::{ACCESS_KEY, BUCKET, SECRET_KEY, Server};
use hayase_stage::verify::compare;
use hayase_stage::{Overwrite, Selection};
use hayase_tier::s3::{CredentialSource, Credentials, S3Settings};
use hayase_tier::{Attributes, Key, Precondition, S3};

use super::*;

fn serve() -> Server {
    Server::start(&hayase_s3_server::Options::default()).unwrap()
}

fn bucket(server: &Server) -> S3 {
    let settings = S3Settings {
        endpoint: Some(server.endpoint()),
        credentials: CredentialSource::Keys(Credentials::permanent(ACCESS_KEY, SECRET_KEY)),
        prefix: "some/where/".into(),
        ..S3Settings::new(BUCKET)
    };
    S3::attach(settings).unwrap()
}

/// What is hard to keep, with names that S3 can have.
fn odd_trees() -> Trees {
    Trees::new(|top| {
        fill_oddly(top);
        std::fs::remove_file(top.join(std::ffi::OsStr::from_bytes(b"\xff\xfe"))).unwrap();
        std::fs::write(top.join("nothing"), "").unwrap();
        std::fs::write(top.join("large"), vec![3; 17 << 20]).unwrap();
        let directory = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(top.join("d1"), directory).unwrap();
        date(&top.join("large"), 1_234_567_890);
        date(&top.join("d1"), 1_111_111_111);
    })
}

fn date(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    std::fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Requests that `act` costs.
fn requests(tier: &S3, act: impl FnOnce()) -> u64 {
    let before = tier.traffic().requests;
    act();
    tier.traffic().requests - before
}

#[test]
fn loose_objects_bring_back_what_files_had() {
    let (server, trees) = (serve(), odd_trees());
    let tier = bucket(&server);
    let store = of(tier.clone());
    let names = snapshot(&trees.from).len() as u64;
    // Lists, the look for packs, and the parts of the large file.
    const MORE: u64 = 25;
    let out = requests(&tier, || {
        let out = copy_all(&trees.from(), &store, &Options::default());
        assert_eq!(out.copied, names);
    });
    assert!((names..names + MORE).contains(&out), "{out} requests for {names} names");
    let back = requests(&tier, || {
        copy_all(&store, &trees.to(), &Options::default());
    });
    assert!((names..names + MORE).contains(&back), "{back} requests for {names} names");
    assert_same(&trees.from, &trees.to);
    let same = |a: &Place, b: &Place| {
        let open = |place: &Place| Source::open(place.clone(), None).unwrap();
        compare(&open(a), &open(b), &Selection::all(), true, 2, &Progress::default())
    };
    for (a, b) in [(&trees.from(), &store), (&store, &trees.to())] {
        let told = same(a, b);
        assert!(told.differences.is_empty(), "{told:?}");
    }
}

#[test]
fn a_second_copy_moves_nothing_either_way() {
    let (server, trees) = (serve(), odd_trees());
    let (tier, other) = (bucket(&server), store());
    let store = of(tier.clone());
    let nothing = |from: &Place, to: &Place| {
        let again = copy_all(from, to, &Options::default());
        assert_eq!((again.copied, again.bytes_moved), (0, 0), "{again:?}");
    };
    copy_all(&trees.from(), &store, &Options::default());
    nothing(&trees.from(), &store);
    copy_all(&store, &trees.to(), &Options::default());
    nothing(&store, &trees.to());
    // Into packs as well, and out of them.
    let packing = packs(64 << 10, Compression::None, None);
    copy_all(&store, &other, &packing);
    let again = copy_all(&store, &other, &packing);
    assert_eq!((again.copied, again.bytes_moved), (0, 0), "{again:?}");
    let unpacked = Trees::new(|_| ());
    copy_all(&other, &unpacked.to(), &Options::default());
    assert_same(&trees.from, &unpacked.to);
    // What was looked at only is told alike.
    let looking = Options { is_dry_run: true, ..Options::default() };
    assert_eq!(copy_all(&store, &trees.to(), &looking).copied, 0);
    std::fs::write(trees.to.join("x"), "y").unwrap();
    assert_eq!(copy_all(&store, &trees.to(), &looking).copied, 1);
}

#[test]
fn changes_that_a_listing_does_not_show_are_found() {
    let (server, trees) = (serve(), odd_trees());
    let store = of(bucket(&server));
    let round = |changed: u64| {
        let out = copy_all(&trees.from(), &store, &Options::default());
        assert_eq!(out.copied, changed, "{out:?}");
        let back = copy_all(&store, &trees.to(), &Options::default());
        assert_eq!(back.copied, changed, "{back:?}");
        assert_same(&trees.from, &trees.to);
    };
    let all = snapshot(&trees.from).len() as u64;
    round(all);
    let file = trees.from.join("d0/f0000");
    // Other bytes of the same length, dated before the object.
    std::fs::write(&file, vec![9; 3000]).unwrap();
    date(&file, 1_000_000_000);
    round(1);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
    round(1);
    let link = trees.from.join("link");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("z", &link).unwrap();
    round(1);
    // A file where a link was, of the same length; and a link where a file was.
    std::fs::remove_file(&link).unwrap();
    std::fs::write(&link, "z").unwrap();
    std::fs::remove_file(trees.from.join("x.zst")).unwrap();
    std::os::unix::fs::symlink("x.zst", trees.from.join("x.zst")).unwrap();
    round(2);
    date(&trees.from.join("empty/deeper"), 1_000_000_001);
    round(0);
}

#[test]
fn what_is_removed_goes_with_its_mark() {
    let (server, trees) = (serve(), odd_trees());
    let store = of(bucket(&server));
    let deleting = Options { delete: true, ..Options::default() };
    copy_all(&trees.from(), &store, &deleting);
    copy_all(&store, &trees.to(), &deleting);
    std::fs::remove_dir(trees.from.join("empty/deeper")).unwrap();
    std::fs::remove_file(trees.from.join("dangling")).unwrap();
    std::fs::remove_dir_all(trees.from.join("d2")).unwrap();
    let out = copy_all(&trees.from(), &store, &deleting);
    assert_eq!(out.removed, 13, "{out:?}");
    assert_eq!(copy_all(&store, &trees.to(), &deleting).removed, 13);
    assert_same(&trees.from, &trees.to);
}

#[test]
fn objects_of_others_are_dated_as_the_store_lists_them() {
    let (server, trees) = (serve(), Trees::new(|_| ()));
    let tier = bucket(&server);
    for name in ["a", "d/b", "d/c"] {
        let key = Key::new(name).unwrap();
        tier.put(&key, Attributes::default(), name.as_bytes(), Precondition::Any).unwrap();
    }
    let store = of(tier.clone());
    let first = copy_all(&store, &trees.to(), &Options::default());
    assert_eq!(first.copied, 3);
    let listed = tier.stat(&Key::new("a").unwrap()).unwrap();
    let found = snapshot(&trees.to)[&b"a"[..]].clone();
    assert_eq!((found.1, found.2), (0o644, listed.mtime.into()));
    let again = requests(&tier, || {
        let again = copy_all(&store, &trees.to(), &Options::default());
        assert_eq!((again.copied, again.kept), (0, 3));
    });
    assert!(again <= 4, "{again} requests to see that nothing has changed");
}

#[test]
fn only_what_is_newer_is_known_by_what_objects_tell() {
    let (server, trees) =
        (serve(), Trees::new(|top| std::fs::write(top.join("f"), "one").unwrap()));
    let store = of(bucket(&server));
    date(&trees.from.join("f"), 1_000_000_000);
    copy_all(&trees.from(), &store, &Options::default());
    let newer = Options { overwrite: Overwrite::Newer, ..Options::default() };
    // The object was made later than that, and says that it is older.
    std::fs::write(trees.from.join("f"), "three").unwrap();
    date(&trees.from.join("f"), 1_000_000_100);
    assert_eq!(copy_all(&trees.from(), &store, &newer).copied, 1);
    std::fs::write(trees.from.join("f"), "four4").unwrap();
    date(&trees.from.join("f"), 1_000_000_050);
    let spared = copy_all(&trees.from(), &store, &newer);
    assert_eq!((spared.copied, spared.spared), (0, 1));
}
