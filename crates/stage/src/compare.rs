//! What becomes of one name, from what source and target have of it: pure.

use hayase_tier::ObjectMeta;

use crate::item::{Item, Kind};

/// When a file that is there already is written over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// When size or time differ.
    #[default]
    Changed,
    /// When size or time differ, and the source's time is later.
    Newer,
    /// Always, also when nothing differs.
    Always,
    /// Never; modes of files that are there stay, too.
    Never,
}

/// What is to be done for a name of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The target has it as it is.
    Keep,
    /// The target has another one, and the rule says that it stays.
    Spare,
    /// Bytes are right, attributes are not.
    Attributes,
    /// It is made, or written over.
    Copy,
    /// Something of another kind (file or link) goes first.
    Replace,
    /// Listings do not tell: the objects are asked. With it what the target's listing has; nothing of a
    /// link in a tree.
    Ask(Option<ObjectMeta>),
}

/// How source and target are compared.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Of files and links.
    pub overwrite: Overwrite,
    /// The target shows the mode and time that it was given. Otherwise its own time is not earlier
    /// than that of bytes that were copied.
    pub keeps_attributes: bool,
}

/// Which listings do not show what a file's writer said about it: mode, time, whether it is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hides {
    /// That of the source.
    pub source: bool,
    /// That of the target.
    pub target: bool,
}

/// Whether [`decide`] has to wait for what the objects themselves tell.
pub fn must_ask(source: &Item, target: Option<&Item>, hides: Hides, overwrite: Overwrite) -> bool {
    let Some(target) = target else { return false };
    if overwrite == Overwrite::Always || overwrite == Overwrite::Never {
        return false;
    }
    match (&source.kind, &target.kind) {
        (Kind::File { bytes: ours }, Kind::File { bytes: theirs }) => {
            // An object without a time of its own is dated as the store lists it.
            let is_dated = hides.source && !hides.target && source.mtime == target.mtime;
            let is_open = overwrite == Overwrite::Newer || ours == theirs;
            (hides.source || hides.target) && is_open && !is_dated
        }
        (Kind::File { bytes }, Kind::Link { target }) => {
            hides.source && *bytes == target.len() as u64
        }
        (Kind::Link { target: ours }, Kind::File { bytes }) => {
            hides.target && *bytes == ours.len() as u64
        }
        _ => false,
    }
}

