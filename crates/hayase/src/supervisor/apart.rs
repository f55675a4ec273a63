//! Keeping the daemons of a node apart from its programs: which processors they use, which ones take the interrupts,
//! and how much processor time they have.

use std::num::NonZeroU64;

use anyhow::Context;

use crate::cpu_budget::group::Group;
use crate::interrupts::{self, Machine, Moved};
use crate::job::{Kind, NodeDir, Settings};

/// So much later than asked for may the timers of daemons ring, so that one wake-up serves several.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000_000).expect("not zero");

/// What was set up; [`Apart::end`] takes it back.
#[derive(Debug, Default)]
pub(super) struct Apart {
    moved: Option<Moved>,
    group: Option<Group>,
    told: Option<interrupts::Told>,
}

impl Apart {
    /// Before any daemon, thread or ring is made: all of them inherit it.
    pub(super) fn begin(
        &mut self,
        settings: &Settings,
        node: u16,
        dir: &NodeDir,
    ) -> anyhow::Result<()> {
        if let Some(cores) = &settings.system_cores {
            let failed = || {
                format!(
                    "keep the daemons of node {node} on the processors {cores} (--system-cores)"
                )
            };
            cores.require().with_context(failed)?;
            cores.stay().with_context(failed)?;
            if let Err(error) = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS)) {
                tracing::warn!("let timers ring later: {error}");
            }
            // Nodes that one machine simulates share its interrupts.
            if settings.move_interrupts && (settings.kind == Kind::Hosts || node == 0) {
                self.move_interrupts(cores);
            }
        }
        if let Some(budget) = settings.cpu_budget {
            let cores = budget.cores(std::thread::available_parallelism().map_or(1, usize::from));
            let name = format!("hayase-{}-{}-n{node}", settings.job, &settings.mark[..8]);
            let group = Group::make(&name, cores)?;
            tracing::info!(cores, group = %group.path().display(), "the daemons have a budget");
            dir.write_group(group.path())?;
            self.group = Some(group);
        }
        Ok(())
    }

    fn move_interrupts(&mut self, cores: &crate::processors::Processors) {
        let told = match Moved::begin(Machine::this(), cores) {
            Ok((moved, told)) => {
                self.moved = Some(moved);
                told
            }
            Err(error) => {
                interrupts::Told { moved: 0, not_moved: vec![format!("all of them: {error:#}")] }
            }
        };
        tracing::info!(moved = told.moved, "interrupts are on the processors {cores}");
        for what in &told.not_moved {
            tracing::warn!("not moved: {what}");
        }
        self.told = Some(told);
    }

    /// What became of the interrupts, where they were to be moved by this node.
    pub(super) fn interrupts(&self) -> Option<interrupts::Told> {
        self.told.clone()
    }

    /// A daemon that has just been started.
    pub(super) fn take(&self, process: u32) -> anyhow::Result<()> {
        Ok(self.group.as_ref().map_or(Ok(()), |group| group.enter(process))?)
    }

    /// When all daemons have ended; what could not be taken back.
    pub(super) fn end(&mut self) -> Vec<String> {
        let mut notes: Vec<String> = self.moved.take().map(Moved::give_back).unwrap_or_default();
        notes.extend(self.group.take().and_then(|group| group.remove().err()));
        notes
    }
}
