//! A mount of a Gfarm in memory, of which other hosts change what they like.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::Request;
use hayase_wire::message::{MetaChange, SetTime, TimeSpec, XattrMode};

use super::GfarmVolume;
use super::fake::{Fake, READ, WRITE};
use super::nodes::KNOWN_FOR;
use crate::volume::Volume;

#[test]
fn what_was_written_is_synced_also_after_a_close_of_another_descriptor() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"");
    let ino = mount.look("f").unwrap();
    mount.open_it(ino, WRITE).unwrap();
    let synced = || fake.asked(|request| matches!(request, Request::Sync { .. }));
    mount.write(ino, 0, b"bytes").unwrap();
    mount.sync(ino, false).unwrap();
    assert_eq!(synced(), 1);
    mount.closed(ino).unwrap();
    mount.sync(ino, false).unwrap();
    assert_eq!(synced(), 1, "after a close");
    mount.release(ino, WRITE);
    mount.open_it(ino, READ).unwrap();
    mount.sync(ino, false).unwrap();
    assert_eq!(synced(), 0, "nobody writes it");
}

#[test]
fn a_name_that_changes_during_the_second_look_is_what_it_is_then() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"old");
    let old = mount.look("f").unwrap();
    mount.open_it(old, READ).unwrap();
    fake.files().link(b"/f", b"/g").unwrap();
    mount.remove(InodeId::ROOT, b"f", false).unwrap();
    let mut looks = 0;
    fake.before(move |request, files| {
        looks += usize::from(matches!(request, Request::Stat { .. }));
        if looks == 2 {
            files.replace("/g", b"another");
        }
    });
    let new = mount.look("g").unwrap();
    assert_ne!(new, old);
    assert_eq!(mount.size(new), 7);
    assert_eq!(mount.attributes(old).unwrap().attr.nlink, 0);
}

#[test]
fn attributes_of_an_open_file_without_a_name_are_set_on_this_host() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"bytes");
    let ino = mount.look("f").unwrap();
    mount.open_it(ino, WRITE).unwrap();
    mount.remove(InodeId::ROOT, b"f", false).unwrap();
    let mtime = TimeSpec { seconds: 1_500_000_000, nanos: 7 };
    let change = MetaChange {
        mode: Some(0o600),
        uid: Some(5),
        gid: Some(6),
        mtime: Some(SetTime::To(mtime)),
        ..MetaChange::default()
    };
    let told = mount.set_attributes(ino, &change).unwrap().attr;
    assert_eq!((told.mode, told.uid, told.gid, told.mtime), (0o600, 5, 6, mtime));
    let later = mount.attributes(ino).unwrap().attr;
    assert_eq!((later.mode, later.nlink, later.mtime), (0o600, 0, mtime));
    mount.release(ino, WRITE);
    let why = mount.set_attributes(ino, &change).unwrap_err();
    assert_eq!(why.errno, libc::ESTALE, "nobody has it open");
}

#[test]
fn what_is_set_of_a_file_is_not_set_of_the_one_that_replaced_it() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"bytes");
    let ino = mount.look("f").unwrap();
    mount.open_it(ino, WRITE).unwrap();
    let times = MetaChange { mtime: Some(SetTime::Now), ..MetaChange::default() };
    mount.set_attributes(ino, &times).unwrap();
    fake.files().replace("/f", b"another");
    let is_stale = |told: Result<(), hayase_wire::message::Refused>| {
        assert_eq!(told.unwrap_err().errno, libc::ESTALE);
    };
    let set = |change| mount.set_attributes(ino, &change).map(drop);
    is_stale(set(MetaChange { mode: Some(0o600), ..MetaChange::default() }));
    is_stale(set(MetaChange { uid: Some(5), ..MetaChange::default() }));
    is_stale(set(times));
    is_stale(mount.set_xattr(ino, b"user.a", b"value", XattrMode::Set));
    is_stale(mount.remove_xattr(ino, b"user.a"));
    mount.closed(ino).unwrap(); // which sets times once more
    let there = fake.files().stat("/f");
    assert_eq!((there.mode, there.uid, there.mtime), (0o644, 0, (0, 0)));
    assert_eq!(fake.files().attribute("/f", b"user.a"), None);
    let new = mount.look("f").unwrap();
    mount.set_xattr(new, b"user.a", b"value", XattrMode::Set).unwrap();
    assert_eq!(fake.files().attribute("/f", b"user.a").unwrap(), b"value");
}

