//! Flushing one file, and the loop that does it for all.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hayase_layout::{InodeId, Layout};
use hayase_store::{FileState, LedgerRecord, PartStat, PendingXattrs, Synced};
use hayase_wire::message::{NameRequest, Place, Refused};
use tokio::time::Instant;

use super::gather::{self, Committed, Sending, Sent};
use super::pause::Look;
use super::policy::{Candidate, Situation, backoff, choose, streams_of_node};
use super::source::{RecordedSource, Source};
use crate::cache::name_check::NameCheck;
use crate::cache::object_moves::conflict_paths;
use crate::cache::paths::key;
use crate::cache::{Cache, Stood, stored_version, system_time};
use crate::convert::stored_time;
use crate::convert::whole_part;
use crate::limits::{
    DEADLINE_RESERVE, FILE_TIMES_GRAIN, FLUSH_BUSY_REQUESTS, FLUSH_LOOK, FLUSH_LOOK_FILES,
    FLUSH_RETRY_FIRST, FLUSH_RETRY_MAX, FLUSH_STREAMS, FLUSH_STREAMS_JOB, REMOVAL_STREAMS,
};
use crate::node::Node;
use crate::peer_service::durable_files::Asking;
use crate::refusals::libc_errno;

/// How a flush ended without an error.
enum Outcome {
    Durable,
    /// The tier has it as it was when the flush began; somebody may be writing it.
    AsItStood,
    /// The file was changed, opened, renamed or removed meanwhile: later.
    Overtaken,
    /// It gets another name, and is flushed to that.
    Conflict,
    /// Another file has its name: told in a moment, by who took it.
    Taken,
}

impl Node {
    /// Flushes for as long as the server lives.
    pub(crate) async fn keep_flushing(self: Rc<Self>) {
        let Some(cache) = self.cache.get() else { return };
        self.rpc.grace.over().await;
        self.cache.sweep_leftovers();
        let streams = streams_of_node(FLUSH_STREAMS, FLUSH_STREAMS_JOB, self.servers);
        let mut requests = self.activity.counts().requests;
        let (mut looked_at, mut looked_at_removed) = (InodeId(0), InodeId(0));
        let mut pause = Some(FLUSH_LOOK);
        loop {
            let is_woken = cache.sleep(pause).await;
            let asked = self.activity.counts().requests;
            // Woken by work, too little time has passed to tell.
            let is_busy = !is_woken && asked - requests > FLUSH_BUSY_REQUESTS;
            let is_quiet = !is_woken && asked == requests;
            requests = asked;
            cache.traffic.measure();
            self.look_at_drain(cache);
            let situation = Situation {
                running: cache.traffic.running.get(),
                streams,
                is_busy,
                is_late: cache.is_late(),
            };
            let files = cache.not_durable_after(looked_at, FLUSH_LOOK_FILES);
            let candidates = self.candidates(cache, &files);
            let mut look = Look::at(&files, &candidates, cache.late_in());
            let chosen = choose(candidates, situation);
            looked_at = next_look(&files, chosen.is_empty());
            // In a window of their own: they wait for files.
            let removed = cache.tombstones_after(looked_at_removed, FLUSH_LOOK_FILES);
            let (running, streams) = (cache.traffic.removing.get(), REMOVAL_STREAMS);
            let removing = Situation { running, streams, is_busy: false, is_late: false };
            let candidates = self.candidates(cache, &removed);
            look.join(Look::at(&removed, &candidates, None));
            let going = choose(candidates, removing);
            looked_at_removed = next_look(&removed, going.is_empty());
            for ino in chosen {
                // Nobody else is chosen while it is open.
                let as_it_stands = situation.is_late || self.has_writers(ino);
                self.begin_flush(cache, ino, as_it_stands);
            }
            for number in going {
                self.begin_removal(cache, number);
            }
            let has_given = self.give_room_back().await;
            self.warn_in_time(cache);
            let is_moving = cache.traffic.running.get() + cache.traffic.removing.get() > 0;
            pause = match is_quiet && !is_moving && !has_given {
                true => look.pause(self.look_for_room(cache)),
                false => Some(FLUSH_LOOK),
            };
        }
    }

