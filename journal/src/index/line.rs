//! What the index holds, and how it lies in sled: for each stream, chunks of consecutive versions
//! under the key `stream 0x00 first-version(big-endian)`; a chunk is a series of global sequences, 8 bytes
//! each, little-endian.

use std::sync::Arc;

use super::IndexFault;

/// How many sequences a chunk has at most.
pub(super) const CHUNK: usize = 512;

/// One line of the index: a version of a stream, and its place in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) stream: Arc<str>,
    pub(crate) version: u64,
    pub(crate) sequence: u64,
}

pub(super) fn key(stream: &str, version: u64) -> Vec<u8> {
    // A name has no control characters, so the zero byte ends it without ambiguity.
    let mut key = Vec::with_capacity(stream.len() + 9);
    key.extend_from_slice(stream.as_bytes());
    key.push(0);
    key.extend_from_slice(&version.to_be_bytes());
    key
}

/// The stream and the first version that a key names.
pub(super) fn parse_key(key: &[u8]) -> Option<(&[u8], u64)> {
    let (rest, version) = key.split_last_chunk::<8>()?;
    let (zero, stream) = rest.split_last()?;
    (*zero == 0).then_some((stream, u64::from_be_bytes(*version)))
}

pub(super) fn chunk_value(sequences: &[u64]) -> Vec<u8> {
    sequences
        .iter()
        .flat_map(|sequence| sequence.to_le_bytes())
        .collect()
}

/// The sequences of a chunk.
pub(super) fn parse_chunk(value: &[u8]) -> Result<impl Iterator<Item = u64>, IndexFault> {
    let (sequences, rest) = value.as_chunks::<8>();
    if sequences.is_empty() || !rest.is_empty() {
        return Err(IndexFault::Line);
    }
    Ok(sequences.iter().map(|bytes| u64::from_le_bytes(*bytes)))
}

/// A fingerprint of many lines that doesn't depend on their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Census {
    pub(crate) lines: u64,
    sum: u64,
    /// The highest global sequence among them.
    pub(crate) highest: u64,
}

impl Census {
    pub(crate) fn count(&mut self, stream: &[u8], version: u64, sequence: u64) {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&version.to_le_bytes());
        hasher.update(&sequence.to_le_bytes());
        hasher.update(stream);
        self.lines += 1;
        self.highest = self.highest.max(sequence);
        // The multiplier spreads the 32 bits, so that two swapped lines don't cancel out.
        let spread = (u64::from(hasher.finalize()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = self.sum.wrapping_add(spread ^ (spread >> 29));
    }
}