/// Both names: one that is removed, and one that is replaced.
fn lose_the_name(mount: &GfarmVolume, replace: bool) {
    match replace {
        false => mount.remove(InodeId::ROOT, b"f", false).unwrap(),
        true => {
            let [from, to] = [b"other", &b"f"[..]].map(|name| (InodeId::ROOT, name.to_vec()));
            mount.look("other").unwrap();
            mount.rename(from, to, false, false).unwrap();
        }
    }
}

#[test]
fn a_file_that_was_flushed_can_be_used_without_a_name() {
    for replace in [false, true] {
        let (fake, mount) = Fake::mount();
        fake.files().replace("/f", b"");
        fake.files().replace("/other", b"");
        let ino = mount.look("f").unwrap();
        mount.open_it(ino, WRITE).unwrap();
        mount.write(ino, 0, b"first").unwrap();
        mount.closed(ino).unwrap();
        assert_eq!(fake.files().opens(), 0);
        lose_the_name(&mount, replace);
        mount.write(ino, 5, b", second").unwrap();
        mount.closed(ino).unwrap();
        assert_eq!(mount.bytes(ino).unwrap(), b"first, second");
        mount.sync(ino, false).unwrap();
        mount.release(ino, WRITE);
        mount.drain();
        assert_eq!(fake.files().opens(), 0);
    }
}

#[test]
fn a_close_during_the_removal_of_the_name_loses_nothing() {
    for replace in [false, true] {
        let (fake, mount) = Fake::mount();
        fake.files().replace("/f", b"");
        fake.files().replace("/other", b"");
        let ino = mount.look("f").unwrap();
        mount.open_it(ino, WRITE).unwrap();
        mount.write(ino, 0, b"bytes").unwrap();
        let (told, closes) = std::sync::mpsc::channel();
        let closer = mount.clone();
        fake.before(move |request, _| {
            if matches!(request, Request::Unlink { .. } | Request::Rename { .. }) {
                let mount = closer.clone();
                told.send(std::thread::spawn(move || mount.closed(ino))).unwrap();
                // The close has taken its open, and waits for the end of this.
                let node = closer.0.metadata.nodes().get(ino).unwrap();
                while node.lock().file.slots[0].file.is_some() {
                    std::thread::yield_now();
                }
            }
        });
        lose_the_name(&mount, replace);
        closes.recv().unwrap().join().unwrap().unwrap();
        fake.before(|_, _| {}); // which keeps no mount
        assert_eq!(mount.bytes(ino).unwrap(), b"bytes");
        mount.release(ino, WRITE);
        mount.drain();
        assert_eq!(fake.files().opens(), 0);
    }
}

