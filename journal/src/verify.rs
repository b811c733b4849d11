//! Checking the whole journal: every checksum, every link, every sequence, and the index.

use crate::chain::Chain;
use crate::error::{Damage, VerifyError};
use crate::frame::Entry;
use crate::head::Head;
use crate::index::{Census, Pointer};
use crate::scan::{ScanError, Scanner};
use crate::store::Store;

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
}

pub(crate) fn verify(store: &Store) -> Result<Verified, VerifyError> {
    // The catalog may grow meanwhile; what lies behind this head is none of our business.
    let head = store.head();
    let catalog = store.catalog();
    let mut chain = Chain::new(store.genesis);
    let mut census = Census::default();
    let mut records = 0;
    for segment in &catalog.segments {
        let mut scanner = Scanner::new(segment.clone());
        while chain.tip().sequence < head.sequence {
            let offset = scanner.offset();
            let sequence = chain.tip().sequence + 1;
            let path = segment.disk.path.clone();
            let damaged = |what: String, path| {
                VerifyError::Damaged(Damage {
                    path,
                    offset,
                    sequence,
                    what,
                })
            };
            let frame = match scanner.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(ScanError::Io(source)) => return Err(VerifyError::Io { path, source }),
                Err(ScanError::Frame(error)) => return Err(damaged(error.to_string(), path)),
            };
            chain.accept(&frame).map_err(|what| damaged(what, path))?;
            if let Entry::Record(record) = &frame.entry {
                records += 1;
                let length = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
                let pointer = Pointer {
                    sequence: record.sequence,
                    file: segment.id,
                    offset,
                    length,
                };
                census.count(record.stream.as_bytes(), record.version, &pointer);
            }
        }
    }
    if chain.head() != head {
        let path = store.layout.segments();
        let sequence = chain.head().sequence + 1;
        let what = format!(
            "the records end at {}, the head is {}",
            sequence - 1,
            head.sequence
        );
        return Err(VerifyError::Damaged(Damage {
            path,
            offset: 0,
            sequence,
            what,
        }));
    }
    check_index(store, head, census)?;
    let streams = chain.streams().len();
    Ok(Verified {
        head,
        records,
        streams,
        segments: catalog.segments.len(),
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
