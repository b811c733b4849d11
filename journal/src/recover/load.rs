//! Finding and opening the segments.

use std::path::Path;
use std::sync::Arc;

use super::{Kind, damaged};
use crate::catalog::{self, Catalog, Segment};
use crate::disk::Disk;
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
    let mut ids = catalog::list(&folder).map_err(|e| OpenError::io("list", &folder, e))?;
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
    remove_superseded(disk, &folder, &mut ids, repairs)?;
    let mut segments = Vec::new();
    for id in ids {
        let segment = Segment::open(disk, &id.path(&folder), id)?;
        if segment.kind != kind.name {
            return Err(OpenError::WrongKind {
                path: segment.disk.path.clone(),
                found: segment.kind,
                expected: kind.name.into(),
            });
        }
        segments.push(Arc::new(segment));
    }
    Ok((Catalog { segments }, false))
}

/// A compaction that was interrupted between putting the new file in place and removing the old
/// one leaves both; the new one is whole.
fn remove_superseded(
    disk: &dyn Disk,
    folder: &Path,
    ids: &mut Vec<FileId>,
    repairs: &mut Vec<Repair>,
) -> Result<(), OpenError> {
    let all = std::mem::take(ids);
    let mut rest = all.iter().peekable();
    while let Some(id) = rest.next() {
        if rest.peek().is_none_or(|next| next.first != id.first) {
            ids.push(*id);
            continue;
        }
        let path = id.path(folder);
        disk.remove(&path)
            .map_err(|e| OpenError::io("remove", &path, e))?;
        repairs.push(Repair::Superseded { path });
    }
    Ok(())
}