#[test]
fn a_reader_gets_another_version_whole_or_not_at_all() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"first");
    let ino = mount.look("f").unwrap();
    mount.open_it(ino, READ).unwrap();
    assert!(!fake.pages_were_dropped());
    fake.files().write("/f", b"first, and more");
    assert_eq!(mount.bytes(ino).unwrap(), b"first", "nobody has looked");
    assert_eq!(mount.lasting_attributes(ino).unwrap().size, 5);
    assert_eq!(mount.size(ino), 15);
    assert!(fake.pages_were_dropped());
    assert_eq!(mount.bytes(ino).unwrap(), b"first, and more");
    assert_eq!(mount.size(ino), 15);
    assert!(!fake.pages_were_dropped(), "once");
    // By its name, and by a listing, which drops nothing.
    fake.files().write("/f", b"short");
    mount.0.metadata.nodes().seen(InodeId::ROOT, b"f", fake.files().stat("/f"));
    assert_eq!(mount.lasting_attributes(ino).unwrap().size, 15);
    mount.look("f").unwrap();
    assert!(fake.pages_were_dropped());
    assert_eq!((mount.size(ino), mount.bytes(ino).unwrap()), (5, b"short".to_vec()));
    // What can not be opened any more stays what it was.
    fake.files().write("/f", b"never read");
    fake.before(|request, files| {
        if matches!(request, Request::Open { .. }) {
            files.replace("/f", b"another file");
        }
    });
    assert_eq!((mount.size(ino), mount.bytes(ino).unwrap()), (5, b"short".to_vec()));
    mount.release(ino, READ);
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
}

#[test]
fn an_open_sees_the_last_close_whoever_has_the_file_open() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"first");
    let ino = mount.look("f").unwrap();
    mount.open_it(ino, READ).unwrap();
    for access in [READ, WRITE] {
        fake.files().write("/f", b"another");
        assert!(!mount.open_it(ino, access).unwrap().keep_pages);
        assert!(fake.pages_were_dropped());
        assert_eq!((mount.size(ino), mount.bytes(ino).unwrap()), (7, b"another".to_vec()));
    }
    // Who writes here is seen by who reads here, also when he has left.
    mount.write(ino, 0, b"written here").unwrap();
    assert_eq!(mount.bytes(ino).unwrap(), b"written here");
    mount.closed(ino).unwrap();
    assert_eq!(mount.bytes(ino).unwrap(), b"written here");
    mount.release(ino, WRITE);
    assert_eq!(mount.lasting_attributes(ino).unwrap().size, 12);
    assert_eq!(mount.bytes(ino).unwrap(), b"written here");
    assert_eq!(mount.size(ino), 12);
    for _ in 0..2 {
        mount.release(ino, READ);
    }
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
}

#[test]
fn an_open_whose_answer_is_late_makes_no_file_smaller() {
    for access in [READ, WRITE] {
        let (fake, mount) = Fake::mount();
        fake.files().replace("/f", b"first");
        let ino = mount.look("f").unwrap();
        mount.open_it(ino, READ).unwrap();
        let (looks, is_first) = (mount.clone(), AtomicBool::new(true));
        let grows = Arc::downgrade(&fake);
        fake.leaves(move |request| {
            let is_open = matches!(request, Request::Open { .. });
            if is_open && is_first.swap(false, Ordering::Relaxed) {
                grows.upgrade().unwrap().files().write("/f", b"first, and more");
                assert_eq!(looks.size(ino), 15);
            }
        });
        let open = mount.open_it(ino, access).unwrap();
        assert!(open.keep_pages, "they are of what is there");
        assert_eq!(mount.lasting_attributes(ino).unwrap().size, 15);
        assert_eq!(mount.bytes(ino).unwrap(), b"first, and more");
        mount.release(ino, access);
        assert_eq!(mount.lasting_attributes(ino).unwrap().size, 15);
        mount.release(ino, READ);
        mount.drain();
        assert_eq!(fake.files().opens(), 0);
        fake.leaves(|_| ()); // which keeps no mount
    }
}

