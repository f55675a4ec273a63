//! All error types that give advice. A type that is missing here gives none, whatever it implements.

use std::error::Error;

use hayase_container::ContainerError;
use hayase_fuse::MountError;
use hayase_server::ServeError;
use hayase_stage::pack::PackError;
use hayase_store::{AreaError, LedgerError, MetaError, NamespaceError, PartError};
use hayase_tier::TierError;
use hayase_ucx::UcxError;
use hayase_wire::transport::TransportError;
use hayase_wire::{HandshakeError, MembersError, NodeError as WireNodeError, SecretError};

use super::{
    AreaPathError, BackgroundError, DeleteOfFile, KeyError, LayoutError, MountPathError, NoTier,
    NothingCompared, SpreadError,
};
use crate::advice::{Advice, Advise};
use crate::cpu_budget::group::BudgetError;
use crate::job::JobError;
use crate::launch::{
    DeadlineError, EnterError, LaunchError, NodeError, PlanError, PreloadError, StorageNodesError,
};
use crate::metrics::listener::ListenError;
use crate::processors::Missing;
use crate::supervisor::daemon::DaemonFailed;
use crate::wiring::places::PlaceError;

type Asked = fn(&(dyn Error + 'static)) -> Option<Advice>;

const ALL: [Asked; 38] = [
    ask::<AreaError>,
    ask::<AreaPathError>,
    ask::<BackgroundError>,
    ask::<BudgetError>,
    ask::<ContainerError>,
    ask::<DaemonFailed>,
    ask::<DeadlineError>,
    ask::<DeleteOfFile>,
    ask::<EnterError>,
    ask::<HandshakeError>,
    ask::<JobError>,
    ask::<KeyError>,
    ask::<LaunchError>,
    ask::<LayoutError>,
    ask::<LedgerError>,
    ask::<ListenError>,
    ask::<MembersError>,
    ask::<MetaError>,
    ask::<Missing>,
    ask::<MountError>,
    ask::<MountPathError>,
    ask::<NamespaceError>,
    ask::<NoTier>,
    ask::<NodeError>,
    ask::<NothingCompared>,
    ask::<PackError>,
    ask::<PartError>,
    ask::<PlaceError>,
    ask::<PlanError>,
    ask::<PreloadError>,
    ask::<SecretError>,
    ask::<ServeError>,
    ask::<SpreadError>,
    ask::<StorageNodesError>,
    ask::<TierError>,
    ask::<TransportError>,
    ask::<UcxError>,
    ask::<WireNodeError>,
];

/// The first advice in the chain of `error`.
pub(crate) fn advice(error: &anyhow::Error) -> Advice {
    let of_cause = |cause| ALL.iter().find_map(|ask| ask(cause));
    error.chain().find_map(of_cause).unwrap_or_default()
}

fn ask<E: Advise>(cause: &(dyn Error + 'static)) -> Option<Advice> {
    cause.downcast_ref::<E>()?.advice()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use hayase_layout::InodeId;
    use hayase_store::PartId;

    use super::*;

    /// Texts of all files below a directory.
    fn texts(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: std::path::PathBuf| match path.is_dir() {
            true => texts(&path),
            false => vec![fs::read_to_string(&path).unwrap()],
        };
        entries.flat_map(of).collect()
    }

    #[test]
    fn every_type_that_gives_advice_is_asked() {
        let texts = texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let lines = texts.iter().flat_map(|text| text.lines());
        let types = lines.filter_map(|line| line.strip_prefix("impl Advise for "));
        let types: Vec<_> = types.filter_map(|rest| rest.strip_suffix(" {")).collect();
        assert!(types.len() > 20, "{types:?}");
        let own = include_str!("error_types.rs");
        for name in types {
            assert!(own.contains(&format!("    ask::<{name}>,\n")), "{name} is not asked");
        }
    }

    #[test]
    fn advice_is_found_behind_what_was_added_to_an_error() {
        let error = anyhow::Error::from(PlanError::EndpointAlone).context("outer");
        let found = advice(&error);
        assert!(found.is_usage && found.help == PlanError::EndpointAlone.help(), "{found:?}");
        let silent = advice(&anyhow::anyhow!("why").context("what"));
        assert!(silent.help.is_none() && !silent.is_usage);
    }

    #[test]
    fn an_error_of_another_crate_without_help_leaves_it_to_its_cause() {
        let part = PartId { ino: InodeId(7), epoch: 0, index: 0 };
        let cause = PartError::NoRoom { action: "write", part, device: "/d".into() };
        let help = cause.help();
        assert!(help.is_some());
        let error = LedgerError::Device { action: "write", source: cause };
        assert_eq!(advice(&error.into()).help.as_deref(), help);
    }
}
