//! Giving up old archives.

use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::archive::{Archive, ArchiveBuilder};
use crate::catalog::Catalog;
use crate::compact::MaintenanceError;
use crate::disk::write_whole;
use crate::segment::Header;
use crate::store::Store;

/// Which archives to give up. Only archived records ever are; an empty policy gives up nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Give up archives whose last event is older than this.
    pub before: Option<SystemTime>,
    /// Give up the oldest archives until the rest has at most this many bytes.
    pub archive_bytes: Option<u64>,
}

/// What was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    /// How many archives were removed, with how many records and bytes.
    pub archives: usize,
    /// See [`Self::archives`].
    pub records: u64,
    /// See [`Self::archives`].
    pub bytes: u64,
}

/// Removes the archives that the policy gives up.
pub(crate) fn retain(store: &Store, policy: &Retention) -> Result<Retained, MaintenanceError> {
    let _turn = store
        .maintenance
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let mut retained = Retained::default();
    for archive in chosen(&store.catalog(), policy) {
        // Readers that have the archive open go on reading it.
        store.change_catalog(|catalog| catalog.archives.retain(|kept| kept.id != archive.id));
        shorten_streams(store, &archive);
        leave_empty(store, &archive)?;
        retained.archives += 1;
        retained.records += archive.footer.records;
        retained.bytes += archive.bytes;
    }
    Ok(retained)
}

/// Puts an archive without records in the old one's place: a *missing* archive is damage.
fn leave_empty(store: &Store, archive: &Archive) -> Result<(), MaintenanceError> {
    let path = archive.disk.path.clone();
    let header = Header {
        kind: store.kind.clone(),
        id: archive.id,
        previous: archive.previous,
    };
    ArchiveBuilder::new(&header)
        .finish()
        .and_then(|bytes| Ok(write_whole(&*store.disk, &path, &bytes)?))
        .map_err(|e| MaintenanceError::io("empty", path, e))?;
    Ok(())
}

fn chosen(catalog: &Catalog, policy: &Retention) -> Vec<Arc<Archive>> {
    let newest = |archive: &Archive| {
        archive
            .footer
            .streams
            .values()
            .map(|state| state.last_at_micros)
            .max()
            .unwrap_or(0)
    };
    let before = policy.before.map(|time| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    });
    let mut bytes: u64 = catalog.archives.iter().map(|archive| archive.bytes).sum();
    let mut chosen = Vec::new();
    for archive in &catalog.archives {
        let too_old = before.is_some_and(|before| newest(archive) < before);
        let too_much = policy.archive_bytes.is_some_and(|limit| bytes > limit);
        if too_old || too_much {
            bytes -= archive.bytes;
            chosen.push(Arc::clone(archive));
        }
    }
    chosen
}

/// The archive's streams begin behind what it had, or are gone.
fn shorten_streams(store: &Store, archive: &Archive) {
    let mut streams = store
        .streams
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    for (name, gone) in &archive.footer.streams {
        let Some(state) = streams.get_mut(name) else {
            continue;
        };
        state.first = state.first.max(gone.version.saturating_add(1));
        if state.first > state.version {
            streams.remove(name);
        }
    }
}
