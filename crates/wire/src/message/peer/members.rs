//! Requests about the members of the job: what one holds, which have returned, which are lost.

use serde::{Deserialize, Serialize};

use crate::message::{Holding, MembersNow};
use crate::transport::Address;

/// Requests about the members of the job: what one holds, which have returned, which are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberRequest {
    /// Home: what the asking node holds there, first of all on meeting an incarnation. With the `last`
    /// batch all else that was asked for up to opening number `as_of` is over. `Reclaimed`.
    Reclaim { holding: Box<Holding>, as_of: u64 },
    /// Any: the asking server was restarted, and is reached there. `LinksLeft`.
    Returned { addresses: Vec<Address> },
    /// Server 0: the asking server lives, and has taken the epoch `took`. `Members`.
    Beat { took: u64 },
    /// Any, from server 0: which servers are lost.
    Members(Box<MembersNow>),
}