/// The same where it grew by a write of this host, which is closed meanwhile.
#[test]
fn an_open_that_a_close_here_overtakes_makes_no_file_smaller() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"first");
    let ino = mount.look("f").unwrap();
    mount.open_it(ino, READ).unwrap();
    mount.open_it(ino, WRITE).unwrap();
    let (writes, is_first) = (mount.clone(), AtomicBool::new(true));
    fake.leaves(move |request| {
        let is_open = matches!(request, Request::Open { .. });
        if is_open && is_first.swap(false, Ordering::Relaxed) {
            writes.write(ino, 5, b", and more").unwrap();
            writes.closed(ino).unwrap();
            writes.release(ino, WRITE);
        }
    });
    mount.open_it(ino, WRITE).unwrap();
    assert_eq!(mount.lasting_attributes(ino).unwrap().size, 15);
    mount.append(ino, b", at the end").unwrap();
    assert_eq!(mount.bytes(ino).unwrap(), b"first, and more, at the end");
    for access in [READ, WRITE] {
        mount.release(ino, access);
    }
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
    fake.leaves(|_| ());
}

#[test]
fn a_reader_of_a_file_without_a_name_has_what_was_written() {
    let (fake, mount) = Fake::mount();
    fake.files().replace("/f", b"");
    let ino = mount.look("f").unwrap();
    mount.open_it(ino, READ).unwrap();
    mount.open_it(ino, WRITE).unwrap();
    mount.write(ino, 0, b"bytes").unwrap();
    mount.closed(ino).unwrap();
    lose_the_name(&mount, false);
    mount.write(ino, 5, b" and more").unwrap();
    mount.release(ino, WRITE);
    assert_eq!((mount.size(ino), mount.bytes(ino).unwrap()), (14, b"bytes and more".to_vec()));
    mount.release(ino, READ);
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
}

fn is_look(request: &Request) -> bool {
    matches!(request, Request::Stat { .. } | Request::List { .. })
}

/// Files `f0` and so on, of as many bytes as their number.
fn many(fake: &Fake, mount: &GfarmVolume, count: usize) -> Vec<InodeId> {
    for number in 0..count {
        fake.files().replace(&format!("/f{number}"), &vec![b'x'; number]);
    }
    let looked = (0..count).map(|number| mount.look(&format!("f{number}")).unwrap());
    looked.collect()
}

#[test]
fn many_names_that_are_looked_up_are_asked_for_together() {
    let (fake, mount) = Fake::mount();
    let all = many(&fake, &mount, 100);
    assert!(fake.asked(is_look) < 10);
    for (size, ino) in all.into_iter().enumerate() {
        assert_eq!(mount.lasting_attributes(ino).unwrap().size, size as u64);
    }
    assert_eq!(mount.look("other").unwrap_err().errno, libc::ENOENT);
}

#[test]
fn what_this_host_changes_is_never_looked_up_as_it_was() {
    let (fake, mount) = Fake::mount();
    for number in 0..100 {
        fake.files().replace(&format!("/f{number}"), b"");
    }
    for number in 0..100 {
        let name = format!("f{number}");
        let ino = mount.look(&name).unwrap();
        if number % 3 == 0 {
            mount.open_it(ino, WRITE).unwrap();
            mount.write(ino, 0, b"bytes").unwrap();
            // By another name.
            let again = format!("g{number}");
            mount.link(ino, InodeId::ROOT, again.as_bytes()).unwrap();
            assert_eq!(mount.look(&again), Ok(ino));
            assert_eq!(mount.size(ino), 5, "while it is open");
            mount.closed(ino).unwrap();
            mount.release(ino, WRITE);
            assert_eq!(mount.look(&name), Ok(ino));
            assert_eq!(mount.lasting_attributes(ino).unwrap().size, 5);
            mount.remove(InodeId::ROOT, name.as_bytes(), false).unwrap();
            assert_eq!(mount.look(&name).unwrap_err().errno, libc::ENOENT);
        }
    }
}

