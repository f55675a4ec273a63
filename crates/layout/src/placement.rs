//! Placement: which servers get the parts of a new file.
//!
//! Here: the decision, from a table of how full the servers are. Pure: the caller knows how old the table is.
//! Not here: making the parts, what a full server says at write(2), moving files that exist.
//!
//! Rules, the first that applies:
//! 1. A policy asks for stripes: striped over as many servers as it asks for, at most all with room.
//! 2. The creator's own server is at most 80 % used and a known size fits there: `Whole` on it. A creator
//!    without a server takes the others in turn, under the same conditions.
//! 3. Striped over all servers with room; `Whole` where only one has room.
//!
//! Servers at most 80 % used are taken first; the others only when a policy's width needs them or no other
//! has room. The first server of a striped file moves on by one from file to file, so that small files
//! spread. Part 0 lies on the first server, and so does the inode's home.

use crate::{
    ByteCount, Layout, PolicyError, ServerId, StripePolicy,
    deal::Deal,
    policy::{STRIPE_BYTES_DEFAULT, check_stripe},
};

/// A server used more than this is no first choice for new parts.
pub const USED_PERCENT_MAX: u64 = 80;

/// How full one server's area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerUse {
    /// Whose area.
    pub server: ServerId,
    /// Bytes that parts may take in all.
    pub total: ByteCount,
    /// Bytes that parts may still take.
    pub free: ByteCount,
}

impl ServerUse {
    fn is_roomy(&self) -> bool {
        let used = u128::from(self.total.saturating_sub(self.free).0);
        self.has_room(ByteCount(1))
            && used * 100 <= u128::from(self.total.0) * u128::from(USED_PERCENT_MAX)
    }

    fn has_room(&self, bytes: ByteCount) -> bool {
        self.free >= bytes && !self.free.is_zero()
    }
}

/// What is known of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The server on the creator's node; a node without storage has none.
    pub local: Option<ServerId>,
    /// What the directory asks for.
    pub policy: Option<StripePolicy>,
    /// One part on one server, however full they are; no policy.
    pub in_one: bool,
    /// The size, where it is known beforehand.
    pub size: Option<ByteCount>,
    /// Which file of this creator it is, as an inode's counter: turns the first server.
    pub turn: u64,
}

/// Where the parts go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// One part, on this server.
    Whole(ServerId),
    /// Part `i` on `servers[i]`; never empty.
    Striped {
        /// Bytes dealt to one part before the next one's turn.
        stripe: ByteCount,
        /// In order of the parts.
        servers: Vec<ServerId>,
    },
    /// No server can hold it (`ENOSPC`).
    NoRoom,
}

impl Decision {
    /// The server that holds part 0 and with it the inode.
    pub fn home(&self) -> Option<ServerId> {
        match self {
            Self::Whole(server) => Some(*server),
            Self::Striped { servers, .. } => servers.first().copied(),
            Self::NoRoom => None,
        }
    }

    /// As it is kept in the inode.
    pub fn into_layout(self) -> Option<Layout> {
        match self {
            Self::Whole(_) => Some(Layout::Whole),
            Self::Striped { stripe, servers } => Some(Layout::Striped { stripe, servers }),
            Self::NoRoom => None,
        }
    }
}

