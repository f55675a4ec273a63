//! Requests about who is in the job: what another holds, who has come back, who is lost.

use serde::{Deserialize, Serialize};

use crate::message::{Holding, MembersNow};
use crate::transport::Address;

/// Requests about who is in the job: what another holds, who has come back, who is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberRequest {
    /// Home: what the asking node holds there, first of all on meeting an incarnation. With the `last`
    /// batch all else that was asked for up to opening number `as_of` is over. `Reclaimed`.
    Reclaim { holding: Box<Holding>, as_of: u64 },
    /// Any: the asking server was started anew, and is to be found there. `LinksLeft`.
    Returned { addresses: Vec<Address> },
    /// Server 0: the asking server lives, and has taken the epoch `took`. `Members`.
    Beat { took: u64 },
    /// Any, from server 0: who is lost.
    Members(Box<MembersNow>),
}
