//! Moving finished streams out of the segments and into archives.
//!
//! Sealed segments don't change, so a compaction works beside the writer; only the exchange of a
//! segment for its successor is seen by anybody. Whatever point it is interrupted at, each record is
//! in the segment, in the archive, or in both:
//!
//! 1. the archive is put in place and its folder synced;
//! 2. the segment of the next generation is put in place and its folder synced;
//! 3. readers are given both instead of the old segment;
//! 4. the index forgets what has moved;
//! 5. the old segment is removed.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use crate::archive::{Archive, ArchiveBuilder};
use crate::catalog::{Catalog, Segment};
use crate::chain::Streams;
use crate::disk::{WholeError, write_whole};
use crate::error::Damage;
use crate::frame::{Entry, Frame, Gap, encode_gap};
use crate::scan::{ScanError, Scanner};
use crate::segment::{ARCHIVE, FileId, Header, SEGMENT};
use crate::store::Store;

/// What a compaction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// How many records have moved to archives.
    pub records: u64,
    /// How many segments were exchanged, and so how many archives were made.
    pub segments: usize,
    /// The lengths of those segments before and after, and of the new archives.
    pub bytes_before: u64,
    /// See [`Self::bytes_before`].
    pub bytes_after: u64,
    /// See [`Self::bytes_before`].
    pub archive_bytes: u64,
}

/// Why a compaction or a retention ended early. What it had done until then stays done; every record
/// is still there, but for those that retention was asked to give up.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The operating system refused.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A segment is damaged.
    #[error("the journal is damaged: {0}")]
    Damaged(Damage),
    /// The journal was closed, or has stopped.
    #[error("the journal is closed")]
    Closed,
}

impl MaintenanceError {
    pub(crate) fn io(action: &'static str, path: PathBuf, source: io::Error) -> Self {
        Self::Io {
            action,
            path,
            source,
        }
    }
}

/// Moves the streams' records out of all sealed segments.
pub(crate) fn compact(
    store: &Store,
    finished: &HashSet<Arc<str>>,
) -> Result<Compacted, MaintenanceError> {
    let _turn = store
        .maintenance
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let mut total = Compacted::default();
    let catalog = store.catalog();
    let sealed = catalog
        .segments
        .split_last()
        .map_or(&[][..], |(_, sealed)| sealed);
    for segment in sealed {
        if store.is_closed() {
            return Err(MaintenanceError::Closed);
        }
        let split = split(segment, finished)?;
        if split.archive.records() > 0 {
            exchange(store, segment, split, &mut total)?;
        }
    }
    Ok(total)
}

/// The two successors of a segment.
struct Split {
    archive: ArchiveBuilder,
    live: Vec<u8>,
    id: FileId,
}

fn split(segment: &Arc<Segment>, finished: &HashSet<Arc<str>>) -> Result<Split, MaintenanceError> {
    let id = FileId {
        first: segment.id.first,
        generation: segment.id.generation + 1,
    };
    let header = Header {
        kind: segment.kind.clone(),
        id,
        previous: segment.previous,
    };
    let mut live = header.encode();
    let mut archive = ArchiveBuilder::new(&header);
    let mut gap: Option<Gap> = None;
    let mut scanner = Scanner::new(Arc::clone(segment));
    loop {
        let offset = scanner.offset();
        let path = || segment.disk.path.clone();
        let frame = match scanner.next() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(ScanError::Io(e)) => return Err(MaintenanceError::io("read", path(), e)),
            Err(ScanError::Frame(error)) => {
                let (sequence, what) = (segment.id.first, error.to_string());
                let damage = Damage {
                    path: path(),
                    offset,
                    sequence,
                    what,
                };
                return Err(MaintenanceError::Damaged(damage));
            }
        };
        match moved(&frame, finished) {
            Some(added) => {
                if let Entry::Record(record) = &frame.entry {
                    let added = archive.add(record, frame.bytes);
                    added.map_err(|e| MaintenanceError::io("compress", path(), e))?;
                }
                let first = gap.map_or(added.first, |gap| gap.first);
                gap = Some(Gap { first, ..added });
            }
            None => {
                gap.take().iter().for_each(|gap| encode_gap(gap, &mut live));
                live.extend_from_slice(frame.bytes);
            }
        }
    }
    gap.iter().for_each(|gap| encode_gap(gap, &mut live));
    Ok(Split { archive, live, id })
}

