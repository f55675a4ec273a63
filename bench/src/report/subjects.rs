//! Which crates the page of a bench speaks of: where many commits have changed them since, the page is old.

/// Behind the name of a bench, on the page of a run with `--against`.
pub(crate) const AGAINST: &str = "-against";

/// Folders below `crates/`, by the name of the bench.
const SUBJECTS: [(&str, &[&str]); 8] = [
    ("dataplane", &["client", "fuse", "server", "store", "wire"]),
    ("flush", &["client", "fuse", "server", "store", "tier"]),
    ("foundation", &["client", "fuse", "hayase", "server", "store", "wire"]),
    ("gfarm", &["client", "container", "fuse", "mpi", "tier"]),
    ("mpiio", &["container", "layout", "mpi"]),
    ("mpiio-nodes", &["client", "container", "fuse", "mpi", "server", "store", "wire"]),
    ("nodes", &["client", "hayase", "server", "store", "wire"]),
    ("stage", &["stage", "tier"]),
];

/// Those of the bench of this name, compared with another build or not.
pub(crate) fn crates_of(bench: &str) -> &'static [&'static str] {
    let bench = bench.strip_suffix(AGAINST).unwrap_or(bench);
    let subject = SUBJECTS.iter().find(|(name, _)| *name == bench);
    subject.map_or(&[], |(_, crates)| *crates)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_bench_speaks_of_crates_that_exist() {
        let command = crate::Arguments::command();
        let benches = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        for bench in benches {
            let crates = crates_of(bench.get_name());
            assert!(!crates.is_empty(), "{} has no row", bench.get_name());
            for name in crates {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(name);
                assert!(folder.is_dir(), "{}", folder.display());
            }
        }
        assert_eq!(crates_of("stage-against"), crates_of("stage"));
    }
}