    fn candidates(&self, cache: &Cache, files: &[InodeId]) -> Vec<Candidate> {
        let candidate = |ino: InodeId| {
            let active = cache.active(ino);
            // Begun, it would find that out, and take a stream from the file that it waits for.
            let waits = cache.has_turn(ino)
                && cache.record(ino).is_some_and(|record| self.waits_for_turn(cache, &record));
            let is_idle = !active.is_flushing.get() && !active.is_held() && !waits;
            let (complete_since, open_since) = match self.has_writers(ino) {
                true => (None, active.open_since.get().or_else(|| Some(Instant::now()))),
                false => (active.complete_since.get().or_else(|| Some(Instant::now())), None),
            };
            if active.open_since.get().is_some() && open_since.is_none() {
                active.rests_until.set(None); // Closed: what it is now is what it stays.
            }
            active.complete_since.set(complete_since);
            active.open_since.set(open_since);
            let open_for = open_since.map(|since| since.elapsed());
            let not_before = active.retry_at.get().max(active.rests_until.get());
            let retry_in = not_before.map(|at| at.duration_since(Instant::now()));
            is_idle.then_some(Candidate {
                ino,
                complete_for: complete_since.map(|since| since.elapsed()),
                in_vain_for: active.in_vain_at.get().map(|at| at.elapsed()),
                due_in: cache
                    .flush_open
                    .zip(open_for)
                    .map(|(most, open)| most.saturating_sub(open)),
                retry_in: retry_in.unwrap_or_default(),
            })
        };
        files.iter().copied().filter_map(candidate).collect()
    }