/// An open that meets another file than was told makes the next look ask.
#[test]
fn an_open_of_what_another_host_changed_asks() {
    let (fake, mount) = Fake::mount();
    for number in 0..100 {
        fake.files().replace(&format!("/f{number}"), b"old");
    }
    for number in 0..50 {
        mount.look(&format!("f{number}")).unwrap();
    }
    fake.files().replace("/f60", b"another");
    let told = mount.look("f60").unwrap();
    let opened = mount.open_it(told, READ);
    let now = mount.look("f60").unwrap();
    match opened {
        Ok(_) => assert_eq!(now, told, "half a second passed"),
        Err(why) => assert!(why.errno == libc::ESTALE && now != told),
    }
    mount.open_it(now, READ).unwrap();
    assert_eq!(mount.lasting_attributes(now).unwrap().size, 7);
}

#[test]
fn who_makes_many_names_lists_nothing() {
    let (fake, mount) = Fake::mount();
    let is_list = |request: &Request| matches!(request, Request::List { .. });
    for number in 0..50 {
        assert_eq!(mount.look(&format!("f{number}")).unwrap_err().errno, libc::ENOENT);
        fake.files().replace(&format!("/f{number}"), b"");
    }
    assert_eq!(fake.asked(is_list), 0);
    (0..50).for_each(|number| assert!(mount.look(&format!("f{number}")).is_ok()));
    assert_eq!(fake.asked(is_list), 1);
}

/// As open(2) with O_CREAT, after the kernel has looked for the name.
fn create(mount: &GfarmVolume, name: &str) -> InodeId {
    assert_eq!(mount.look(name).unwrap_err().errno, libc::ENOENT);
    mount.create_it(name, WRITE).unwrap()
}

fn close(mount: &GfarmVolume, ino: InodeId) {
    mount.closed(ino).unwrap();
    mount.release(ino, WRITE);
}

/// The next file, after `count` without bytes.
fn after_empty_ones(mount: &GfarmVolume, count: usize) -> InodeId {
    for number in 0..count {
        let ino = create(mount, &format!("f{number}"));
        close(mount, ino);
    }
    create(mount, "last")
}

fn has_place(request: &Request) -> bool {
    matches!(request, Request::Create { place: true, .. })
}

#[test]
fn of_many_files_without_bytes_few_get_a_place() {
    let (fake, mount) = Fake::mount();
    let ino = after_empty_ones(&mount, 100);
    assert_eq!(fake.asked(has_place), 8);
    assert_eq!(mount.size(ino), 0);
    mount.sync(ino, false).unwrap();
    assert_eq!(fake.asked(|request| matches!(request, Request::Sync { .. })), 0);
    close(&mount, ino);
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
}

fn is_like(request: &Request) -> bool {
    matches!(request, Request::Create { like: Some(_), .. })
}

#[test]
fn of_many_files_without_bytes_few_are_asked_for_their_attributes() {
    let (fake, mount) = Fake::mount();
    fake.files().owner = (5, 6);
    let ino = after_empty_ones(&mount, 100);
    assert!(fake.asked(is_like) > 0);
    let attr = mount.lasting_attributes(ino).unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode, attr.nlink, attr.size), (5, 6, 0o644, 1, 0));
    assert_eq!(mount.look("last").unwrap(), ino);
    close(&mount, ino);
    mount.drain();
}

/// What the kernel asks after each file that was made.
#[test]
fn a_directory_in_which_files_are_made_is_asked_for_now_and_then() {
    let (fake, mount) = Fake::mount();
    let begun = Instant::now();
    let asked = || fake.asked(|request| matches!(request, Request::Stat { .. }));
    let time = || mount.attributes(InodeId::ROOT).unwrap().attr.mtime.seconds;
    let made = |name: &str, at| {
        fake.before(move |_, files| files.clock = (at, 0));
        close(&mount, mount.create_it(name, WRITE).unwrap());
    };
    assert_eq!((time(), asked()), (0, 2), "the start of the mount asks as well");
    for number in 1..6 {
        made(&format!("f{number}"), number);
        assert_eq!(time(), number);
    }
    let is_quick = begun.elapsed() < KNOWN_FOR;
    assert!(asked() == 0 || !is_quick);
    mount.remove(InodeId::ROOT, b"f1", false).unwrap();
    assert_eq!((time(), asked()), (5, 1), "this mount did something else");
    made("g", 9);
    assert_eq!(time(), 9);
    let mode = MetaChange { mode: Some(0o711), ..MetaChange::default() };
    mount.set_attributes(InodeId::ROOT, &mode).unwrap();
    assert_eq!(mount.attributes(InodeId::ROOT).unwrap().attr.mode, 0o711);
    mount.drain();
}

