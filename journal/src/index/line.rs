//! What the index holds, and how it lies in sled: for each stream, chunks of consecutive versions
//! under the key `stream 0x00 first-version(big-endian)`; a chunk is a series of 32-byte pointers.

use std::sync::Arc;

use super::IndexFault;
use crate::bytes::Fields;
use crate::segment::FileId;

const POINTER_BYTES: usize = 32;

/// How many pointers a chunk has at most.
pub(super) const CHUNK: usize = 128;

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) sequence: u64,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// One line of the index.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) stream: Arc<str>,
    pub(crate) version: u64,
    pub(crate) pointer: Pointer,
}

impl Pointer {
    fn bytes(&self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        let fields = self
            .sequence
            .to_le_bytes()
            .into_iter()
            .chain(self.file.first.to_le_bytes())
            .chain(self.offset.to_le_bytes())
            .chain(self.file.generation.to_le_bytes())
            .chain(self.length.to_le_bytes());
        for (byte, field) in bytes.iter_mut().zip(fields) {
            *byte = field;
        }
        bytes
    }

    fn parse(bytes: &[u8; POINTER_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let sequence = fields.u64()?;
        let first = fields.u64()?;
        let offset = fields.u64()?;
        let generation = fields.u32()?;
        let length = fields.u32()?;
        Some(Self {
            sequence,
            file: FileId { first, generation },
            offset,
            length,
        })
    }
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

pub(super) fn chunk_value(pointers: &[Pointer]) -> Vec<u8> {
    pointers.iter().flat_map(Pointer::bytes).collect()
}

/// The pointers of a chunk.
pub(super) fn parse_chunk(value: &[u8]) -> Result<Vec<Pointer>, IndexFault> {
    let (pointers, rest) = value.as_chunks::<POINTER_BYTES>();
    if pointers.is_empty() || !rest.is_empty() {
        return Err(IndexFault::Line);
    }
    pointers
        .iter()
        .map(|bytes| Pointer::parse(bytes).ok_or(IndexFault::Line))
        .collect()
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
    pub(crate) fn count(&mut self, stream: &[u8], version: u64, pointer: &Pointer) {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&version.to_le_bytes());
        hasher.update(&pointer.bytes());
        hasher.update(stream);
        self.lines += 1;
        self.highest = self.highest.max(pointer.sequence);
        // The multiplier spreads the 32 bits, so that two swapped lines don't cancel out.
        let spread = (u64::from(hasher.finalize()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = self.sum.wrapping_add(spread ^ (spread >> 29));
    }
}
