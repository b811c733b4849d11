//! Telling a torn tail from damage.
//!
//! A crash can leave the last group commit in any state: nothing of it, a prefix, or later pages
//! without earlier ones. None of it was acknowledged, so it may go. Anything before it was synced
//! before the group was written, so a fault there is damage, and cutting would lose acknowledged
//! records. Every record says at which sequence its group began, which decides the question: a sound
//! record further on, of a group that began *behind* the faulty place, proves that this place had
//! been synced.

use std::io;
use std::os::unix::fs::FileExt;

use crate::catalog::Segment;
use crate::frame::{self, Entry, FrameError, RECORD_MAGIC};

/// What the bytes behind the last sound record are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The zeros that are written ahead of the records.
    Zeros,
    /// Remains of a commit that was never acknowledged.
    Torn,
    /// A record that had been on the disk; this later one proves it.
    Damaged { proof: u64 },
    /// A record of a newer format.
    Newer(u16),
}

/// Judges the bytes from `offset` to the end of the last segment, where the record `expected`
/// should stand.
pub(crate) fn judge(segment: &Segment, offset: u64, expected: u64) -> io::Result<Tail> {
    let length = segment.length().saturating_sub(offset);
    let mut rest = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    segment.disk.file.read_exact_at(&mut rest, offset)?;
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(Tail::Zeros);
    }
    let mut bytes = rest.as_slice();
    while let Some(at) = find(bytes, &RECORD_MAGIC) {
        bytes = bytes.get(at..).unwrap_or_default();
        match frame::decode(bytes) {
            Ok(found) => {
                if let Entry::Record(record) = found.entry
                    && record.commit > expected
                {
                    return Ok(Tail::Damaged {
                        proof: record.sequence,
                    });
                }
                bytes = bytes.get(found.bytes.len()..).unwrap_or_default();
            }
            Err(FrameError::Version(version)) => return Ok(Tail::Newer(version)),
            Err(_) => bytes = bytes.get(1..).unwrap_or_default(),
        }
    }
    Ok(Tail::Torn)
}

fn find(bytes: &[u8], magic: &[u8; 4]) -> Option<usize> {
    bytes
        .windows(magic.len())
        .position(|window| window == magic)
}