#[test]
fn a_file_that_gets_bytes_all_the_same_is_told_of_when_it_is_closed() {
    let (fake, mount) = Fake::mount();
    let ino = after_empty_ones(&mount, 20);
    mount.write(ino, 0, b"bytes").unwrap();
    assert_eq!((mount.size(ino), mount.bytes(ino).unwrap()), (5, b"bytes".to_vec()));
    let closes = || fake.asked(|request| matches!(request, Request::Close { .. }));
    closes();
    mount.closed(ino).unwrap();
    assert!(closes() >= 1);
    mount.release(ino, WRITE);
    let next = create(&mount, "next");
    assert_eq!(fake.asked(has_place), 1, "it may get bytes too");
    close(&mount, next);
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
    assert_eq!(fake.files().stat("/last").size, 5);
}

#[test]
fn times_of_a_new_file_without_bytes_stay_as_they_were_set() {
    let (fake, mount) = Fake::mount();
    let ino = after_empty_ones(&mount, 20);
    let mtime = TimeSpec { seconds: 1_500_000_000, nanos: 7 };
    let times = MetaChange { mtime: Some(SetTime::To(mtime)), ..MetaChange::default() };
    mount.set_attributes(ino, &times).unwrap();
    let set = |request: &Request| matches!(request, Request::SetTimes { .. });
    assert_eq!(fake.asked(set), 1);
    close(&mount, ino);
    assert_eq!(fake.asked(set), 1, "after its close, which sets others");
    mount.drain();
}

#[test]
fn a_new_file_is_removed_renamed_and_found_like_any_other() {
    let (fake, mount) = Fake::mount();
    let ino = after_empty_ones(&mount, 20);
    mount.remove(InodeId::ROOT, b"last", false).unwrap();
    assert_eq!(mount.look("last").unwrap_err().errno, libc::ENOENT);
    mount.write(ino, 0, b"bytes").unwrap();
    assert_eq!(mount.bytes(ino).unwrap(), b"bytes", "it is open");
    close(&mount, ino);
    let [from, to] = [b"f1", b"g1"].map(|name| (InodeId::ROOT, name.to_vec()));
    mount.rename(from, to, false, false).unwrap();
    assert_eq!(mount.look("f1").unwrap_err().errno, libc::ENOENT);
    assert_eq!(mount.size(mount.look("g1").unwrap()), 0);
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
}

/// What the second open writes may go past what the first one knows of.
#[test]
fn a_new_file_that_is_opened_once_more_is_told_of_when_it_is_closed() {
    let (fake, mount) = Fake::mount();
    let ino = after_empty_ones(&mount, 20);
    mount.open_it(ino, WRITE).unwrap();
    assert_eq!(mount.allocate(ino, 0, 0, 5).unwrap_err().errno, libc::EOPNOTSUPP);
    // Those of the others are closed behind close(2).
    while fake.files().opens() > 2 {
        std::thread::yield_now();
    }
    fake.before(|request, files| {
        if matches!(request, Request::Close { .. }) {
            files.write("/f0", b"told");
        }
    });
    mount.closed(ino).unwrap();
    assert_eq!(fake.files().stat("/f0").size, 4, "before close(2) has returned");
    fake.before(|_, _| {});
    (0..2).for_each(|_| mount.release(ino, WRITE));
    mount.drain();
    assert_eq!(fake.files().opens(), 0);
}
