//! Selection, overwriting, removal.

use super::*;
use hayase_stage::{Overwrite, Selection};

fn list(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn names(top: &Path) -> Vec<String> {
    snapshot(top).into_keys().map(|name| String::from_utf8(name).unwrap()).collect()
}

fn write(top: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
    std::fs::write(top.join(name), text).unwrap();
}

#[test]
fn only_what_is_selected_is_copied() {
    let trees = Trees::new(|top| {
        for name in ["a.c", "a.o", "src/b.c", "src/b.o", "build/x.c"] {
            write(top, name, name);
        }
    });
    let selection = Selection::new(&list("*.c"), &list("build/")).unwrap();
    copy_all(&trees.from(), &trees.to(), &Options { selection, ..Options::default() });
    assert_eq!(names(&trees.to), ["a.c", "src", "src/b.c"]);
}

#[test]
fn removal_spares_what_is_not_selected() {
    for packed in [false, true] {
        let trees = Trees::new(|top| write(top, "keep", "1"));
        let base =
            if packed { packs(64 << 10, Compression::None, None) } else { Options::default() };
        let more = Trees::new(|top| {
            for name in ["keep", "old/a", "old/deep/b", "old.tmp", "mine/x"] {
                write(top, name, name);
            }
            std::os::unix::fs::symlink("keep", top.join("gone-link")).unwrap();
        });
        copy_all(&more.from(), &trees.to(), &base);
        let exclude = Selection::new(&[], &list("mine/ *.tmp")).unwrap();
        let options = Options { delete: true, selection: exclude, ..base.clone() };
        let dry = Options { is_dry_run: true, ..options.clone() };
        let before = names(&trees.to);
        assert_eq!(copy_all(&trees.from(), &trees.to(), &dry).removed, 5);
        assert_eq!(names(&trees.to), before, "a dry run changes nothing");
        let guarded = Options { delete_max: Some(4), ..options.clone() };
        let summary = copy(&trees.from(), &trees.to(), &guarded);
        assert_eq!((summary.removed, summary.failures_total), (0, 1), "{summary:?}");
        let why = summary.failures[0].error.to_string();
        assert_eq!(why, "5 names would be removed, but --max-delete is 4: nothing was removed");
        let summary = copy_all(&trees.from(), &trees.to(), &options);
        assert_eq!(summary.removed, 5, "old, old/a, old/deep, old/deep/b, gone-link");
        let shown = if packed {
            let out = Trees::new(|_| ());
            copy_all(&trees.to(), &out.to(), &Options::default());
            names(&out.to)
        } else {
            names(&trees.to)
        };
        assert_eq!(shown, ["keep", "mine", "mine/x", "old.tmp"]);
    }
}

#[test]
fn nothing_is_removed_when_something_did_not_arrive() {
    let trees = Trees::new(|top| write(top, "file", "1"));
    std::process::Command::new("mkfifo").arg(trees.from.join("pipe")).status().unwrap();
    write(&trees.to, "old", "2");
    let summary = copy(&trees.from(), &trees.to(), &Options { delete: true, ..Options::default() });
    assert_eq!((summary.failures_total, summary.removed), (1, 0));
    assert_eq!(summary.failures[0].error.to_string(), "left out: it is a pipe");
    assert_eq!(names(&trees.to), ["file", "old"]);
}

#[test]
fn an_empty_source_empties_nothing_unless_it_is_said() {
    let base = [Options::default(), packs(64 << 10, Compression::None, None)];
    for (base, is_dry_run) in base.into_iter().flat_map(|o| [(o.clone(), true), (o, false)]) {
        let trees = Trees::new(|_| ());
        let full = Trees::new(|top| fill(top, 3, 10));
        copy_all(&full.from(), &trees.to(), &base);
        let before = names(&trees.to);
        let options = Options { delete: true, is_dry_run, ..base };
        let told = try_copy(&trees.from(), &trees.to(), None, &options).unwrap_err();
        assert!(matches!(told, PackError::RemovesAll { .. }), "{told}");
        assert_eq!(names(&trees.to), before);
        let meant = Options { delete_max: Some(100), ..options.clone() };
        assert_eq!(copy_all(&trees.from(), &trees.to(), &meant).removed, 6);
        // Where nothing is there is nothing to fear.
        let nothing = Trees::new(|_| ());
        copy_all(&nothing.from(), &nothing.to(), &options);
    }
}

#[test]
fn what_lies_beside_packs_and_in_no_index_goes_with_what_is_removed() {
    let trees = Trees::new(|top| write(top, "keep", "1"));
    let options = packs(64 << 10, Compression::None, None);
    copy_all(&trees.from(), &trees.to(), &options);
    // What a killed run left: it came there before the index did. And what others have there.
    let others = ["left/of-now", "left/small", "set/.hayase-packs/pack-1", "set/large"];
    for name in [&["left/large", "mine/large"][..], &others].concat() {
        std::fs::create_dir_all(trees.to.join(name).parent().unwrap()).unwrap();
        let bytes = if name == "left/small" { 60_000 } else { 100_000 };
        std::fs::write(trees.to.join(name), vec![1; bytes]).unwrap();
        let days = std::time::Duration::from_secs(48 * 3600);
        let file = std::fs::File::options().append(true).open(trees.to.join(name)).unwrap();
        if name != "left/of-now" {
            file.set_modified(std::time::SystemTime::now() - days).unwrap();
        }
    }
    let selection = Selection::new(&[], &list("mine/")).unwrap();
    let options = Options { selection, ..options };
    copy_all(&trees.from(), &trees.to(), &options);
    assert!(trees.to.join("left/large").exists(), "nobody said that anything is to go");
    let delete = Options { delete: true, ..options };
    let guarded = Options { delete_max: Some(0), ..delete.clone() };
    let summary = copy(&trees.from(), &trees.to(), &guarded);
    assert_eq!((summary.removed, summary.failures_total), (0, 1), "{summary:?}");
    assert!(trees.to.join("left/large").exists());
    assert_eq!(copy_all(&trees.from(), &trees.to(), &delete).removed, 1);
    assert!(!trees.to.join("left/large").exists() && trees.to.join("mine/large").exists());
    assert!(others.iter().all(|name| trees.to.join(name).exists()), "it is not ours");
    std::fs::remove_file(trees.to.join("left/small")).unwrap();
    std::fs::remove_file(trees.to.join("left/of-now")).unwrap();
    // Of a sealed set nothing lies beside the packs that would be its own.
    let sealed = Trees::new(|_| ());
    let mut options = packs(64 << 10, Compression::None, Some(master()));
    options.delete = true;
    copy_all(&trees.from(), &sealed.to(), &options);
    std::fs::copy(trees.to.join("mine/large"), sealed.to.join("large")).unwrap();
    assert_eq!(copy_all(&trees.from(), &sealed.to(), &options).removed, 0);
}

#[test]
fn rules_of_overwriting() {
    use Overwrite::{Always, Changed, Never, Newer};
    for (overwrite, text) in
        [(Changed, "new"), (Newer, "theirs"), (Never, "theirs"), (Always, "new")]
    {
        let trees = Trees::new(|top| write(top, "file", "new"));
        write(&trees.to, "file", "theirs");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        std::fs::File::open(trees.to.join("file")).unwrap().set_modified(later).unwrap();
        copy_all(&trees.from(), &trees.to(), &Options { overwrite, ..Options::default() });
        let read = std::fs::read_to_string(trees.to.join("file")).unwrap();
        assert_eq!(read, text, "{overwrite:?}");
    }
}

#[test]
fn one_kind_becomes_another() {
    let trees = Trees::new(|top| {
        write(top, "was-link", "file");
        std::os::unix::fs::symlink("was-link", top.join("was-file")).unwrap();
        write(top, "was-directory", "file");
        write(top, "was-file-2/inside", "file");
    });
    std::os::unix::fs::symlink("elsewhere", trees.to.join("was-link")).unwrap();
    write(&trees.to, "was-file", "file");
    write(&trees.to, "was-directory/inside", "file");
    write(&trees.to, "was-file-2", "file");
    let summary = copy(&trees.from(), &trees.to(), &Options::default());
    // Links and files replace each other; a directory is never taken away for a file.
    assert_eq!(std::fs::read_to_string(trees.to.join("was-link")).unwrap(), "file");
    assert_eq!(std::fs::read_link(trees.to.join("was-file")).unwrap(), Path::new("was-link"));
    let mut failed: Vec<_> = summary.failures.iter().map(|failure| failure.name.as_str()).collect();
    failed.sort_unstable();
    failed.dedup();
    assert_eq!(failed, ["was-directory", "was-file-2", "was-file-2/inside"], "{summary:?}");
    assert_eq!(std::fs::read_to_string(trees.to.join("was-directory/inside")).unwrap(), "file");
}

/// What `--delete` does with kinds, and that a dry run tells the same as a real one.
#[test]
fn a_removal_makes_room_for_another_kind() {
    let large = vec![7; 17 << 20];
    let trees = Trees::new(|top| {
        write(top, "a-directory", "file");
        write(top, "a-directory.more", "beside it in the order of names");
        std::fs::write(top.join("large"), &large).unwrap();
        std::os::unix::fs::symlink("large", top.join("link")).unwrap();
        write(top, "was-file/inside/deep", "file");
        write(top, "was-link/inside", "file");
    });
    write(&trees.to, "a-directory/x/y", "old");
    write(&trees.to, "a-directory-2", "old");
    write(&trees.to, "large/x", "old");
    write(&trees.to, "link/x", "old");
    write(&trees.to, "was-file", "old");
    write(&trees.to, "was-file.old", "old");
    std::os::unix::fs::symlink("elsewhere", trees.to.join("was-link")).unwrap();
    let before = snapshot(&trees.to);
    let failed = |options: &Options| {
        let summary = copy(&trees.from(), &trees.to(), options);
        let mut failed: Vec<_> = summary
            .failures
            .iter()
            .map(|failure| format!("{}: {}", failure.name, failure.error))
            .collect();
        failed.sort_unstable();
        failed
    };
    let dry = Options { is_dry_run: true, ..Options::default() };
    let told = failed(&dry);
    assert_eq!(snapshot(&trees.to), before);
    let directory = "a directory stands in its place, and only --delete takes it away";
    assert_eq!(told[0], format!("a-directory: {directory}"));
    assert_eq!(told.len(), 8, "three files, and two directories with what is in them: {told:?}");
    assert_eq!(failed(&Options::default()), told);
    assert_eq!(std::fs::read_to_string(trees.to.join("a-directory/x/y")).unwrap(), "old");
    // Nothing goes before all that would go is counted.
    let guarded = Options { delete: true, delete_max: Some(100), ..Options::default() };
    for is_dry_run in [true, false] {
        let told = failed(&Options { is_dry_run, ..guarded.clone() });
        assert!(told.iter().any(|told| told.contains("--max-delete")), "{told:?}");
    }
    assert_eq!(std::fs::read_to_string(trees.to.join("was-file")).unwrap(), "old");
    let delete = Options { delete: true, ..Options::default() };
    let dry = copy_all(&trees.from(), &trees.to(), &Options { is_dry_run: true, ..delete.clone() });
    assert_eq!(std::fs::read_to_string(trees.to.join("was-file")).unwrap(), "old");
    // Nothing goes while something is missing, and the next run does it.
    std::process::Command::new("mkfifo").arg(trees.from.join("pipe")).status().unwrap();
    let told = failed(&delete);
    assert!(
        told[0].starts_with("a-directory: ") && told[0].contains("everything else"),
        "{told:?}"
    );
    assert!(told[3].starts_with("pipe: left out"), "{told:?}");
    assert!(trees.to.join("a-directory/x/y").exists());
    std::fs::remove_file(trees.from.join("pipe")).unwrap();
    let summary = copy_all(&trees.from(), &trees.to(), &delete);
    assert_eq!(summary.removed + 2, dry.removed, "two went when they stood in the way");
    assert_eq!(snapshot(&trees.to), snapshot(&trees.from));
    let again = copy_all(&trees.from(), &trees.to(), &delete);
    assert_eq!((again.copied, again.removed), (0, 0));
}

/// What is not selected is not removed, also where a file should be.
#[test]
fn a_directory_with_names_that_stay_makes_no_room() {
    let trees = Trees::new(|top| write(top, "name", "file"));
    write(&trees.to, "name/keep.me", "mine");
    write(&trees.to, "name/old", "old");
    let selection = Selection::new(&[], &list("*.me")).unwrap();
    let options = Options { delete: true, selection, ..Options::default() };
    let summary = copy(&trees.from(), &trees.to(), &options);
    let why = summary.failures[0].error.to_string();
    assert!(why.contains("names in it that were not to be removed"), "{why}");
    assert_eq!(names(&trees.to), ["name", "name/keep.me"]);
}

#[test]
fn one_kind_becomes_another_in_packs() {
    let (one, two) =
        (Trees::new(|top| write(top, "a", "file")), Trees::new(|top| write(top, "a/b", "x")));
    let options = packs(64 << 10, Compression::None, None);
    let store = store();
    for from in [&one, &two, &one] {
        copy_all(&from.from(), &store, &options);
        let out = Trees::new(|_| ());
        copy_all(&store, &out.to(), &Options::default());
        assert_same(&from.from, &out.to);
    }
}

#[test]
fn a_dry_run_of_packs_makes_nothing() {
    let trees = Trees::new(fill_oddly);
    let options = packs(64 << 10, Compression::None, Some(master()));
    let summary = copy_all(&trees.from(), &trees.to(), &Options { is_dry_run: true, ..options });
    assert!(summary.copied > 40);
    assert!(names(&trees.to).is_empty());
}

#[test]
fn attributes_alone_move_no_bytes() {
    let trees = Trees::new(|top| write(top, "file", "text"));
    copy_all(&trees.from(), &trees.to(), &Options::default());
    let mode = std::fs::Permissions::from_mode(0o751);
    std::fs::set_permissions(trees.from.join("file"), mode).unwrap();
    let summary = copy_all(&trees.from(), &trees.to(), &Options::default());
    assert_eq!((summary.copied, summary.bytes_moved), (1, 0));
    assert_same(&trees.from, &trees.to);
}
