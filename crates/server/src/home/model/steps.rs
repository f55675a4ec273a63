//! What can happen next, what comes of it, and what must hold in every state.

use hayase_layout::NodeId;
use hayase_wire::message::Access;

use super::super::Event;
use super::*;
use crate::explore::Model;

impl Model for Job {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        State {
            home: Home::new(NodeId(0)),
            nodes: vec![Node::default(); self.opens.len()],
            network: Vec::new(),
            waiting: Vec::new(),
            tickets: 0,
            recalls: Vec::new(),
            last: 0,
            bytes: 0,
            acknowledged: 0,
            lost: 0,
            late: BTreeSet::new(),
            in_grace: false,
            writes: self.writes,
            repeats: self.repeats,
            cuts: self.cuts,
            gathers: self.gathers,
            looks: self.looks,
            restarts: self.restarts,
            losses: self.losses,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, (node, opens)) in (0..).zip(state.nodes.iter().zip(&self.opens)) {
            steps.extend(Self::steps_of(self, state, (at, node), opens));
        }
        for (at, message) in state.network.iter().enumerate() {
            if !state.may_arrive(message) {
                continue;
            }
            steps.push(Step::Arrive { at, again: false });
            // Answers belong to their requests; what is handed on is written once.
            let may_repeat = matches!(
                message,
                Message::Close { .. }
                    | Message::Recall { .. }
                    | Message::Returned { .. }
                    | Message::Gather { .. }
            );
            if may_repeat && state.repeats > 0 {
                steps.push(Step::Arrive { at, again: true });
            }
        }
        if state.restarts > 0 && !state.in_grace {
            steps.push(Step::RestartHome);
        }
        if state.in_grace && state.cuts > 0 {
            steps.push(Step::EndGrace);
        }
        steps
    }

    fn after(&self, before: &State, step: &Step) -> Result<State, String> {
        let mut state = before.clone();
        match *step {
            Step::Open(at) => {
                let access = self.opens[usize::from(at)][state.node(at).opened];
                let node = state.node(at);
                node.opened += 1;
                let number = node.opened as u64;
                if access.write {
                    node.pages = None;
                    node.recalls += 1;
                }
                let opening = State::opening(self, at, access.write, number);
                node.coming = Some((opening, node.recalls));
                state.send(Message::Open { node: at, write: access.write, number });
            }
            Step::Close(at) => {
                let node = state.node(at);
                let Access { read, write } = std::mem::take(&mut node.open);
                (node.pages, node.closing) = (None, true);
                (node.gathers, node.is_told) = (false, false);
                let as_of = node.opened as u64;
                state.send(Message::Close { node: at, read, write, as_of });
            }
            Step::Read(node) => {
                let known = state.acknowledged;
                state.node(node).busy = true;
                let recalls = state.node(node).recalls;
                state.send(Message::Read { node, known, recalls });
            }
            Step::Write(node) => {
                state.writes -= 1;
                if node == 0 && !self.all_remote {
                    // The kernel writes the part itself.
                    state.last += 1;
                    state.put(1 << (state.last - 1))?;
                    state.acknowledged |= 1 << (state.last - 1);
                } else {
                    state.node(node).busy = true;
                    state.send(Message::Write { node });
                }
            }
            Step::Arrive { at, again } => {
                let message = state.network.remove(at);
                if again {
                    state.repeats -= 1;
                    state.send(message);
                }
                state.arrive(self, message)?;
            }
            Step::Silent(node) => {
                state.cuts -= 1;
                state.give_up(node);
                let gathers = state.home.gatherer() == Some(NodeId(node));
                state.home.gives_up(NodeId(node));
                if gathers && state.home.is_late(NodeId(node)) {
                    state.late.insert(node);
                }
                state.send(Message::GiveUp { node });
            }
            Step::Gather(at) => {
                state.gathers -= 1;
                // None that a node has asked with has it: see `renumber`.
                let number = state.gathers + 2;
                state.node(at).asks = Some(number);
                state.send(Message::Gather { node: at, number });
            }
            Step::Keep(at) => {
                state.writes -= 1;
                state.last += 1;
                let write = 1 << (state.last - 1);
                state.acknowledged |= write;
                state.node(at).gathered |= write;
            }
            Step::HandOn(at) => state.begin_to_hand_on(at),
            Step::Look(node) => {
                state.looks -= 1;
                state.node(node).busy = true;
                let known = state.acknowledged;
                state.send(Message::Look { node, known });
            }
            Step::RestartHome => {
                state.restarts -= 1;
                state.restart_home(self);
            }
            Step::EndGrace => {
                state.cuts -= 1;
                state.in_grace = false;
                for at in 0..state.nodes.len() as u16 {
                    if state.node(at).is_untold {
                        state.node(at).is_cut = true;
                        state.forget(at);
                    }
                }
            }
            Step::Restart(node) => {
                state.restarts -= 1;
                state.node(node).is_untold = true;
            }
            Step::Tell(node) => state.tell(self, node),
            Step::Lose(node) => {
                state.losses -= 1;
                state.give_up(node);
                state.node(node).is_untold = true;
                state.event(Event::Gone { node: NodeId(node) });
            }
        }
        state.renumber();
        Ok(state)
    }

    fn check(&self, state: &State, is_over: bool) -> Result<(), String> {
        let nodes = || (0u16..).zip(&state.nodes);
        // Whom the end of the grace overtook is not served before it has told.
        let may_write = |node: &Node| node.open.write && !(node.is_cut && node.is_untold);
        for (writer, _) in nodes().filter(|(_, node)| may_write(node)) {
            for (other, node) in nodes().filter(|(other, _)| *other != writer) {
                if node.pages.is_some() {
                    return Err(format!("I4: {other} keeps pages while {writer} writes"));
                }
            }
        }
        let not_told = state.not_told();
        for (at, node) in nodes() {
            if let Some(Some(version)) = node.pages
                && node.open.read
                && state.acknowledged & later_than(version) & !state.lost & !not_told != 0
            {
                let known = state.acknowledged;
                return Err(format!("I3: {at} keeps {version} after {known:b} was acknowledged"));
            }
            let booked = state.home.opens().find(|(opener, _)| opener.0 == at);
            let booked = booked.map_or(NONE, |(_, held)| held.access());
            if node.is_untold {
                continue;
            }
            if (node.open.read && !booked.read) || (node.open.write && !booked.write) {
                return Err(format!("{at} has open {:?}, booked is {booked:?}", node.open));
            }
        }
        Self::check_gathering(state)?;
        if is_over && state.acknowledged & later_than(state.bytes) & !state.lost != 0 {
            return Err("what was acknowledged is neither written nor told to be lost".to_owned());
        }
        if is_over && !state.waiting.is_empty() {
            return Err("I11: somebody waits, and nothing can happen any more".to_owned());
        }
        Ok(())
    }
}