/// Decides for `source`, where the target has `target` under the same name (of the same sort: a file
/// and a directory never meet here, since they sort differently).
pub fn decide(source: &Item, target: Option<&Item>, rules: Rules) -> Step {
    let Some(target) = target else { return Step::Copy };
    let may_replace = |differs: bool| match rules.overwrite {
        Overwrite::Always => true,
        Overwrite::Never => false,
        Overwrite::Changed => differs,
        Overwrite::Newer => differs && source.mtime > target.mtime,
    };
    match (&source.kind, &target.kind) {
        (Kind::Directory, Kind::Directory) => Step::Keep,
        (Kind::File { bytes: ours }, Kind::File { bytes: theirs }) => {
            let dated = if rules.keeps_attributes {
                source.mtime.agrees(target.mtime)
            } else {
                target.mtime >= source.mtime
            };
            let same = ours == theirs && dated;
            match may_replace(!same) {
                true => Step::Copy,
                false if !same => Step::Spare,
                false if rules.overwrite == Overwrite::Never => Step::Keep,
                false if rules.keeps_attributes && source.mode != target.mode => Step::Attributes,
                false => Step::Keep,
            }
        }
        (Kind::Link { target: ours }, Kind::Link { target: theirs }) => match ours == theirs {
            true => Step::Keep,
            false if rules.overwrite == Overwrite::Never => Step::Spare,
            false => Step::Copy,
        },
        _ if rules.overwrite == Overwrite::Never => Step::Spare,
        _ => Step::Replace,
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::Key;

    use super::*;
    use crate::Mtime;

    fn file(bytes: u64, seconds: i64, mode: u32) -> Item {
        let mtime = Mtime::new(seconds, 0).unwrap();
        Item { name: Key::new("a").unwrap(), kind: Kind::File { bytes }, mode, mtime }
    }

    fn link(target: &str) -> Item {
        Item { kind: Kind::Link { target: target.as_bytes().into() }, ..file(0, 0, 0o777) }
    }

    #[test]
    fn a_table_of_steps() {
        use Overwrite::{Always, Changed, Never, Newer};
        let check = |source: &Item, target: &Item, steps: [Step; 4]| {
            for (overwrite, step) in [Changed, Newer, Always, Never].into_iter().zip(steps) {
                let rules = Rules { overwrite, keeps_attributes: true };
                assert_eq!(decide(source, Some(target), rules), step, "{overwrite:?}");
                assert_eq!(decide(source, None, rules), Step::Copy);
            }
        };
        use Step::{Attributes, Copy, Keep, Replace, Spare};
        let new = file(5, 100, 0o644);
        check(&new, &new, [Keep, Keep, Copy, Keep]);
        check(&new, &file(5, 100, 0o600), [Attributes, Attributes, Copy, Keep]);
        check(&new, &file(6, 100, 0o644), [Copy, Spare, Copy, Spare]);
        check(&new, &file(5, 99, 0o644), [Copy, Copy, Copy, Spare]);
        check(&new, &file(5, 101, 0o644), [Copy, Spare, Copy, Spare]);
        check(&new, &link("x"), [Replace, Replace, Replace, Spare]);
        check(&link("x"), &new, [Replace, Replace, Replace, Spare]);
        check(&link("x"), &link("x"), [Keep; 4]);
        check(&link("x"), &link("y"), [Copy, Copy, Copy, Spare]);
    }

    #[test]
    fn objects_are_asked_only_where_listings_do_not_tell() {
        let (source, target) = (true, true);
        let check = |ours: &Item, theirs: &Item, hides: (bool, bool), expected: bool| {
            let hides = Hides { source: hides.0, target: hides.1 };
            let asks = |overwrite| must_ask(ours, Some(theirs), hides, overwrite);
            assert_eq!(asks(Overwrite::Changed), expected, "{ours:?} {theirs:?} {hides:?}");
            assert!(!asks(Overwrite::Always) && !asks(Overwrite::Never));
            assert!(!must_ask(ours, None, hides, Overwrite::Changed), "nothing is there");
        };
        let new = file(5, 100, 0o644);
        check(&new, &file(5, 99, 0o644), (false, false), false);
        check(&new, &file(5, 99, 0o644), (source, false), true);
        check(&new, &file(5, 101, 0o644), (false, target), true);
        check(&new, &file(5, 100, 0o600), (source, false), false);
        check(&new, &file(6, 99, 0o644), (source, target), false);
        check(&new, &link("a/b/c"), (source, false), true);
        check(&new, &link("a/b"), (source, false), false);
        check(&new, &link("a/b/c"), (false, target), false);
        check(&link("a/b/c"), &new, (false, target), true);
        check(&link("a/b"), &new, (false, target), false);
        let hides = Hides { source, target: false };
        assert!(must_ask(&new, Some(&file(6, 99, 0o644)), hides, Overwrite::Newer));
    }

    #[test]
    fn a_store_with_times_of_its_own_is_asked_for_a_later_one() {
        let rules = Rules { overwrite: Overwrite::Changed, keeps_attributes: false };
        let step = |target: Item| decide(&file(5, 100, 0o644), Some(&target), rules);
        assert_eq!(step(file(5, 5000, 0o600)), Step::Keep);
        assert_eq!(step(file(5, 99, 0o644)), Step::Copy);
        assert_eq!(step(file(4, 5000, 0o644)), Step::Copy);
    }
}
