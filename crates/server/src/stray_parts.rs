//! Parts that a crash left without a file: they are found at the next start, and removed.
//!
//! A part is made before its inode's record, and removed after it; who dies in between leaves a file that takes room
//! and that nobody can reach. A removal at another server may be lost, too. So after a restart each part is
//! looked for at its inode's home, this one or another. A file that is being made is never among them: at home
//! nothing is waited for between part and record, and parts on other servers are made after the record.
//! Order: the end of the record is made durable before its part goes, as for every removal.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use hayase_layout::ServerId;
use hayase_store::PartId;
use hayase_wire::message::{InodeRequest, PeerReply, Refused};

use crate::convert::part_refused;
use crate::limits::STRAYS_PAGE;
use crate::node::Node;
use crate::refusals::unexpected;

impl Node {
    /// Looks through all parts, in pages; what can not be decided now is left for the next start.
    pub(crate) async fn collect_stray_parts(self: Rc<Self>) {
        let parts = Arc::clone(&self.data.parts);
        let listed = match self.data.disk.run(move || parts.list().map_err(part_refused)).await {
            Ok(listed) => listed,
            Err(error) => return tracing::warn!(%error, "parts could not be listed"),
        };
        let mut of_home: BTreeMap<ServerId, Vec<PartId>> = BTreeMap::new();
        for part in listed {
            of_home.entry(part.ino.home()).or_default().push(part);
        }
        let mut collected = 0;
        for (home, parts) in of_home {
            for page in parts.chunks(STRAYS_PAGE) {
                let removed = match home == self.me {
                    true => match self.recover_records(page).await {
                        Ok(()) => self.data.remove_own_strays(page).await,
                        Err(error) => Err(error),
                    },
                    false => self.remove_strays(home, page).await,
                };
                // Others have their turn after each page.
                tokio::task::yield_now().await;
                match removed {
                    Ok(count) => collected += count,
                    Err(error) => {
                        tracing::warn!(%home, %error, "parts whose files may be gone stay for now");
                        break;
                    }
                }
            }
        }
        if collected > 0 {
            tracing::info!(collected, "parts that a crash had left without a file are removed");
            self.data.usage.changed();
        }
    }

    async fn remove_strays(
        self: &Rc<Self>,
        home: ServerId,
        parts: &[PartId],
    ) -> Result<usize, Refused> {
        let mut asked: Vec<_> = parts.iter().map(|part| part.ino).collect();
        asked.dedup();
        let gone = match self.rpc.ask(home, InodeRequest::WhichAreGone(asked)).await? {
            PeerReply::Gone(gone) => gone,
            other => return Err(unexpected(&other)),
        };
        let strays: Vec<_> = parts.iter().filter(|part| gone.contains(&part.ino)).collect();
        for part in &strays {
            tracing::debug!(%part, "a part without a file");
            self.data.parts.remove(**part).map_err(part_refused)?;
        }
        Ok(strays.len())
    }
}