impl Job {
    fn steps_of(&self, state: &State, (at, node): (u16, &Node), opens: &[Access]) -> Vec<Step> {
        let mut steps = Vec::new();
        let is_quiet = node.coming.is_none() && !node.closing && !node.busy && !node.is_locked();
        if is_quiet && node.opened < opens.len() {
            steps.push(Step::Open(at));
        }
        if is_quiet && node.open != NONE && node.gathered == 0 {
            steps.push(Step::Close(at));
        }
        // What it keeps it reads without a step: `check` looks at it.
        let reads = node.open.read && !matches!(node.pages, Some(Some(_)));
        if is_quiet && reads && node.gathered == 0 {
            steps.push(Step::Read(at));
        }
        if is_quiet && node.open.write && state.writes > 0 && !node.is_told {
            steps.push(if node.gathers { Step::Keep(at) } else { Step::Write(at) });
        }
        if is_quiet && node.open.write && !node.is_told && state.gathers > 0 {
            steps.push(Step::Gather(at));
        }
        if !node.is_locked() && node.gathered != 0 {
            steps.push(Step::HandOn(at));
        }
        if is_quiet && node.open == NONE && state.looks > 0 {
            steps.push(Step::Look(at));
        }
        if state.recalls.iter().any(|(_, of)| *of == at) && state.cuts > 0 {
            steps.push(Step::Silent(at));
        }
        let is_telling =
            state.waiting.iter().any(|(_, of, what)| *of == at && *what == Waits::Told);
        if node.is_untold && !is_telling {
            steps.push(Step::Tell(at));
        }
        let may_end = !node.is_untold && at > 0 && node.coming.is_none() && !node.closing;
        if may_end && state.restarts > 0 {
            steps.push(Step::Restart(at));
        }
        if may_end && state.losses > 0 && !state.in_grace {
            steps.push(Step::Lose(at));
        }
        steps
    }

    /// H5, and what it is there for.
    fn check_gathering(state: &State) -> Result<(), String> {
        let Some(gatherer) = state.home.gatherer else { return Ok(()) };
        let mut others = state.home.opens().filter(|(opener, _)| *opener != gatherer);
        let has_hung = state.nodes[usize::from(gatherer.0)].has_hung;
        let is_beside = others.any(|(_, held)| held.access().write || !has_hung);
        if is_beside || !state.home.writes(gatherer) {
            return Err(format!("H5: {gatherer} gathers beside another, or without an open"));
        }
        let others = (0..).zip(&state.nodes).filter(|(at, _)| *at != gatherer.0);
        for (at, node) in others {
            if node.gathered != 0 && state.home.takes_gathered(NodeId(at)) {
                return Err(format!("H5: {at} and {gatherer} both gather"));
            }
        }
        Ok(())
    }
}
