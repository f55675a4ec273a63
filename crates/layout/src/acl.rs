//! POSIX access control lists: their form as extended attributes, and what they have to do with modes.
//!
//! Here: reading and writing the form, the mode that a list amounts to, chmod(2), what a new file inherits.
//! Not here: where lists are kept (with the inode, `hayase_store`), who checks them (the kernel of each mount).
//! Source: POSIX 1003.1e draft 17; Linux, `include/uapi/linux/posix_acl_xattr.h` and `fs/posix_acl.c`.

use serde::{Deserialize, Serialize};

/// The list that is checked.
pub const ACCESS_NAME: &[u8] = b"system.posix_acl_access";
/// The list that what is made in a directory begins with.
pub const DEFAULT_NAME: &[u8] = b"system.posix_acl_default";

/// Entries of one list. They travel with the attributes of a file, of which one message carries hundreds; XFS allowed 25
/// for long, Lustre 32.
pub const ACL_ENTRIES_MAX: usize = 128;

const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const ENTRY_BYTES: usize = 8;
/// Whom an entry is for that names nobody.
const NO_ID: u32 = u32::MAX;
const BITS: u32 = 0o7;

/// Whom an entry is for, in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AclWho {
    /// The owner.
    Owner,
    /// A user.
    User(u32),
    /// The group of the file.
    OwnGroup,
    /// Another group.
    Group(u32),
    /// The most that users and groups get who are named, and the group of the file.
    Mask,
    /// All others.
    Other,
}

/// What it may: bits as in one digit of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AclEntry {
    /// Who.
    pub who: AclWho,
    /// 0 to 7.
    pub bits: u8,
}

/// A list, which is valid: an owner, a group and others, each once, and a mask if it names anybody.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<AclEntry>", try_from = "Vec<AclEntry>")]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// Both lists of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acls {
    /// Only one that says more than the mode.
    pub access: Option<Acl>,
    /// Of a directory.
    pub default: Option<Acl>,
    /// Of an inode that was taken from a tier: whether it has any there is not known before its home asks.
    pub in_tier: bool,
}

/// Why bytes are no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// Not the form of version 2, or not the entries that a list has.
    #[error("not a valid POSIX access control list of version 2")]
    Invalid,
    /// Too many entries.
    #[error("an access control list here has {ACL_ENTRIES_MAX} entries at most")]
    TooLong,
}

impl Acl {
    /// Of the value of an extended attribute; `None` where it has no entries, which takes a list away.
    ///
    /// # Errors
    /// As `setxattr(2)` with `EINVAL` and `E2BIG`.
    pub fn parse(value: &[u8]) -> Result<Option<Self>, AclError> {
        let entries = value.strip_prefix(&VERSION).ok_or(AclError::Invalid)?;
        let (entries, []) = entries.as_chunks::<ENTRY_BYTES>() else {
            return Err(AclError::Invalid);
        };
        if entries.is_empty() {
            return Ok(None);
        }
        if entries.len() > ACL_ENTRIES_MAX {
            return Err(AclError::TooLong);
        }
        let entries: Option<Vec<_>> = entries.iter().map(parse_entry).collect();
        Self::try_from(entries.ok_or(AclError::Invalid)?).map(Some)
    }