/// The gap that the frame leaves, or is.
fn moved(frame: &Frame<'_>, finished: &HashSet<Arc<str>>) -> Option<Gap> {
    match &frame.entry {
        Entry::Gap(gap) => Some(*gap),
        Entry::Record(record) if finished.contains(record.stream) => Some(Gap {
            first: record.sequence,
            last: record.sequence,
            hash: frame.hash,
        }),
        Entry::Record(_) => None,
    }
}

fn exchange(
    store: &Store,
    old: &Arc<Segment>,
    split: Split,
    total: &mut Compacted,
) -> Result<(), MaintenanceError> {
    let Split { archive, live, id } = split;
    let folder = store.layout.segments();
    let (archive_path, live_path) = (id.path(&folder, ARCHIVE), id.path(&folder, SEGMENT));
    let (records, moved) = (archive.records(), archive.streams().clone());
    let bytes = archive
        .finish()
        .map_err(|e| MaintenanceError::io("compress", archive_path.clone(), e))?;
    let put = |path: &PathBuf, bytes: &[u8]| {
        write_whole(&*store.disk, path, bytes).map_err(|error: WholeError| {
            MaintenanceError::io("put in place", path.clone(), error.into())
        })
    };
    let archive_file = put(&archive_path, &bytes)?;
    let archive = Archive::open(archive_file, id, &store.kind)
        .map_err(|e| MaintenanceError::io("read back", archive_path, io::Error::other(e)))?;
    let segment = Segment::open(put(&live_path, &live)?, id)
        .map_err(|e| MaintenanceError::io("read back", live_path, io::Error::other(e)))?;
    let segment = Arc::new(segment);
    note_signposts(&segment)?;
    swap(store, old, &segment, Arc::new(archive));
    forget(store, &moved);
    let path = &old.disk.path;
    let removed = store
        .disk
        .remove(path)
        .and_then(|()| store.disk.sync_dir(&folder));
    removed.map_err(|e| MaintenanceError::io("remove", path.clone(), e))?;
    total.records += records;
    total.segments += 1;
    total.bytes_before += old.length();
    total.bytes_after += live.len() as u64;
    total.archive_bytes += bytes.len() as u64;
    Ok(())
}

/// Reads the new segment once, to know its positions and that it is sound.
fn note_signposts(segment: &Arc<Segment>) -> Result<(), MaintenanceError> {
    let mut scanner = Scanner::new(Arc::clone(segment));
    loop {
        let offset = scanner.offset();
        match scanner.next() {
            Ok(None) => return Ok(()),
            Ok(Some(frame)) => match &frame.entry {
                Entry::Record(record) => segment.note(record.sequence, offset),
                Entry::Gap(gap) => segment.note(gap.first, offset),
            },
            Err(error) => {
                let source = io::Error::other(format!("{error:?}"));
                return Err(MaintenanceError::io(
                    "read back",
                    segment.disk.path.clone(),
                    source,
                ));
            }
        }
    }
}

fn swap(store: &Store, old: &Arc<Segment>, new: &Arc<Segment>, archive: Arc<Archive>) {
    store.change_catalog(|catalog: &mut Catalog| {
        for segment in &mut catalog.segments {
            if Arc::ptr_eq(segment, old) {
                *segment = Arc::clone(new);
            }
        }
        catalog.archives.push(archive);
        catalog.archives.sort_by_key(|archive| archive.id);
    });
}

fn forget(store: &Store, moved: &Streams) {
    for (stream, state) in moved {
        // A fault breaks the index, and the journal does without.
        let _ = store.index.forget(stream, state.version);
    }
}
