//! What protects the bytes of files on their way between nodes (docs/SECURITY.md).

use serde::{Serialize, Serializer};

use super::NodeStatus;
use crate::job::Settings;

/// What an attacker on the path can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Neither read the bytes nor change them unnoticed.
    Encrypted,
    /// Read them, and not change them unnoticed.
    Authenticated,
    /// Change them unnoticed on the way to and from these nodes.
    NotAuthenticated { slow: Vec<u16> },
    /// It depends on nodes whose servers do not answer.
    NotKnown,
}

impl Payload {
    /// Nothing of a job with one node, which sends nothing.
    pub(super) fn of(settings: &Settings, nodes: &[NodeStatus]) -> Option<Self> {
        let answers =
            nodes.iter().filter_map(|node| Some((node.node, node.server.as_ref()?.authenticates)));
        let servers = usize::from(settings.nodes);
        match (settings.nodes, settings.encrypt) {
            (..2, _) => None,
            (_, true) => Some(Self::Encrypted),
            (_, false) => Some(Self::unsealed(servers, &answers.collect::<Vec<_>>())),
        }
    }

    /// By what the servers answered, of which each node has one: which node, and whether its processors are fast at it.
    fn unsealed(servers: usize, answers: &[(u16, bool)]) -> Self {
        let slow: Vec<u16> =
            answers.iter().filter(|(_, fast)| !fast).map(|(node, _)| *node).collect();
        match slow.is_empty() {
            false => Self::NotAuthenticated { slow },
            true if answers.len() < servers => Self::NotKnown,
            true => Self::Authenticated,
        }
    }

    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Encrypted => "encrypted".to_owned(),
            Self::Authenticated => {
                "authenticated, not encrypted (`hayase up --encrypt` changes that)".to_owned()
            }
            Self::NotAuthenticated { slow } => format!(
                "not authenticated to and from {}, whose processors have no AES instructions (`hayase up --encrypt` changes \
                 that)",
                counted(slow)
            ),
            Self::NotKnown => {
                "not known whether it is authenticated: not all servers answer".to_owned()
            }
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Authenticated => "authenticated",
            Self::NotAuthenticated { .. } => "not-authenticated",
            Self::NotKnown => "not-known",
        }
    }
}

/// The first of them by number.
fn counted(nodes: &[u16]) -> String {
    match nodes {
        [node] => format!("node {node}"),
        nodes => format!("{} nodes (node {}, ..)", nodes.len(), nodes[0]),
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Kind, sample_settings};
    use crate::status::tests::status_of;

    #[test]
    fn one_slow_processor_is_enough_and_silence_is_no_answer() {
        let of = Payload::unsealed;
        assert_eq!(of(2, &[(0, true), (1, true)]), Payload::Authenticated);
        assert_eq!(of(2, &[(0, true), (1, false)]), Payload::NotAuthenticated { slow: vec![1] });
        assert_eq!(of(3, &[(1, false)]), Payload::NotAuthenticated { slow: vec![1] });
        assert_eq!(of(3, &[(0, true), (1, true)]), Payload::NotKnown);
        assert_eq!(of(3, &[]), Payload::NotKnown);
        let words = of(3, &[(1, false), (2, false)]).in_words();
        assert!(words.contains("to and from 2 nodes (node 1, ..)"), "{words}");
    }

    #[test]
    fn what_protects_the_bytes_between_nodes_is_said() {
        for (nodes, encrypt, said) in [
            (1, false, None),
            (2, false, Some("payload         not known whether it is authenticated")),
            (2, true, Some("payload         encrypted")),
        ] {
            let mut settings = sample_settings(Kind::ThisMachine, nodes);
            settings.encrypt = encrypt;
            let mut page = crate::output::Page::new(false);
            crate::output::Human::write(&status_of(&settings), &mut page);
            let text = page.text();
            match said {
                Some(said) => assert!(text.contains(said), "{text}"),
                None => assert!(!text.contains("payload"), "{text}"),
            }
        }
    }
}
