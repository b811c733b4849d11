//! Finding and opening the segments.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Kind, damaged};
use crate::catalog::{self, Catalog, Segment};
use crate::disk::{Disk, DiskFile, RealDisk};
use crate::error::OpenError;
use crate::hash::ChainHash;
use crate::head::MarkFile;
use crate::report::Repair;
use crate::segment::{FileId, Header};
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
    let ids = catalog::list(&folder).map_err(|e| OpenError::io("list", &folder, e))?;
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
        return Ok((
            Catalog {
                segments: vec![Arc::new(segment)],
            },
            true,
        ));
    }
    let (ids, superseded) = split_generations(&ids);
    for id in superseded {
        let path = id.path(&folder);
        disk.remove(&path)
            .map_err(|e| OpenError::io("remove", &path, e))?;
        repairs.push(Repair::Superseded { path });
    }
    Ok((
        open_all(&folder, &ids, kind, |path| disk.open(path))?,
        false,
    ))
}

/// Opens every segment for reading only.
pub(super) fn load_to_read(layout: &Layout, kind: &Kind<'_>) -> Result<Catalog, OpenError> {
    let folder = layout.segments();
    let mut attempts = 0;
    loop {
        let ids = catalog::list(&folder).map_err(|e| OpenError::io("list", &folder, e))?;
        let (ids, _) = split_generations(&ids);
        let opened = open_all(&folder, &ids, kind, RealDisk::open_to_read);
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
        let path = id.path(folder);
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
    Ok(Catalog { segments })
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
