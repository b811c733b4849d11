//! The files of the store as they are open in memory.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::archive::Archive;
use crate::disk::{self, Disk, DiskFile, WholeError};
use crate::error::{Damage, OpenError};
use crate::hash::ChainHash;
use crate::segment::{FileId, HEADER_BYTES, Header, HeaderError, SEGMENT};

/// How far apart the known positions are: near enough to find any record with one small read, far
/// enough that they take little memory (10 MB for 10 GB).
const SIGNPOST_BYTES: u64 = 16 << 10;

/// One segment. Readers keep it, and so its open file, for as long as they need it: a compaction
/// may remove its name meanwhile.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: FileId,
    pub(crate) kind: String,
    pub(crate) previous: ChainHash,
    pub(crate) disk: DiskFile,
    /// How many bytes hold frames that are on the disk. Readers look no further.
    length: AtomicU64,
    signposts: RwLock<Vec<(u64, u64)>>,
}

impl Segment {
    fn new(disk: DiskFile, header: Header, length: u64) -> Self {
        Self {
            id: header.id,
            kind: header.kind,
            previous: header.previous,
            disk,
            length: AtomicU64::new(length),
            signposts: RwLock::default(),
        }
    }

    /// Puts a new segment with nothing but its header in place, and makes that durable.
    pub(crate) fn create(
        disk: &dyn Disk,
        folder: &Path,
        header: Header,
    ) -> Result<Self, WholeError> {
        let file = disk::write_whole(disk, &header.id.path(folder, SEGMENT), &header.encode())?;
        Ok(Self::new(file, header, HEADER_BYTES as u64))
    }

    /// Reads the header of an open segment. The length is the file's, torn tail and all.
    pub(crate) fn open(file: DiskFile, id: FileId) -> Result<Self, OpenError> {
        let path = file.path.as_path();
        let length = file
            .file
            .metadata()
            .map_err(|e| OpenError::io("examine", path, e))?
            .len();
        let mut bytes = vec![0; HEADER_BYTES.min(usize::try_from(length).unwrap_or(usize::MAX))];
        file.file
            .read_exact_at(&mut bytes, 0)
            .map_err(|e| OpenError::io("read", path, e))?;
        let damaged = |what: &str| {
            let what = what.to_owned();
            OpenError::Damaged(Damage {
                path: path.into(),
                offset: 0,
                sequence: id.first,
                what,
            })
        };
        let header = Header::decode(&bytes).map_err(|e| match e {
            HeaderError::Damaged(what) => damaged(what),
            HeaderError::Newer(found) => OpenError::NewerFormat {
                path: path.into(),
                found,
                supported: crate::segment::SEGMENT_VERSION,
            },
        })?;
        if header.id != id {
            return Err(damaged("the file's name and its header disagree"));
        }
        Ok(Self::new(file, header, length))
    }

    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    pub(crate) fn set_length(&self, length: u64) {
        self.length.store(length, Ordering::Release);
    }

    /// Notes where a record begins, if the last note is far enough behind.
    pub(crate) fn note(&self, sequence: u64, offset: u64) {
        let mut signposts = self
            .signposts
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let due = signposts
            .last()
            .is_none_or(|(_, last)| *last + SIGNPOST_BYTES <= offset);
        if due {
            signposts.push((sequence, offset));
        }
    }

    /// A place at or before the record with this sequence: where to start looking for it.
    pub(crate) fn near(&self, sequence: u64) -> u64 {
        let signposts = self
            .signposts
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let behind = signposts.partition_point(|(noted, _)| *noted <= sequence);
        behind
            .checked_sub(1)
            .and_then(|at| signposts.get(at))
            .map_or(HEADER_BYTES as u64, |(_, offset)| *offset)
    }
}

/// The segments in the order of their records; the last one is being written to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// In the order of their names: by first sequence, then by generation.
    pub(crate) archives: Vec<Arc<Archive>>,
}

impl Catalog {
    /// The position of the segment that holds this sequence.
    pub(crate) fn position(&self, sequence: u64) -> usize {
        self.segments
            .partition_point(|s| s.id.first <= sequence)
            .saturating_sub(1)
    }
}

/// The ids of the files with this extension in a folder, in order. Names that aren't a segment's or
/// an archive's are not ours.
pub(crate) fn list(folder: &Path, extension: &str) -> std::io::Result<Vec<FileId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        ids.extend(
            name.to_str()
                .and_then(|name| FileId::parse(name, extension)),
        );
    }
    ids.sort_unstable();
    Ok(ids)
}
