//! Messages as lines of text that survive whatever else is on the way.
//!
//! A login script may print; srun mixes the lines of all nodes, and cuts those above 1 KiB. So a message is
//! JSON cut into short lines, each with a mark, its sender and whether more follows; lines without the mark
//! are not ours. Both directions use it.
//!
//! ```text
//!   @hayase 12 + {"said":{"rea      first part of a message of node 12
//!   Welcome to this cluster!        not ours
//!   @hayase 12 . dy":{...}}}        its end
//! ```

use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

const MARK: &str = "@hayase ";

/// Text in one line. With its head it stays well below what srun passes on in one piece.
const PIECE_BYTES_MAX: usize = 480;

/// One message: the settings of a job with all its hosts, or its list of members.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Senders whose messages are not complete yet.
const SENDERS_MAX: usize = super::super::hosts::HOSTS_MAX;

/// A message of `sender` as lines.
pub(crate) fn encode(sender: u16, message: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_string(message).expect("messages are plain data");
    let mut lines = Vec::with_capacity(text.len() + text.len() / 16 + 32);
    let mut rest = text.as_str();
    loop {
        let cut = floor_boundary(rest, PIECE_BYTES_MAX);
        let (piece, behind) = rest.split_at(cut);
        let more = if behind.is_empty() { '.' } else { '+' };
        lines.extend_from_slice(format!("{MARK}{sender} {more} {piece}\n").as_bytes());
        if behind.is_empty() {
            return lines;
        }
        rest = behind;
    }
}

/// The last place at or before `at` where a character begins.
fn floor_boundary(text: &str, at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    (0..=at).rev().find(|&place| text.is_char_boundary(place)).unwrap_or(0)
}

/// Puts lines together again.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pending: HashMap<u16, String>,
}

impl Decoder {
    /// Takes a line; a message when it was its last. `Err` holds a line that is not ours.
    pub(crate) fn take<M: DeserializeOwned>(
        &mut self,
        line: &str,
    ) -> Result<Option<(u16, M)>, String> {
        let not_ours = || line.to_owned();
        let (sender, is_last, piece) = parse(line).ok_or_else(not_ours)?;
        if self.pending.len() >= SENDERS_MAX && !self.pending.contains_key(&sender) {
            return Err(not_ours());
        }
        let text = self.pending.entry(sender).or_default();
        if text.len() + piece.len() > MESSAGE_BYTES_MAX {
            self.pending.remove(&sender);
            return Err(not_ours());
        }
        text.push_str(piece);
        if !is_last {
            return Ok(None);
        }
        let text = self.pending.remove(&sender).unwrap_or_default();
        serde_json::from_str(&text).map(|message| Some((sender, message))).map_err(|_| not_ours())
    }
}

fn parse(line: &str) -> Option<(u16, bool, &str)> {
    let (sender, rest) = line.strip_prefix(MARK)?.split_once(' ')?;
    let (more, piece) = rest.split_once(' ')?;
    let is_last = match more {
        "." => true,
        "+" => false,
        _ => return None,
    };
    Some((sender.parse().ok()?, is_last, piece))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_lines_are_told_apart() {
        let mut decoder = Decoder::default();
        for line in ["", "Welcome!", "@hayase", "@hayase x . 1", "@hayase 1 ? 1", "@hayase 1 . {"] {
            assert_eq!(decoder.take::<u32>(line), Err(line.to_owned()));
        }
        assert_eq!(decoder.take::<u32>("@hayase 7 . 5"), Ok(Some((7, 5))));
    }

    #[test]
    fn lines_are_short_enough_for_srun() {
        let lines = encode(u16::MAX, &"é".repeat(5000));
        assert!(lines.split(|&b| b == b'\n').all(|line| line.len() < 512));
    }

    proptest! {
        /// Lines of several senders, mixed, with a banner anywhere between them.
        #[test]
        fn messages_survive_being_mixed(
            texts in prop::collection::vec(".{0,1500}", 1..5),
            order in prop::collection::vec(any::<usize>(), 64),
        ) {
            let line_of = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
            let mut queues: Vec<Vec<String>> = texts.iter().enumerate().map(|(sender, text)| {
                let bytes = encode(sender as u16, text);
                let mut lines: Vec<String> = bytes.split(|&b| b == b'\n').map(line_of).collect();
                lines.pop();
                lines.reverse();
                lines
            }).collect();
            let mut decoder = Decoder::default();
            let mut found = vec![None; texts.len()];
            let mut order = order.into_iter().cycle();
            while queues.iter().any(|queue| !queue.is_empty()) {
                let pick = order.next().unwrap() % (queues.len() + 1);
                if pick == queues.len() {
                    prop_assert!(decoder.take::<String>("Last login: yesterday").is_err());
                    if queues.iter().all(Vec::is_empty) { break; }
                    continue;
                }
                let Some(line) = queues[pick].pop() else {
                    // Whatever the order picks, the fullest queue moves on.
                    let fullest = (0..queues.len()).max_by_key(|&i| queues[i].len()).unwrap();
                    let line = queues[fullest].pop().unwrap();
                    if let Some((sender, text)) = decoder.take::<String>(&line).unwrap() {
                        found[usize::from(sender)] = Some(text);
                    }
                    continue;
                };
                if let Some((sender, text)) = decoder.take::<String>(&line).unwrap() {
                    found[usize::from(sender)] = Some(text);
                }
            }
            let found: Vec<String> = found.into_iter().map(Option::unwrap).collect();
            prop_assert_eq!(found, texts);
        }
    }
}
