//! Between servers.
//!
//! A request is sent on behalf of the sender's node: opens, grants and names looked up are booked
//! for it; where a third server acts for a node, the request names that `requester`, whose own
//! kernel already knows what it asked for and is not recalled. Every request may arrive twice (the sender repeats it under the same id after a broken
//! connection); those that are not idempotent by themselves are answered from the reply cache.

mod cache;
mod directories;
mod files;
mod inodes;
mod links;
mod locks;
mod members;
mod names;
mod operations;
mod part;
mod parts;
mod place;
mod reply;
mod server;

use serde::{Deserialize, Serialize};

pub use cache::CacheRequest;
pub use directories::DirectoryRequest;
pub use files::FileRequest;
pub use inodes::InodeRequest;
pub use links::LinkRequest;
pub use locks::LockRequest;
pub use members::MemberRequest;
pub use names::NameRequest;
pub use operations::OperationRequest;
pub use part::{MachineLife, PartRef};
pub use parts::PartRequest;
pub use place::{Binding, LeftLink, MovedName, Place, RenameEnd, ShardEntry};
pub use reply::PeerReply;
pub use server::ServerRequest;

/// A request of one server to another, by what it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// Requests about the members of the job: what one holds, which have returned, which are lost.
    Member(MemberRequest),
    /// Requests that any server answers about itself.
    Server(ServerRequest),
    /// Requests that the server of a name answers: the home of its directory, or its shard once the names are spread.
    Name(NameRequest),
    /// Requests about operations over several servers, and what is left of them.
    Operation(OperationRequest),
    /// Requests that the home of a directory answers.
    Directory(DirectoryRequest),
    /// Requests that the home of an inode answers: attributes, opens, what a node may keep.
    Inode(InodeRequest),
    /// Requests that the home of an inode answers: how many names it has.
    Link(LinkRequest),
    /// Requests about locks of processes, at the home of the file.
    Lock(LockRequest),
    /// Requests that the home of a file answers: its length, its end, who writes it.
    File(FileRequest),
    /// Requests that a server with a part of a file answers: its bytes.
    Part(PartRequest),
    /// Requests about the cache area: what the tier has, and what it is to have.
    Cache(CacheRequest),
}

macro_rules! roles {
    ($($role:ident($request:ident),)*) => {$(
        impl From<$request> for PeerRequest {
            fn from(request: $request) -> Self {
                Self::$role(request)
            }
        }
    )*};
}
roles! {
    Member(MemberRequest),
    Server(ServerRequest),
    Name(NameRequest),
    Operation(OperationRequest),
    Directory(DirectoryRequest),
    Inode(InodeRequest),
    Link(LinkRequest),
    Lock(LockRequest),
    File(FileRequest),
    Part(PartRequest),
    Cache(CacheRequest),
}
