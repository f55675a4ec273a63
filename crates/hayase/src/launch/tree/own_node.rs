//! The directories of this host's own node: made by its relay before the supervisor starts, since nobody else
//! can reach this host's disk.
//!
//! The job directory may be the same one that the launcher made (a shared file system), known by the mark of
//! its `job.json`; otherwise a private one is made at the same path.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use hayase_wire::Secret;

use super::message::Start;
use crate::config::Environment;
use crate::job::{
    Job, JobDir, JobError, Registry, Settings, clean_unstarted_node, expect_safe_way,
    make_private as make_private_path,
};
use crate::launch::ground::{claim_storage, make_all};
use crate::launch::plan::{PlanError, check_mount_point, check_room, check_storage, reason};

/// Makes what node `node` needs; true when the job directory is this node's own. On failure nothing stays.
pub(crate) fn prepare(
    dir: &JobDir,
    node: u16,
    start: &Start,
    environment: &Environment,
) -> anyhow::Result<bool> {
    let settings = &start.settings;
    ensure!(
        environment.is_privileged || !settings.is_privileged,
        "the job was started by root with CAP_SYS_ADMIN, which this process does not have here"
    );
    let registry = Registry::make(&settings.runtime)?;
    expect_safe_way(dir.path())?;
    let is_private = match dir.settings() {
        Ok(found) => found.mark != settings.mark,
        Err(error @ JobError::Foreign { .. }) => return Err(error.into()),
        Err(_) => true,
    };
    if is_private {
        make_private(dir, node, start)?;
    } else {
        dir.create_node(node)?;
    }
    let made = fill(dir, node, settings, &registry);
    if made.is_err() {
        clean_unstarted_node(&Job { dir: dir.clone(), settings: settings.clone() }, node);
    }
    made.map(|()| is_private)
}

fn make_private(dir: &JobDir, node: u16, start: &Start) -> anyhow::Result<()> {
    if dir.path().exists() {
        return Err(PlanError::JobDirExists(dir.path().to_owned()).into());
    }
    if let Some(parent) = dir.path().parent() {
        make_private_path(parent).map_err(JobError::io("make", parent))?;
    }
    dir.create_private(node)?;
    let fill = || -> anyhow::Result<()> {
        dir.write_given_secret(&secret_of(&start.secret)?)?;
        dir.write_settings(&start.settings)?;
        Ok(())
    };
    fill().inspect_err(|_| dir.remove())
}

fn fill(dir: &JobDir, node: u16, settings: &Settings, registry: &Registry) -> anyhow::Result<()> {
    let mut made: Vec<_> = registry.add_same(&settings.job, dir)?.into_iter().collect();
    let mounts = settings.area_mounts(node);
    let result = make_places(settings, settings.has_storage(node), &mounts, &mut made);
    // Also after a failure: whoever cleans up reads it.
    dir.node(node).write_made(&made)?;
    result
}

fn make_places(
    settings: &Settings,
    has_storage: bool,
    mounts: &[PathBuf],
    made: &mut Vec<PathBuf>,
) -> anyhow::Result<()> {
    mounts.iter().try_for_each(|mount| check_mount_point(mount))?;
    if has_storage {
        make_storage(settings, made)?;
    }
    for place in mounts {
        // Before as well: nothing is to be left in a place of somebody else.
        expect_safe_way(place)?;
        make_all(place, made).map_err(|error| PlanError::MountPoint {
            path: place.to_owned(),
            why: reason(&error),
        })?;
        expect_safe_way(place)?;
    }
    Ok(())
}

fn make_storage(settings: &Settings, made: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let storage = &settings.storage;
    expect_safe_way(storage)?;
    if settings.makes_storage {
        make_all(storage, made).map_err(JobError::io("make storage", storage))?;
    }
    // Only now: what was not there before may be somebody else's.
    expect_safe_way(storage)?;
    check_storage(storage)?;
    check_room(storage, settings.shared, settings.local, 1)?;
    claim_storage(settings)
}

/// The secret as it travels: hex digits.
pub(crate) fn secret_text(secret: &Secret) -> String {
    secret.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn secret_of(text: &str) -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    ensure!(text.len() == 2 * bytes.len() && text.is_ascii(), "the secret is incomplete");
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16)
            .context("the secret is incomplete")?;
    }
    Ok(Secret::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_its_way() {
        let secret = Secret::generate().unwrap();
        let text = secret_text(&secret);
        assert_eq!(secret_of(&text).unwrap().as_bytes(), secret.as_bytes());
        for bad in ["", "00", &"zz".repeat(32), &"é".repeat(32)] {
            assert!(secret_of(bad).is_err(), "{bad}");
        }
    }
}