/// Decides for one new file. `table` has each server that can be reached once, in any order.
///
/// Fails when the policy's stripe is none. O(servers) and no allocation for a file that stays on its
/// creator's node, else O(n log n).
pub fn place(wish: &Wish, table: &[ServerUse]) -> Result<Decision, PolicyError> {
    if let Some(policy) = wish.policy {
        check_stripe(policy.stripe)?;
        let width = if policy.width == 0 { usize::MAX } else { usize::from(policy.width) };
        let servers = pick(wish, table.to_vec(), policy.stripe, width).unwrap_or_default();
        return Ok(striped(policy.stripe, servers));
    }
    let fits = |server: &ServerUse| {
        server.is_roomy() && server.has_room(wish.size.unwrap_or(ByteCount::ZERO))
    };
    match table.iter().find(|server| Some(server.server) == wish.local) {
        Some(own) if fits(own) => return Ok(Decision::Whole(own.server)),
        Some(_) if !wish.in_one => {}
        _ => {
            let fitting = table.iter().copied().filter(fits).collect();
            let whole = pick(wish, fitting, STRIPE_BYTES_DEFAULT, 1);
            if let Some([server]) = whole.as_deref() {
                return Ok(Decision::Whole(*server));
            }
        }
    }
    if wish.in_one {
        let any = pick(wish, table.to_vec(), STRIPE_BYTES_DEFAULT, 1);
        return Ok(any.map_or(Decision::NoRoom, |servers| Decision::Whole(servers[0])));
    }
    let roomy = table.iter().copied().filter(ServerUse::is_roomy).collect();
    let servers = pick(wish, roomy, STRIPE_BYTES_DEFAULT, usize::MAX)
        .or_else(|| pick(wish, table.to_vec(), STRIPE_BYTES_DEFAULT, usize::MAX))
        .unwrap_or_default();
    match servers[..] {
        [only] => Ok(Decision::Whole(only)),
        _ => Ok(striped(STRIPE_BYTES_DEFAULT, servers)),
    }
}

fn striped(stripe: ByteCount, servers: Vec<ServerId>) -> Decision {
    if servers.is_empty() { Decision::NoRoom } else { Decision::Striped { stripe, servers } }
}

/// The widest choice of at most `width_max` servers that each have room for their part; those at most
/// 80 % used first, then the freest. `None` where not even one has room.
fn pick(
    wish: &Wish,
    mut table: Vec<ServerUse>,
    stripe: ByteCount,
    width_max: usize,
) -> Option<Vec<ServerId>> {
    let part_len = |width: usize| largest_part(wish.size, stripe, width);
    table.sort_unstable_by_key(|server| (std::cmp::Reverse(server.free), server.server));
    let width = (1..=width_max.min(table.len()).min(usize::from(u16::MAX)))
        .rev()
        .find(|width| table[width - 1].has_room(part_len(*width)))?;

    table.retain(|server| server.has_room(part_len(width)));
    table.sort_by_key(|server| !server.is_roomy()); // stable: the freest stay first
    let roomy = table.iter().filter(|server| server.is_roomy()).count();
    table.truncate(roomy.max(width));
    table.sort_unstable_by_key(|server| server.server);
    let first = (wish.turn % table.len() as u64) as usize;
    Some(table.iter().cycle().skip(first).take(width).map(|server| server.server).collect())
}