    /// The value of an extended attribute.
    pub fn to_value(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for entry in &self.entries {
            let (tag, id) = tag_and_id(entry.who);
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&u16::from(entry.bits).to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// Its entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Owner, group and others of a mode with this list: of the group, what the mask says if there is one.
    pub fn mode(&self) -> u32 {
        let bits = |who| self.bits(who).unwrap_or(0);
        let group = self.bits(AclWho::Mask).unwrap_or_else(|| bits(AclWho::OwnGroup));
        bits(AclWho::Owner) << 6 | group << 3 | bits(AclWho::Other)
    }

    /// The list that says no more than a mode.
    pub fn of_mode(mode: u32) -> Self {
        let entry = |(who, shift)| AclEntry { who, bits: ((mode >> shift) & BITS) as u8 };
        let classes = [(AclWho::Owner, 6), (AclWho::OwnGroup, 3), (AclWho::Other, 0)];
        Self { entries: classes.map(entry).to_vec() }
    }

    /// The mode of a copy that can not have this list: the group of the file gets what its entry and the mask allow, and
    /// not what the mask allows those who are named.
    pub fn mode_alone(&self) -> u32 {
        let own = self.bits(AclWho::OwnGroup).unwrap_or(0) << 3;
        self.mode() & (own | !0o070)
    }

    /// Whether a mode says all of it.
    pub fn is_mode(&self) -> bool {
        use AclWho::{Other, OwnGroup, Owner};
        self.entries.iter().all(|entry| matches!(entry.who, Owner | OwnGroup | Other))
    }

    /// As chmod(2) changes it: where there is a mask, that has the bits of the group.
    pub fn chmod(&mut self, mode: u32) {
        let has_mask = self.bits(AclWho::Mask).is_some();
        for entry in &mut self.entries {
            if let Some(shift) = shift(entry.who, has_mask) {
                entry.bits = ((mode >> shift) & BITS) as u8;
            }
        }
    }

    /// The mode and the list of what is made with `mode` in a directory of which this is the default list. The umask has
    /// no part in it.
    pub fn inherited(&self, mode: u32) -> (u32, Option<Self>) {
        let mut acl = self.clone();
        let has_mask = acl.bits(AclWho::Mask).is_some();
        for entry in &mut acl.entries {
            if let Some(shift) = shift(entry.who, has_mask) {
                entry.bits &= ((mode >> shift) & BITS) as u8;
            }
        }
        let mode = mode & !0o777 | acl.mode();
        (mode, Some(acl).filter(|acl| !acl.is_mode()))
    }

    fn bits(&self, who: AclWho) -> Option<u32> {
        self.entries.iter().find(|entry| entry.who == who).map(|entry| u32::from(entry.bits))
    }

    /// The order of kinds, which of them there is one of, and a mask where somebody is named. As in the kernel, users and
    /// groups may be in any order among themselves.
    fn is_valid(&self) -> bool {
        let is_named = |who| matches!(who, AclWho::User(_) | AclWho::Group(_));
        let ordered = self.entries.windows(2).all(|pair| {
            let (first, second) = (kind(pair[0].who), kind(pair[1].who));
            first < second || first == second && is_named(pair[0].who)
        });
        let has = |who| self.bits(who).is_some();
        let names = self.entries.iter().any(|entry| is_named(entry.who));
        ordered
            && has(AclWho::Owner)
            && has(AclWho::OwnGroup)
            && has(AclWho::Other)
            && (!names || has(AclWho::Mask))
    }
}

/// Also of what another member sends.
impl TryFrom<Vec<AclEntry>> for Acl {
    type Error = AclError;

    fn try_from(entries: Vec<AclEntry>) -> Result<Self, AclError> {
        if entries.len() > ACL_ENTRIES_MAX {
            return Err(AclError::TooLong);
        }
        let has_bits = entries.iter().all(|entry| u32::from(entry.bits) <= BITS);
        let acl = Self { entries };
        if has_bits && acl.is_valid() { Ok(acl) } else { Err(AclError::Invalid) }
    }
}

impl From<Acl> for Vec<AclEntry> {
    fn from(acl: Acl) -> Self {
        acl.entries
    }
}

impl Acls {
    /// Those of an inode that was taken from a tier, of which they are still to be asked.
    pub fn to_be_asked() -> Box<Self> {
        Box::new(Self { in_tier: true, ..Self::default() })
    }

    /// `None` where both are missing, as an inode keeps it.
    pub fn kept(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    /// The list of this name; `None` also where it is no name of a list.
    pub fn get(&self, name: &[u8]) -> Option<&Acl> {
        match name {
            ACCESS_NAME => self.access.as_ref(),
            DEFAULT_NAME => self.default.as_ref(),
            _ => None,
        }
    }

    /// Mode and lists of a new inode: from the default list of its directory if that has one, else by the umask. Not for
    /// symbolic links, which have neither.
    pub fn of_new(
        directory: Option<&Self>,
        is_directory: bool,
        mode: u32,
        umask: u32,
    ) -> (u32, Option<Box<Self>>) {
        let Some(default) = directory.and_then(|acls| acls.default.as_ref()) else {
            return (mode & !(umask & 0o777), None);
        };
        let (mode, access) = default.inherited(mode);
        let default = is_directory.then(|| default.clone());
        (mode, Self { access, default, in_tier: false }.kept())
    }

    /// Entries of both.
    pub fn len(&self) -> usize {
        [&self.access, &self.default].into_iter().flatten().map(|acl| acl.entries.len()).sum()
    }

    /// Neither has any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether an extended attribute of this name is a list.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_NAME || name == DEFAULT_NAME
}

/// Where a mode has the bits of this entry.
fn shift(who: AclWho, has_mask: bool) -> Option<u32> {
    match who {
        AclWho::Owner => Some(6),
        AclWho::Mask => Some(3),
        AclWho::OwnGroup if !has_mask => Some(3),
        AclWho::Other => Some(0),
        AclWho::User(_) | AclWho::OwnGroup | AclWho::Group(_) => None,
    }
}

/// Its place in a list.
fn kind(who: AclWho) -> u16 {
    tag_and_id(who).0
}

fn tag_and_id(who: AclWho) -> (u16, u32) {
    match who {
        AclWho::Owner => (0x01, NO_ID),
        AclWho::User(id) => (0x02, id),
        AclWho::OwnGroup => (0x04, NO_ID),
        AclWho::Group(id) => (0x08, id),
        AclWho::Mask => (0x10, NO_ID),
        AclWho::Other => (0x20, NO_ID),
    }
}

fn parse_entry(entry: &[u8; ENTRY_BYTES]) -> Option<AclEntry> {
    let [tag, tag_high, bits, bits_high, id @ ..] = *entry;
    let id = u32::from_le_bytes(id);
    let who = match u16::from_le_bytes([tag, tag_high]) {
        0x01 => AclWho::Owner,
        0x02 if id != NO_ID => AclWho::User(id),
        0x04 => AclWho::OwnGroup,
        0x08 if id != NO_ID => AclWho::Group(id),
        0x10 => AclWho::Mask,
        0x20 => AclWho::Other,
        _ => return None,
    };
    (bits_high == 0 && u32::from(bits) <= BITS).then_some(AclEntry { who, bits })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// `u::rwx,u:7:r,g::r,m::rw,o::` as a list.
    fn acl(text: &str) -> Acl {
        Acl { entries: entries(text) }
    }

    fn entries(text: &str) -> Vec<AclEntry> {
        let entry = |entry: &str| {
            let mut fields = entry.split(':');
            let mut next = || fields.next().unwrap();
            let (kind, id, bits) = (next(), next(), next());
            let who = match (kind, id) {
                ("u", "") => AclWho::Owner,
                ("u", id) => AclWho::User(id.parse().unwrap()),
                ("g", "") => AclWho::OwnGroup,
                ("g", id) => AclWho::Group(id.parse().unwrap()),
                ("m", _) => AclWho::Mask,
                _ => AclWho::Other,
            };
            let bit = |c| match c {
                'r' => 4,
                'w' => 2,
                _ => 1,
            };
            AclEntry { who, bits: bits.chars().map(bit).sum() }
        };
        text.split(',').map(entry).collect()
    }

    const NAMED: &str = "u::rwx,u:7:rw,g::r,g:9:rx,m::rw,o::r";

    /// A message of a member, or names on a disk, may hold anything.
    #[test]
    fn what_is_decoded_is_a_list() {
        let decoded = |entries: &[AclEntry]| {
            postcard::from_bytes::<Acl>(&postcard::to_stdvec(entries).unwrap()).ok()
        };
        assert_eq!(decoded(&entries(NAMED)), Some(acl(NAMED)));
        let many = format!("u::r,{}g::r,m::r,o::", "u:7:r,".repeat(ACL_ENTRIES_MAX));
        for wrong in ["u::r,o::", "o::,g::r,u::r", "u::r,u:7:r,g::r,o::", &many] {
            assert_eq!(decoded(&entries(wrong)), None, "{wrong}");
        }
        let mut bits = entries(NAMED);
        bits[0].bits = 8;
        assert_eq!(decoded(&bits), None);
    }

    #[test]
    fn a_list_has_the_form_of_the_kernel() {
        // As getfattr -e hex shows it on ext4 after `setfacl -m u:7:rw` of a file of mode 640.
        let value = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x06\0\x07\0\0\0\x04\0\x04\0\xff\xff\xff\xff\
            \x10\0\x06\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
        let list = acl("u::rw,u:7:rw,g::r,m::rw,o::");
        assert_eq!(Acl::parse(value), Ok(Some(list.clone())));
        assert_eq!(list.to_value(), value);
        assert_eq!(Acl::parse(b"\x02\0\0\0"), Ok(None), "no entries");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let check = |text: &str| {
            let value = acl(text).to_value();
            assert_eq!(Acl::parse(&value), Err(AclError::Invalid), "{text}");
        };
        check("u::r,g::r"); // no others
        check("g::r,o::r");
        check("u::r,o::r");
        check("u::r,u:7:r,g::r,o::r"); // somebody is named, and no mask
        check("u::r,g::r,g:7:r,o::r");
        check("g::r,u::r,o::r"); // order
        check("u::r,g::r,u:7:r,m::r,o::r");
        check("u::r,u::r,g::r,o::r"); // twice
        check("u::r,g::r,m::r,m::r,o::r");
        check("u::r,u:4294967295:r,g::r,m::r,o::r"); // nobody
        let good = acl("u::r,g::r,o::r").to_value();
        for (at, byte) in [(0, 1), (4, 3), (6, 8), (7, 1)] {
            let mut value = good.clone();
            value[at] = byte;
            assert_eq!(Acl::parse(&value), Err(AclError::Invalid), "byte {at}");
        }
        assert_eq!(Acl::parse(&good[..good.len() - 1]), Err(AclError::Invalid));
        assert_eq!(Acl::parse(b""), Err(AclError::Invalid));
        let many = |count| {
            let users: String = (0..count).map(|id| format!("u:{id}:r,")).collect();
            Acl::parse(&acl(&format!("u::r,{users}g::r,m::r,o::r")).to_value())
        };
        assert!(many(ACL_ENTRIES_MAX - 4).is_ok_and(|acl| acl.is_some()));
        assert_eq!(many(ACL_ENTRIES_MAX - 3), Err(AclError::TooLong));
    }

    #[test]
    fn modes_and_lists_follow_each_other() {
        let check = |text: &str, mode, is_mode| {
            let list = acl(text);
            assert_eq!((list.mode(), list.is_mode()), (mode, is_mode), "{text}");
        };
        check("u::rwx,g::r,o::x", 0o741, true);
        check("u::rwx,g::r,m::rw,o::x", 0o761, false);
        check(NAMED, 0o764, false);
        let chmod = |text: &str, mode, expected: &str| {
            let mut list = acl(text);
            list.chmod(mode);
            assert_eq!(list, acl(expected));
        };
        chmod("u::rwx,g::r,o::x", 0o4652, "u::rw,g::rx,o::w");
        chmod(NAMED, 0o750, "u::rwx,u:7:rw,g::r,g:9:rx,m::rx,o::");
        assert_eq!(Acl::of_mode(0o4741), acl("u::rwx,g::r,o::x"));
    }

    /// The bits of the group in a mode are the mask where there is one: without the list the group would get what those
    /// have who are named.
    #[test]
    fn a_mode_without_its_list_allows_nobody_more() {
        let check = |text: &str, mode| assert_eq!(acl(text).mode_alone(), mode, "{text}");
        check("u::rw,u:7:rw,g::,m::rw,o::", 0o600);
        check(NAMED, 0o744);
        check("u::rwx,u:7:rwx,g::rwx,m::rx,o::x", 0o751);
        check("u::rwx,g::rx,o::x", 0o751);
    }

    #[test]
    fn a_new_inode_begins_with_the_default_list_or_the_umask() {
        let of = |access, default| Acls { access, default, in_tier: false };
        let directory = of(None, Some(acl(NAMED)));
        let (mode, acls) = Acls::of_new(Some(&directory), false, 0o2640, 0o077);
        assert_eq!(mode, 0o2640, "no umask");
        let access = acl("u::rw,u:7:rw,g::r,g:9:rx,m::r,o::");
        assert_eq!(acls, Some(Box::new(of(Some(access), None))));
        let (mode, acls) = Acls::of_new(Some(&directory), true, 0o777, 0o077);
        assert_eq!(mode, 0o764);
        let both = of(Some(acl(NAMED)), directory.default.clone());
        assert_eq!(acls, Some(Box::new(both)));
        let plain = of(None, Some(acl("u::rwx,g::rx,o::")));
        assert_eq!(Acls::of_new(Some(&plain), false, 0o666, 0o022), (0o640, None));
        let only_access = of(Some(acl(NAMED)), None);
        for directory in [None, Some(&only_access)] {
            assert_eq!(Acls::of_new(directory, false, 0o4666, 0o7027), (0o4640, None));
        }
    }

    /// Lists by whom an entry is for, with the rules of the draft written out: 1003.1e, 23.1.2 to 23.1.6.
    mod naive {
        use super::*;

        pub(super) type List = BTreeMap<AclWho, u8>;

        /// The mode of a file; of the class of the group, the mask or else the group's own entry.
        pub(super) fn mode(list: &List) -> u32 {
            let class = list.get(&AclWho::Mask).unwrap_or(&list[&AclWho::OwnGroup]);
            u32::from(list[&AclWho::Owner]) * 64
                + u32::from(*class) * 8
                + u32::from(list[&AclWho::Other])
        }

        pub(super) fn chmod(list: &List, mode: u32) -> List {
            let digit = |at: u32| u8::try_from(mode / 8_u32.pow(at) % 8).unwrap();
            let group = match list.contains_key(&AclWho::Mask) {
                true => AclWho::Mask,
                false => AclWho::OwnGroup,
            };
            let mut list = list.clone();
            list.insert(AclWho::Owner, digit(2));
            list.insert(group, digit(1));
            list.insert(AclWho::Other, digit(0));
            list
        }

        /// The rights of a user with these groups other than the owner.
        pub(super) fn may(list: &List, user: u32, in_own_group: bool, group: u32) -> u8 {
            let mask = *list.get(&AclWho::Mask).unwrap_or(&7);
            if let Some(bits) = list.get(&AclWho::User(user)) {
                return bits & mask;
            }
            let own = in_own_group.then(|| list[&AclWho::OwnGroup]);
            let groups = [own, list.get(&AclWho::Group(group)).copied()];
            match groups.into_iter().flatten().reduce(|one, other| one | other) {
                Some(bits) => bits & mask,
                None => list[&AclWho::Other],
            }
        }
    }

    fn any_list() -> impl Strategy<Value = naive::List> {
        let named = prop::collection::btree_map(
            prop_oneof![
                (0..4_u32).prop_map(AclWho::User),
                (0..4_u32).prop_map(AclWho::Group),
                Just(AclWho::Mask)
            ],
            0..8_u8,
            0..5,
        );
        (named, [0..8_u8, 0..8_u8, 0..8_u8, 0..8_u8]).prop_map(|(mut list, bits)| {
            list.insert(AclWho::Owner, bits[0]);
            list.insert(AclWho::OwnGroup, bits[1]);
            list.insert(AclWho::Other, bits[2]);
            if list.keys().any(|who| matches!(who, AclWho::User(_) | AclWho::Group(_))) {
                list.entry(AclWho::Mask).or_insert(bits[3]);
            }
            list
        })
    }

    fn of(list: &naive::List) -> Acl {
        let entries = list.iter().map(|(who, bits)| AclEntry { who: *who, bits: *bits });
        Acl { entries: entries.collect() }
    }

    fn list_of(acl: &Acl) -> naive::List {
        acl.entries().iter().map(|entry| (entry.who, entry.bits)).collect()
    }

    proptest! {
        #[test]
        fn lists_agree_with_a_map(list in any_list(), mode in 0..0o10000_u32) {
            let mut acl = of(&list);
            prop_assert_eq!(Acl::parse(&acl.to_value()), Ok(Some(acl.clone())));
            prop_assert_eq!(acl.mode(), naive::mode(&list));
            acl.chmod(mode);
            prop_assert_eq!(list_of(&acl), naive::chmod(&list, mode));
            prop_assert_eq!(acl.mode(), mode & 0o777, "stat(2) shows what chmod(2) has set");
        }

        /// A new file allows nobody more than the default list, and no class more than the mode that it was made with.
        #[test]
        fn what_is_inherited_allows_no_more(
            list in any_list(), mode in 0..0o10000_u32, user in 0..4_u32, group in 0..4_u32, own: bool,
        ) {
            let (made, access) = of(&list).inherited(mode);
            prop_assert_eq!(made & !mode, 0);
            prop_assert_eq!(made & !0o777, mode & !0o777);
            prop_assert_eq!(made & 0o777, naive::mode(&list) & mode);
            let inherited = match &access {
                Some(acl) => {
                    prop_assert_eq!(acl.mode(), made & 0o777);
                    list_of(acl)
                }
                None => naive::chmod(&list, made),
            };
            let allowed = naive::may(&inherited, user, own, group);
            prop_assert_eq!(allowed & !naive::may(&list, user, own, group), 0);
        }

        #[test]
        fn any_bytes_are_a_list_or_refused(value in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(Some(acl)) = Acl::parse(&value) {
                prop_assert_eq!(acl.to_value().len(), value.len());
            }
        }
    }
}
