//! Checking the whole journal: every checksum, every link, every sequence, and the index.

use std::convert::Infallible;

use crate::error::VerifyError;
use crate::frame::Entry;
use crate::head::Head;
use crate::index::Census;
use crate::store::Store;
use crate::walk::{WalkError, walk};

/// What was vouched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// The last record, and so the hash that stands for all of them.
    pub head: Head,
    /// How many records were read.
    pub records: u64,
    /// How many streams they belong to.
    pub streams: usize,
    /// How many segments they lie in.
    pub segments: usize,
    /// How many archives they lie in.
    pub archives: usize,
}

impl From<WalkError<Infallible>> for VerifyError {
    fn from(error: WalkError<Infallible>) -> Self {
        match error {
            WalkError::Io { path, source } => Self::Io { path, source },
            WalkError::Damaged(damage) => Self::Damaged(damage),
            WalkError::Visitor(never) => match never {},
        }
    }
}

pub(crate) fn verify(store: &Store) -> Result<Verified, VerifyError> {
    // The catalog may grow meanwhile; what lies behind this head is none of our business.
    let head = store.head();
    let catalog = store.catalog();
    let mut live = Census::default();
    let mut archived_records = 0;
    let chain = walk(&catalog, store.genesis, head, |frame, archived| {
        let Entry::Record(record) = &frame.entry else {
            return Ok(());
        };
        if archived {
            archived_records += 1;
        } else {
            live.count(record.stream.as_bytes(), record.version, record.sequence);
        }
        Ok(())
    })?;
    check_index(store, head, live)?;
    Ok(Verified {
        head,
        records: live.lines + archived_records,
        streams: chain.streams().len(),
        segments: catalog.segments.len(),
        archives: catalog.archives.len(),
    })
}

fn check_index(store: &Store, head: Head, expected: Census) -> Result<(), VerifyError> {
    let found = store
        .index
        .census_upto(head.sequence)
        .map_err(|e| VerifyError::Index(e.to_string()))?;
    if found == expected {
        return Ok(());
    }
    Err(VerifyError::Index(format!(
        "it has {} lines, the segments have {} records, or they differ",
        found.lines, expected.lines
    )))
}