/// How long the longest part becomes, which is part 0; one byte at least.
fn largest_part(size: Option<ByteCount>, stripe: ByteCount, width: usize) -> ByteCount {
    let width = u16::try_from(width).expect("widths are bounded by the number of part numbers");
    let size = size.unwrap_or_default();
    Deal::new(stripe, width).part_len(0, size).max(ByteCount(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::StripeMap;

    /// `free/total` in MiB per server, from server 0 on.
    fn table(shares: &str) -> Vec<ServerUse> {
        shares
            .split_whitespace()
            .enumerate()
            .map(|(server, share)| {
                let (free, total) = share.split_once('/').unwrap();
                ServerUse {
                    server: ServerId(server as u16),
                    total: ByteCount::mib(total.parse().unwrap()),
                    free: ByteCount::mib(free.parse().unwrap()),
                }
            })
            .collect()
    }

    const BY_0: Wish =
        Wish { local: Some(ServerId(0)), policy: None, in_one: false, size: None, turn: 0 };

    fn sized(mib: u64) -> Wish {
        Wish { size: Some(ByteCount::mib(mib)), ..BY_0 }
    }

    fn asked(width: u16, turn: u64) -> Wish {
        let policy = StripePolicy { stripe: ByteCount::mib(1), width };
        Wish { policy: Some(policy), turn, ..BY_0 }
    }

    fn check(wish: Wish, shares: &str, expected: &str) {
        let text = match place(&wish, &table(shares)).unwrap() {
            Decision::Whole(server) => format!("whole {server}"),
            Decision::Striped { servers, .. } => {
                let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
                format!("striped {}", servers.join(","))
            }
            Decision::NoRoom => "no room".to_owned(),
        };
        assert_eq!(text, expected, "{wish:?} in {shares}");
    }

    #[test]
    fn new_files_stay_on_their_node() {
        check(BY_0, "100/100 100/100", "whole 0");
        check(BY_0, "20/100 100/100", "whole 0"); // 80 % used: still
        check(Wish { local: Some(ServerId(1)), ..BY_0 }, "100/100 50/100", "whole 1");
        check(sized(50), "50/100 100/100", "whole 0"); // just fits
        check(BY_0, "100/100", "whole 0");
    }

    #[test]
    fn a_full_node_spreads_its_new_files() {
        check(BY_0, "19/100 100/100 50/100", "striped 1,2");
        check(BY_0, "0/100 100/100 50/100", "striped 1,2");
        check(BY_0, "0/100 19/100 50/100", "whole 2"); // one with room: nothing to stripe over
        check(BY_0, "19/100", "whole 0"); // alone and not yet full
        check(BY_0, "5/100 1/100 0/100", "striped 0,1"); // all nearly full: what there is
        check(BY_0, "0/100 0/100", "no room");
        check(BY_0, "", "no room");
        check(BY_0, "0/0 0/0", "no room");
    }

    #[test]
    fn who_takes_whole_files_only_gets_no_stripes() {
        let whole = |turn| Wish { in_one: true, turn, ..BY_0 };
        check(whole(0), "20/100 100/100 100/100", "whole 0");
        check(whole(0), "19/100 100/100 50/100", "whole 1");
        check(whole(1), "19/100 100/100 50/100", "whole 2");
        check(whole(0), "5/100 7/100 0/100", "whole 1"); // nobody roomy: the freest
        check(whole(0), "0/100 0/100", "no room");
        check(Wish { size: Some(ByteCount::mib(90)), ..whole(0) }, "50/100 95/100", "whole 1");
        check(Wish { size: Some(ByteCount::mib(90)), ..whole(0) }, "50/100 60/100", "no room");
    }

    #[test]
    fn a_known_size_goes_where_it_fits() {
        check(sized(51), "50/100 100/100", "striped 0,1");
        check(sized(120), "50/100 100/100", "no room"); // 60 MiB do not fit on server 0
        check(sized(90), "25/100 100/100", "whole 1"); // nor do 45, but all of it on server 1
        check(sized(12), "19/100 100/100 100/100", "striped 1,2");
        check(sized(250), "50/100 100/100 100/100", "no room"); // 84 MiB a part is too much for 0
        check(sized(200), "50/100 100/100 100/100", "striped 1,2");
        check(sized(30), "19/100 18/100", "striped 0,1"); // nobody roomy, but together they can
        check(sized(0), "100/100 100/100", "whole 0");
    }

    #[test]
    fn policies_are_obeyed_while_there_is_room() {
        check(asked(0, 0), "100/100 100/100 100/100", "striped 0,1,2");
        check(asked(0, 1), "100/100 100/100 100/100", "striped 1,2,0");
        check(asked(2, 2), "100/100 100/100 100/100", "striped 2,0");
        check(asked(1, 4), "100/100 100/100 100/100", "striped 1");
        check(asked(9, 0), "100/100 100/100", "striped 0,1"); // as wide as possible
        check(asked(2, 0), "1/100 100/100 100/100", "striped 1,2"); // not on the nearly full one
        check(asked(3, 0), "1/100 100/100 100/100", "striped 0,1,2"); // unless it is needed
        check(asked(2, 0), "1/100 2/100 100/100", "striped 1,2"); // and then the freer one
        check(asked(0, 0), "0/100 100/100 100/100", "striped 1,2");
        check(asked(0, 0), "0/100 0/100", "no room");
        let wrong = StripePolicy { stripe: ByteCount(5000), width: 0 };
        assert!(place(&Wish { policy: Some(wrong), ..BY_0 }, &table("9/9")).is_err());
    }

    #[test]
    fn nodes_without_storage_take_turns() {
        let guest = |turn| Wish { local: None, turn, ..BY_0 };
        check(guest(0), "100/100 100/100 100/100", "whole 0");
        check(guest(4), "100/100 100/100 100/100", "whole 1");
        check(guest(0), "1/100 100/100 100/100", "whole 1");
        check(guest(0), "1/100 2/100", "striped 0,1");
        check(Wish { size: Some(ByteCount::mib(150)), ..guest(0) }, "90/100 90/100", "striped 0,1");
        check(Wish { local: Some(ServerId(7)), ..BY_0 }, "100/100", "whole 0"); // own server away
    }

    prop_compose! {
        fn any_wish()(
            local in prop::option::of(0..6u16), turn in 0..9u64,
            size in prop::option::of(0..200u64), width in prop::option::of(0..8u16)
        ) -> Wish {
            Wish {
                local: local.map(ServerId),
                policy: width.map(|width| StripePolicy { stripe: ByteCount::mib(4), width }),
                in_one: false,
                size: size.map(ByteCount::mib),
                turn,
            }
        }
    }

    prop_compose! {
        fn any_table()(shares in prop::collection::vec((0..=50u64, 0..50u64), 0..6)) -> String {
            let shares = shares.iter().map(|(free, used)| format!("{free}/{}", free + used));
            shares.collect::<Vec<_>>().join(" ")
        }
    }

    proptest! {
        #[test]
        fn decisions_hold_what_they_promise(wish in any_wish(), shares in any_table()) {
            let table = table(&shares);
            let decision = place(&wish, &table).unwrap();
            let size = wish.size.unwrap_or(ByteCount(0));
            let room = |server: ServerId, bytes: ByteCount| {
                let share = table.iter().find(|share| share.server == server).unwrap();
                share.free >= bytes && share.free > ByteCount(0)
            };
            match &decision {
                Decision::Whole(server) => {
                    prop_assert!(wish.policy.is_none() && room(*server, size));
                }
                Decision::Striped { stripe, servers } => {
                    let map = StripeMap::new(*stripe, servers.clone()).unwrap();
                    for (part, server) in (0..).zip(servers) {
                        prop_assert!(room(*server, map.part_len(part, size)));
                    }
                    if let Some(policy) = wish.policy {
                        prop_assert_eq!(*stripe, policy.stripe);
                        prop_assert!(policy.width == 0 || servers.len() <= usize::from(policy.width));
                    } else {
                        prop_assert!(servers.len() > 1, "one part needs no stripes");
                    }
                }
                // Nothing fits: not on the freest, and not in equal parts on any number of them.
                Decision::NoRoom => {
                    let mut frees: Vec<_> = table.iter().map(|share| share.free).collect();
                    frees.sort_unstable_by(|a, b| b.cmp(a));
                    let stripe = wish.policy.map_or(STRIPE_BYTES_DEFAULT, |policy| policy.stripe);
                    let width_max = wish.policy.map_or(0, |policy| policy.width);
                    let width_max = if width_max == 0 { frees.len() } else { width_max.into() };
                    for width in 1..=frees.len().min(width_max) {
                        let servers = (0..width as u16).map(ServerId).collect();
                        let map = StripeMap::new(stripe, servers).unwrap();
                        let part = map.part_len(0, size).max(ByteCount(1));
                        prop_assert!(frees[width - 1] < part, "{width} servers had room");
                    }
                }
            }
            prop_assert_eq!(place(&wish, &table), Ok(decision), "the same answer each time");
        }

        #[test]
        fn turns_spread_the_first_parts(width in 0..5u16) {
            let table = table("100/100 100/100 100/100 100/100");
            let homes: BTreeSet<_> =
                (0..4).map(|turn| place(&asked(width, turn), &table).unwrap().home()).collect();
            prop_assert_eq!(homes.len(), 4);
        }
    }
}
