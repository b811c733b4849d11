//! Archives: the records of finished streams, compressed, out of the way of the live ones.
//!
//! An archive has a segment's records of the streams that were finished when it was compacted. The
//! segment that takes the old one's place has a gap for each of them, with the hash that continues the
//! chain; put back into the gaps, the records make the chain whole again.

mod format;
mod scanner;

use std::io;
use std::os::unix::fs::FileExt;

use crate::chain::Streams;
use crate::disk::DiskFile;
use crate::error::{Damage, OpenError};
use crate::hash::ChainHash;
use crate::segment::{FileId, HEADER_BYTES, Header, HeaderError};

pub(crate) use format::{ARCHIVE_MAGIC, ArchiveBuilder, Block, Footer};
pub(crate) use scanner::ArchiveScanner;

/// An open archive. Its directory is in memory, its records are not.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) id: FileId,
    pub(crate) disk: DiskFile,
    /// As in the segment's header.
    pub(crate) previous: ChainHash,
    pub(crate) bytes: u64,
    pub(crate) footer: Footer,
}

impl Archive {
    /// Reads the header and the directory of an open file.
    pub(crate) fn open(file: DiskFile, id: FileId, kind: &str) -> Result<Self, OpenError> {
        let path = file.path.as_path();
        let io = |e: io::Error| OpenError::io("read", path, e);
        let bytes = file.file.metadata().map_err(io)?.len();
        let damaged = |what: &str| {
            let what = what.to_owned();
            OpenError::Damaged(Damage {
                path: path.into(),
                offset: 0,
                sequence: id.first,
                what,
            })
        };
        let newer = |found| OpenError::NewerFormat {
            path: path.into(),
            found,
            supported: 1,
        };
        let mut front = vec![0; HEADER_BYTES];
        file.file
            .read_exact_at(&mut front, 0)
            .map_err(|_| damaged("the archive is cut off"))?;
        let header = Header::decode_as(ARCHIVE_MAGIC, &front).map_err(|e| match e {
            HeaderError::Damaged(what) => damaged(what),
            HeaderError::Newer(found) => newer(found),
        })?;
        if header.id != id {
            return Err(damaged("the file's name and its header disagree"));
        }
        if header.kind != kind {
            let expected = kind.to_owned();
            return Err(OpenError::WrongKind {
                path: path.into(),
                found: header.kind,
                expected,
            });
        }
        let read = |length: u64, end: u64| -> Option<Vec<u8>> {
            let start = end
                .checked_sub(length)
                .filter(|start| *start >= HEADER_BYTES as u64)?;
            let mut part = vec![0; usize::try_from(length).ok()?];
            file.file.read_exact_at(&mut part, start).ok()?;
            Some(part)
        };
        let footer =
            Footer::read(bytes, read).ok_or_else(|| damaged("its directory is damaged"))?;
        Ok(Self {
            id,
            previous: header.previous,
            disk: file,
            bytes,
            footer,
        })
    }

    /// Whether some records between the two sequences may be in here.
    pub(crate) fn overlaps(&self, first: u64, last: u64) -> bool {
        let blocks = &self.footer.blocks;
        let begins = blocks.first().map_or(u64::MAX, |block| block.first);
        let ends = blocks.last().map_or(0, |block| block.last);
        begins <= last && first <= ends
    }

    /// Whether this version of the stream is in here.
    pub(crate) fn has(&self, stream: &str, version: u64) -> bool {
        let state = self.footer.streams.get(stream);
        state.is_some_and(|state| (state.first..=state.version).contains(&version))
    }
}

/// Adds what archives know of streams to what the segments say.
pub(crate) fn merge_streams(into: &mut Streams, archived: &Streams) {
    for (name, archived) in archived {
        let merged = match into.get(name) {
            None => *archived,
            Some(live) if live.version > archived.version => {
                let first = live.first.min(archived.first);
                crate::chain::StreamState { first, ..*live }
            }
            Some(live) => {
                let first = live.first.min(archived.first);
                crate::chain::StreamState { first, ..*archived }
            }
        };
        into.insert(std::sync::Arc::clone(name), merged);
    }
}