    pub(super) fn begin_flush(self: &Rc<Self>, cache: &Cache, ino: InodeId, as_it_stands: bool) {
        let active = cache.active(ino);
        // The next time when it has been open for so long again.
        active.open_since.set(None);
        active.sent.store(0, Ordering::Relaxed);
        active.round.set(active.round.get() + 1);
        // Counted before the task has its first turn: the loop may look again.
        active.is_flushing.set(true);
        cache.traffic.running.set(cache.traffic.running.get() + 1);
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move { this.flush_counted(ino, as_it_stands).await });
    }

    fn begin_removal(self: &Rc<Self>, cache: &Cache, number: InodeId) {
        let Some(tombstone) = cache.record(number) else { return };
        cache.active(number).is_flushing.set(true);
        cache.traffic.removing.set(cache.traffic.removing.get() + 1);
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let Some(cache) = this.cache.get() else { return };
            let active = cache.active(number);
            let removed = this.remove_buried(cache, &tombstone, false).await;
            active.is_flushing.set(false);
            cache.traffic.removing.set(cache.traffic.removing.get() - 1);
            match removed {
                // The next ones together: looking for them costs more than one.
                Ok(true) if cache.traffic.removing.get() == 0 => cache.work.notify_one(),
                Ok(true) => {}
                Ok(false) => active.was_in_vain(FLUSH_LOOK),
                Err(refused) => this.flush_failed(cache, number, &refused),
            }
        });
    }

    async fn flush_counted(self: Rc<Self>, ino: InodeId, as_it_stands: bool) {
        let Some(cache) = self.cache.get() else { return };
        let active = cache.active(ino);
        let result = self.flush(cache, ino, as_it_stands).await;
        active.is_flushing.set(false);
        cache.traffic.running.set(cache.traffic.running.get() - 1);
        match result {
            Ok(Outcome::Durable) => {
                cache.traffic.flushed_files.set(cache.traffic.flushed_files.get() + 1);
                active.retry_at.set(None);
                active.arrived_round.set(active.round.get());
                cache.work.notify_one();
            }
            Ok(Outcome::AsItStood) => {
                active.retry_at.set(None);
                // Once in a while is enough for a file that stays open.
                active.rests_until.set(Some(Instant::now() + DEADLINE_RESERVE));
                active.arrived_round.set(active.round.get());
            }
            Ok(Outcome::Overtaken) => {
                active.was_in_vain(FLUSH_LOOK);
                if as_it_stands {
                    // Nor is one that is written all the time sent again and again.
                    active.rests_until.set(Some(Instant::now() + DEADLINE_RESERVE));
                }
                if let Err(error) = cache.not_flushing(ino) {
                    tracing::error!(%ino, %error, "the ledger");
                }
            }
            Ok(Outcome::Taken) => active.was_in_vain(FLUSH_RETRY_FIRST),
            Ok(Outcome::Conflict) => self.rename_conflict(cache, ino).await,
            Err(refused) => self.flush_failed(cache, ino, &refused),
        }
    }

    fn flush_failed(&self, cache: &Cache, ino: InodeId, refused: &Refused) {
        // Of a file that has lost its name meanwhile, or that somebody else has flushed, nobody asks.
        let Some(record) = cache.record(ino).filter(|record| !record.state.is_safe()) else {
            return;
        };
        let attempts = record.attempts.saturating_add(1);
        let wait = backoff(attempts, FLUSH_RETRY_FIRST, FLUSH_RETRY_MAX);
        let path = String::from_utf8_lossy(&record.path).into_owned();
        tracing::warn!(%path, %refused, attempts, ?wait, "a flush failed: it is tried again");
        cache.active(ino).retry_at.set(Some(Instant::now() + wait));
        let (state, errno) = match record.state {
            FileState::Removed => (FileState::Removed, refused.errno),
            _ => (FileState::Failed, refused.errno),
        };
        let is_broken = record.is_broken || self.data.parts.has_failed(whole_part(ino, 0));
        if let Err(error) = cache.put(LedgerRecord { state, errno, attempts, is_broken, ..record })
        {
            tracing::error!(%path, %error, "the ledger");
        }
    }

    /// One try. The lock is held only from the last look at the file to the end of the commit.
    async fn flush(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
        as_it_stands: bool,
    ) -> Result<Outcome, Refused> {
        let active = cache.active(ino);
        let generation = active.generation.get();
        if cache.record(ino).is_some_and(|record| self.waits_for_turn(cache, &record)) {
            return Ok(Outcome::Overtaken);
        }
        match self.check_name_of(cache, ino).await? {
            NameCheck::Own => {}
            NameCheck::InHand => return Ok(Outcome::Overtaken),
            NameCheck::Taken => return Ok(Outcome::Taken),
        }
        if self.is_used_by_mpi(cache, ino).await? && !as_it_stands {
            return Ok(Outcome::Overtaken);
        }
        // An open or a truncate that has begun says so in the ledger first: the change is still to come.
        let is_untouched = |node: &Self| !node.has_writers(ino) && active.openings.get() == 0;
        let may = |node: &Self| as_it_stands || is_untouched(node);
        let is_still = may(self) && (as_it_stands || self.probe_part(ino).await);
        let Some(record) = cache.record(ino).filter(|record| is_still && !record.state.is_safe())
        else {
            return Ok(Outcome::Overtaken);
        };
        // Before the first look at its bytes: whoever writes it may do so, and close it, at any moment
        // from here on. A mapping is no open, and goes on being written without one.
        let is_written = as_it_stands && (self.has_writers(ino) || !self.probe_part(ino).await);
        let begin = system_time(stored_time(self.meta.now()));
        let layout = self.layout_for_flush(&record);
        let is_recorded = matches!(layout, Layout::Recorded { .. });
        // Published in, or made whole: its parts may be gone.
        let is_overtaken = || is_recorded && active.generation.get() != generation;
        cache.refuse_broken(ino)?;
        let source = match self.source((ino, &layout), is_written).await {
            Err(_) if is_overtaken() => return Ok(Outcome::Overtaken),
            source => source?,
        };
        // Others were asked meanwhile: what the ledger says of the file now counts.
        let is_still = active.generation.get() == generation && !active.is_held();
        let Some(record) = cache.record(ino).filter(|record| is_still && !record.state.is_safe())
        else {
            return Ok(Outcome::Overtaken);
        };
        let path = key(&record.path)?;
        let stat = source.stat();
        let stands = Stood::of(generation, &stat);
        // Parts that are written in place tell no other time.
        if is_written && !is_recorded && active.stood.get() == Some(stands) {
            return Ok(Outcome::AsItStood);
        }
        active.stood.set(None);
        let mark = gather::mark_of(&stat);
        let record = match record.sent {
            // Before another mark takes its place.
            Some(earlier) if earlier != mark => {
                let _held = cache.publishing.lock(ino).await;
                self.cache.adopt_sent(cache, ino).await?;
                let is_still = active.generation.get() == generation;
                match cache.record(ino).filter(|record| is_still && !record.state.is_safe()) {
                    Some(record) => record,
                    None => return Ok(Outcome::Overtaken),
                }
            }
            _ => record,
        };
        if record.state != FileState::Failed {
            let (state, bytes, sent) = (FileState::Flushing, mark.0, Some(mark));
            let layout = layout.clone();
            cache.put(LedgerRecord { state, bytes, sent, layout, ..record.clone() })?;
        } else {
            let (bytes, sent, layout) = (mark.0, Some(mark), layout.clone());
            cache.put(LedgerRecord { bytes, sent, layout, ..record.clone() })?;
        }
        let is_frozen = source.is_frozen();
        // The mark is durable before the tier has what it speaks of: or, after a power cut, that would look like
        // somebody else's version.
        let mode = gather::mode_of(&*cache.tier, &record);
        let sending = self.send(cache, ino, source, &path, mode);
        let (sent, marked) = tokio::join!(sending, cache.ledger_durable());
        let sent = match sent {
            Err(_) if is_overtaken() => return Ok(Outcome::Overtaken),
            sent => sent?,
        };
        marked?;
        let mut record = record;
        if record.version.is_none() {
            self.replace_tombstones(ino, generation).await?;
            record.version = cache.record(ino).and_then(|now| now.version);
        }
        let _held = cache.publishing.lock(ino).await;
        let is_current = |now: &LedgerRecord| {
            now.path == record.path && now.mode == record.mode && now.version == record.version
        };
        let is_same = active.generation.get() == generation
            && !active.is_held()
            && may(self)
            && cache.record(ino).is_some_and(|now| is_current(&now))
            && (is_frozen || stands_still(&sent.stat, &self.stat_for_flush((ino, &layout))?));
        if !is_same {
            return Ok(Outcome::Overtaken);
        }
        let (bytes, checksum, known) = (sent.stat.size, sent.checksum, record.clone());
        let as_sent = Synced::from(sent.stat);
        let committed =
            cache.ask_tier(move |tier| gather::commit(tier, &path, &known, sent)).await?;
        let version = match committed {
            Committed::Durable(version) => version,
            Committed::Conflict => return Ok(Outcome::Conflict),
        };
        // Opened for writing during the commit: what was committed is a version, but not the last. Nor is
        // one of a file that was written all the while: no look at size and times tells what came in
        // the same tick, or after the last look. It goes once more when nobody writes it.
        let is_last = !is_written && active.generation.get() == generation && is_untouched(self);
        cache.update(ino, |record| {
            if record.is_nameless {
                return; // A tombstone hides what was committed: it was said to be on its way.
            }
            (record.version, record.errno, record.attempts) = (Some(version), 0, 0);
            (record.bytes, record.sent) = (bytes, None);
            record.xattrs = PendingXattrs::default();
            record.checksum = Some((version.identity, checksum));
            record.state = if is_last { FileState::Durable } else { FileState::Dirty };
            record.after = if is_last { 0 } else { record.after };
            // Bytes that were sent and not synced: after a power cut the part may have some of them, and is no version.
            record.synced = record.synced.filter(|synced| synced.ctime >= as_sent.ctime);
        })?;
        cache.ledger_durable().await?;
        if is_last {
            return Ok(Outcome::Durable);
        }
        // What was written in the same tick of the clock before and after the look shows no other time.
        let changed = system_time(stands.ctime);
        let can_tell = begin.duration_since(changed).is_ok_and(|age| age > FILE_TIMES_GRAIN);
        active.stood.set(Some(stands).filter(|_| is_written && can_tell));
        Ok(Outcome::AsItStood)
    }

    async fn send(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
        source: Source,
        key: &hayase_tier::Key,
        mode: u32,
    ) -> Result<Sent, Refused> {
        let key = key.clone();
        let sent = Arc::clone(&cache.traffic.sent_bytes);
        let of_file = Arc::clone(&cache.active(ino).sent);
        let counted = move |bytes| {
            sent.fetch_add(bytes, Ordering::Relaxed);
            of_file.fetch_add(bytes, Ordering::Relaxed);
        };
        match source {
            Source::Here(source) => {
                cache.tier_work(move |tier| gather::send(tier, &source, &key, mode, &counted)).await
            }
            spread => self.send_spread(cache, spread, key, mode, &counted).await,
        }
    }

    /// The next piece is gathered while one is sent.
    async fn send_spread(
        self: &Rc<Self>,
        cache: &Cache,
        source: Source,
        key: hayase_tier::Key,
        mode: u32,
        counted: &dyn Fn(u64),
    ) -> Result<Sent, Refused> {
        let stat = source.stat();
        let begin = move |tier: &dyn hayase_tier::Tier| Sending::begin(tier, &key, stat, mode);
        let mut sending = cache.tier_work(begin).await?;
        let mut piece = self.gather_piece(&source, 0).await?;
        while !piece.is_empty() {
            let (next, bytes) = (sending.done() + piece.len() as u64, piece.len() as u64);
            let send = move |_: &dyn hayase_tier::Tier| {
                sending.add(&piece)?;
                Ok(sending)
            };
            let (added, gathered) =
                tokio::join!(cache.tier_work(send), self.gather_piece(&source, next));
            (sending, piece) = (added?, gathered?);
            counted(bytes);
        }
        if let Source::Recorded(RecordedSource { ino, shown, read, .. }) = &source {
            let (read, sync) = (read.take(), Asking::Sync { data_only: true });
            self.read_is_kept(*ino, shown, &read, sync).await?;
        }
        // One that became shorter, or was cut, is not sent for what it was.
        match sending.left() {
            0 => Ok(sending.end()),
            _ => Err(Refused::because(libc_errno::EAGAIN, "it was cut while it was read")),
        }
    }

    /// The tier has a version that is not ours: ours gets a name of its own, here and there.
    async fn rename_conflict(self: &Rc<Self>, cache: &Cache, ino: InodeId) {
        let renamed = async {
            if cache.is_nameless(ino) {
                return Ok(()); // The name is another file's, or nobody's.
            }
            cache.active(ino).is_name_known.set(false);
            if self.check_name_of(cache, ino).await? != NameCheck::Own {
                return cache.not_flushing(ino);
            }
            let inode = self.meta.inode(ino)?;
            let Some((parent, name)) = inode.name else { return Ok(()) };
            let from = Place { parent, name: name.clone() };
            if let Some(version) = self.claimed_at(&from, ino).await? {
                // It is the job's own, of a file that had the name before a power cut.
                let version = Some(stored_version(version));
                return cache.update(ino, |record| {
                    (record.version, record.state) = (version, FileState::Dirty);
                    record.xattrs.are_all = true; // That one's are not this one's.
                });
            }
            cache.update(ino, |record| (record.version, record.sent) = (None, None))?;
            let mut names = conflict_paths(&name, ino).peekable();
            while let Some(name) = names.next() {
                let to = Place { parent, name };
                let path = self.tier_path_of(&to).await?;
                let (coordinator, no_replace) = (self.names.shard_of(parent, &to.name), true);
                let from = from.clone();
                let rename = NameRequest::Rename { from, to, no_replace, once: None };
                match self.rpc.ask(coordinator, rename).await {
                    // Another version of this file is kept there.
                    Err(refused) if refused.errno == libc_errno::EEXIST => {
                        if names.peek().is_none() {
                            return Err(refused);
                        }
                    }
                    answer => {
                        answer?;
                        cache.traffic.conflict(path);
                        break;
                    }
                }
            }
            cache.update(ino, |record| record.state = FileState::Dirty)
        };
        let renamed: Result<(), Refused> = renamed.await;
        if let Err(refused) = renamed {
            self.flush_failed(cache, ino, &refused);
        }
    }
}

/// After which one the next look begins: many that can not go do not keep those behind them from
/// their turn.
fn next_look(window: &[InodeId], is_stuck: bool) -> InodeId {
    let is_full = window.len() == FLUSH_LOOK_FILES;
    window.last().copied().filter(|_| is_full && is_stuck).unwrap_or(InodeId(0))
}

/// Nothing wrote between the two looks.
fn stands_still(before: &PartStat, after: &PartStat) -> bool {
    (before.size, before.mtime, before.ctime) == (after.size, after.mtime, after.ctime)
}
