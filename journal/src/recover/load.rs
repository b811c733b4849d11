//! Finding and opening the segments.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Kind, damaged};
use crate::archive::Archive;
use crate::catalog::{self, Catalog, Segment};
use crate::disk::{Disk, DiskFile, RealDisk};
use crate::error::OpenError;
use crate::hash::ChainHash;
use crate::head::MarkFile;
use crate::report::Repair;
use crate::segment::{ARCHIVE, FileId, Header, SEGMENT};
use crate::store::Layout;

/// Opens every segment, or creates the first one in an empty folder.
pub(super) fn load(
    disk: &dyn Disk,
    layout: &Layout,
    kind: &Kind<'_>,
    genesis: ChainHash,
    mark: MarkFile,
    repairs: &mut Vec<Repair>,
) -> Result<(Catalog, bool), OpenError> {
    let folder = layout.segments();
    let ids = catalog::list(&folder, SEGMENT).map_err(|e| OpenError::io("list", &folder, e))?;
    if ids.is_empty() {
        if mark != MarkFile::Missing {
            let what = "there is a HEAD file but no segment: the segments are gone".into();
            return Err(damaged(&folder, 0, 1, what));
        }
        let id = FileId {
            first: 1,
            generation: 0,
        };
        let header = Header {
            kind: kind.name.into(),
            id,
            previous: genesis,
        };
        let segment = Segment::create(disk, &folder, header)
            .map_err(|e| OpenError::io("create the first segment in", &folder, e.into()))?;
        let segments = vec![Arc::new(segment)];
        return Ok((
            Catalog {
                segments,
                archives: Vec::new(),
            },
            true,
        ));
    }
    let (ids, superseded) = split_generations(&ids);
    for id in superseded {
        let path = id.path(&folder, SEGMENT);
        disk.remove(&path)
            .map_err(|e| OpenError::io("remove", &path, e))?;
        repairs.push(Repair::Superseded { path });
    }
    let mut catalog = open_all(&folder, &ids, kind, |path| disk.open(path))?;
    let (archives, orphans) = archive_ids(&folder, &ids)?;
    for id in orphans {
        let path = id.path(&folder, ARCHIVE);
        disk.remove(&path)
            .map_err(|e| OpenError::io("remove", &path, e))?;
        repairs.push(Repair::Unfinished { path });
    }
    catalog.archives = open_archives(&folder, &archives, kind)?;
    Ok((catalog, false))
}

/// The archives that there must be, and those that an interrupted compaction had put in place before
/// it came to the segment: the records are still in the old one.
fn archive_ids(
    folder: &Path,
    segments: &[FileId],
) -> Result<(Vec<FileId>, Vec<FileId>), OpenError> {
    let there = catalog::list(folder, ARCHIVE).map_err(|e| OpenError::io("list", folder, e))?;
    // Each generation after the first has left an archive, and retention leaves an empty one.
    let wanted: Vec<FileId> = segments
        .iter()
        .flat_map(|id| (1..=id.generation).map(|generation| FileId { generation, ..*id }))
        .collect();
    if let Some(id) = wanted.iter().find(|id| !there.contains(id)) {
        let what = "the archive is missing".into();
        return Err(damaged(&id.path(folder, ARCHIVE), 0, id.first, what));
    }
    let orphans = there
        .into_iter()
        .filter(|id| !wanted.contains(id))
        .collect();
    Ok((wanted, orphans))
}

fn open_archives(
    folder: &Path,
    ids: &[FileId],
    kind: &Kind<'_>,
) -> Result<Vec<Arc<Archive>>, OpenError> {
    let mut archives = Vec::new();
    for id in ids {
        let path = id.path(folder, ARCHIVE);
        let file = RealDisk::open_to_read(&path).map_err(|e| OpenError::io("open", &path, e))?;
        let archive = Archive::open(file, *id, kind.name)?;
        if archive.footer.records > 0 {
            archives.push(Arc::new(archive));
        }
    }
    Ok(archives)
}

/// Opens every segment for reading only.
pub(super) fn load_to_read(layout: &Layout, kind: &Kind<'_>) -> Result<Catalog, OpenError> {
    let folder = layout.segments();
    let mut attempts = 0;
    loop {
        let ids = catalog::list(&folder, SEGMENT).map_err(|e| OpenError::io("list", &folder, e))?;
        let (ids, _) = split_generations(&ids);
        let opened =
            open_all(&folder, &ids, kind, RealDisk::open_to_read).and_then(|mut catalog| {
                let (archives, _) = archive_ids(&folder, &ids)?;
                catalog.archives = open_archives(&folder, &archives, kind)?;
                Ok(catalog)
            });
        attempts += 1;
        match opened {
            // A compaction replaced a file between listing and opening.
            Err(OpenError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && attempts < 100 => {}
            opened => return opened,
        }
    }
}

fn open_all(
    folder: &Path,
    ids: &[FileId],
    kind: &Kind<'_>,
    open: impl Fn(&Path) -> io::Result<DiskFile>,
) -> Result<Catalog, OpenError> {
    let mut segments = Vec::new();
    for id in ids {
        let path = id.path(folder, SEGMENT);
        let file = open(&path).map_err(|e| OpenError::io("open", &path, e))?;
        let segment = Segment::open(file, *id)?;
        if segment.kind != kind.name {
            return Err(OpenError::WrongKind {
                path,
                found: segment.kind,
                expected: kind.name.into(),
            });
        }
        segments.push(Arc::new(segment));
    }
    Ok(Catalog {
        segments,
        archives: Vec::new(),
    })
}

/// The last generation of each segment, and the others. A compaction that was interrupted between
/// putting the new file in place and removing the old one leaves both; the new one is whole.
fn split_generations(ids: &[FileId]) -> (Vec<FileId>, Vec<FileId>) {
    let is_last =
        |(at, id): &(usize, &FileId)| ids.get(at + 1).is_none_or(|next| next.first != id.first);
    let (last, earlier): (Vec<_>, Vec<_>) = ids.iter().enumerate().partition(is_last);
    let plain = |ids: Vec<(usize, &FileId)>| ids.into_iter().map(|(_, id)| *id).collect();
    (plain(last), plain(earlier))
}
