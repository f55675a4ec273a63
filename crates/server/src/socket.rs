//! The node's socket: connections of this node's processes.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use hayase_layout::ByteCount;
use hayase_wire::message::{
    ClientRole, NodeReply, NodeRequest, PAYLOAD_BYTES_MAX, PROTOCOL_VERSION, Refused,
};
use hayase_wire::{KernelDevice, NodeChannel, NodeListener};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::arenas;
use crate::clients::{Callee, Process};
use crate::limits::{ARENA_SLOTS_MAX, CLIENT_CONNECTIONS_MAX};
use crate::node::Node;
use crate::node_service::NodeAnswer;
use crate::refusals::libc_errno;

/// What a connection is for.
enum Purpose {
    Requests,
    Callback,
    Multiplexed,
    HandOver(KernelDevice),
}

impl Node {
    /// Accepts processes until the task is dropped.
    pub(crate) async fn serve_socket(self: Rc<Self>, listener: NodeListener) {
        let places = Rc::new(Semaphore::new(CLIENT_CONNECTIONS_MAX));
        loop {
            let Ok(place) = places.acquire().await else { return };
            place.forget();
            match listener.accept().await {
                Ok(channel) => {
                    let (this, places) = (Rc::clone(&self), Rc::clone(&places));
                    tokio::task::spawn_local(async move {
                        this.serve_connection(channel).await;
                        places.add_permits(1);
                    });
                }
                Err(error) => {
                    places.add_permits(1);
                    tracing::warn!(%error, "a process could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn serve_connection(self: &Rc<Self>, mut channel: NodeChannel) {
        let (body, descriptor) = match channel.recv().await {
            Ok(first) => first,
            Err(error) => return tracing::debug!(%error, "a process left before it said hello"),
        };
        let owner = rustix::process::geteuid().as_raw();
        let uid = channel.peer_credentials().uid;
        if uid != owner && uid != 0 {
            let why = format!("user {uid} is not the owner of this job");
            return refuse(&mut channel, Refused::because(libc_errno::EPERM, why)).await;
        }
        let hello = hayase_wire::decode::<NodeRequest>(&body);
        let (process, purpose) = match hello.map(|hello| self.welcome(&hello, descriptor)) {
            Ok(Ok(welcomed)) => welcomed,
            Ok(Err(refused)) => return refuse(&mut channel, refused).await,
            Err(error) => {
                let refused = Refused::because(libc_errno::EPROTO, error.to_string());
                return refuse(&mut channel, refused).await;
            }
        };
        // What came on the one before is done: who asks again is not overtaken by a first request.
        let _alone = match purpose {
            Purpose::Multiplexed => process.sharing.acquire().await.ok(),
            _ => None,
        };
        let welcome = NodeReply::Welcome {
            node: self.node,
            nodes: self.servers,
            slot: ByteCount(PAYLOAD_BYTES_MAX as u64),
            start_id: self.start_id,
        };
        if let Err(error) = say(&mut channel, welcome.into()).await {
            return tracing::debug!(%error, "a process left before it was welcomed");
        }
        match purpose {
            Purpose::Callback => process.add_callback(Callee::Socket(channel)),
            Purpose::Multiplexed => {
                process.connect();
                self.serve_multiplexed(&process, channel).await;
                self.disconnected(&process).await;
            }
            Purpose::HandOver(device) => {
                process.connect();
                self.serve_handed_over(&process, channel, device).await;
                self.disconnected(&process).await;
            }
            Purpose::Requests => {
                process.connect();
                self.serve_requests(&process, channel).await;
                self.disconnected(&process).await;
            }
        }
    }

    fn welcome(
        &self,
        hello: &NodeRequest,
        descriptor: Option<OwnedFd>,
    ) -> Result<(Rc<Process>, Purpose), Refused> {
        let NodeRequest::Hello { version, role, process, arena_slots, mount, returning } = *hello
        else {
            return Err(Refused::because(libc_errno::EPROTO, "said something else than hello"));
        };
        if version != PROTOCOL_VERSION {
            let why = format!("speaks protocol {version}, this server {PROTOCOL_VERSION}");
            return Err(Refused::because(libc_errno::EPROTO, why));
        }
        if arena_slots > ARENA_SLOTS_MAX {
            let why = format!("an arena of {arena_slots} slots; at most {ARENA_SLOTS_MAX}");
            return Err(Refused::because(libc_errno::EINVAL, why));
        }
        let (purpose, arena) = match role {
            ClientRole::Requests => (Purpose::Requests, descriptor),
            ClientRole::Callback => (Purpose::Callback, None),
            ClientRole::Multiplexed => (Purpose::Multiplexed, None),
            ClientRole::HandOver => (Purpose::HandOver(kernel_device(mount, descriptor)?), None),
        };
        let process = self.clients.process(process, mount, returning);
        if let Some(descriptor) = arena
            && process.arena.borrow().is_none()
        {
            let arena = arenas::of_process(descriptor, arena_slots)
                .map_err(|error| Refused::because(libc_errno::EINVAL, error.to_string()))?;
            process.take_arena(arena, &self.network);
        }
        Ok((process, purpose))
    }

    async fn serve_requests(self: &Rc<Self>, process: &Rc<Process>, mut channel: NodeChannel) {
        let caller = self.crowd.caller();
        loop {
            let Ok((body, _)) = channel.recv().await else { return };
            let answer = match hayase_wire::decode::<NodeRequest>(&body) {
                Ok(request) => self.serve_process(process, request).await,
                Err(error) => {
                    let refused = Refused::because(libc_errno::EPROTO, error.to_string());
                    NodeReply::Refused(refused).into()
                }
            };
            if self.crowd.is_one_with(caller, Instant::now()) {
                // What others have asked meanwhile is served first, then all are answered.
                tokio::task::yield_now().await;
            }
            if let Err(error) = say(&mut channel, answer).await {
                return tracing::debug!(%error, "a process left before its answer");
            }
        }
    }
}

/// Where the kernel asks a mount.
fn kernel_device(mount: bool, descriptor: Option<OwnedFd>) -> Result<KernelDevice, Refused> {
    let device = descriptor.filter(|_| mount).and_then(KernelDevice::new);
    device.ok_or_else(|| {
        Refused::because(libc_errno::EINVAL, "only a mount hands over, and with its /dev/fuse")
    })
}

async fn refuse(channel: &mut NodeChannel, refused: Refused) {
    tracing::warn!(%refused, "a process was turned away");
    if let Err(error) = say(channel, NodeReply::Refused(refused).into()).await {
        tracing::debug!(%error, "and did not wait to hear why");
    }
}

async fn say(channel: &mut NodeChannel, answer: NodeAnswer) -> Result<(), String> {
    use std::os::fd::AsFd;
    let body = hayase_wire::encode(&answer.reply).map_err(|error| error.to_string())?;
    let descriptor = answer.descriptor.as_ref().map(AsFd::as_fd);
    let sent = channel.send(&body, descriptor).await;
    if let Some(rest) = answer.rest {
        rest();
    }
    sent.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mount_with_its_own_device_hands_over() {
        let open = |path| Some(OwnedFd::from(std::fs::File::open(path).expect("a device")));
        for (mount, descriptor) in
            [(true, None), (true, open("/dev/null")), (false, open("/dev/null")), (false, None)]
        {
            let refused = kernel_device(mount, descriptor).expect_err("refused");
            assert_eq!(refused.errno, libc_errno::EINVAL);
        }
        // Without /dev/fuse nothing mounts.
        if let Ok(device) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
            let again = device.try_clone().expect("a copy");
            assert!(kernel_device(false, Some(again.into())).is_err());
            assert!(kernel_device(true, Some(device.into())).is_ok());
        }
    }
}
