//! The bytes of an archive: a segment's header with another magic, blocks of compressed frames, a
//! directory, and a trailer that says where the directory is. See `FORMAT.md`.

use std::io::{self, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::bytes::{Fields, crc, seal, unseal};
use crate::chain::{RecordNote, StreamState, Streams, advance};
use crate::frame::Record;
use crate::segment::Header;

pub(crate) const ARCHIVE_MAGIC: [u8; 8] = *b"JRNLARCH";
const TRAILER_MAGIC: [u8; 8] = *b"JRNLARCE";
const TRAILER_BYTES: u64 = 16;
/// A block is closed when it has this many bytes of frames.
const BLOCK_BYTES: usize = 128 << 10;

/// Where a block lies and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// The sequences of its first and its last record.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) offset: u64,
    /// Compressed and uncompressed length.
    pub(crate) length: u32,
    pub(crate) raw_length: u32,
    /// CRC of the compressed bytes.
    pub(crate) crc: u32,
}

/// The directory at the end of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Footer {
    pub(crate) blocks: Vec<Block>,
    pub(crate) streams: Streams,
    pub(crate) records: u64,
}

impl Footer {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&count(self.blocks.len()));
        for block in &self.blocks {
            for number in [block.first, block.last, block.offset] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            for number in [block.length, block.raw_length, block.crc] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out.extend_from_slice(&count(self.streams.len()));
        for (name, state) in &self.streams {
            out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
            let StreamState {
                first,
                version,
                last_sequence,
                last_at_micros,
            } = *state;
            for number in [first, version, last_sequence, last_at_micros] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        seal(out, start);
        let length = (out.len() - start) as u64;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&TRAILER_MAGIC);
    }

    /// Reads the directory of a file with `bytes` bytes; `read` gets the length and the end of a part.
    pub(crate) fn read(bytes: u64, read: impl Fn(u64, u64) -> Option<Vec<u8>>) -> Option<Self> {
        let trailer = read(TRAILER_BYTES, bytes)?;
        let mut fields = Fields(&trailer);
        let length = fields.u64()?;
        if fields.array() != Some(TRAILER_MAGIC) {
            return None;
        }
        let directory = read(length, bytes.checked_sub(TRAILER_BYTES)?)?;
        Self::decode(unseal(&directory)?)
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let mut footer = Self {
            records: fields.u64()?,
            ..Self::default()
        };
        for _ in 0..fields.u32()? {
            footer.blocks.push(Block {
                first: fields.u64()?,
                last: fields.u64()?,
                offset: fields.u64()?,
                length: fields.u32()?,
                raw_length: fields.u32()?,
                crc: fields.u32()?,
            });
        }
        for _ in 0..fields.u32()? {
            let length = fields.u16()?;
            let name = std::str::from_utf8(fields.slice(usize::from(length))?).ok()?;
            let state = StreamState {
                first: fields.u64()?,
                version: fields.u64()?,
                last_sequence: fields.u64()?,
                last_at_micros: fields.u64()?,
            };
            footer.streams.insert(Arc::from(name), state);
        }
        fields.0.is_empty().then_some(footer)
    }
}

/// Puts an archive together in memory.
#[derive(Debug)]
pub(crate) struct ArchiveBuilder {
    bytes: Vec<u8>,
    raw: Vec<u8>,
    /// The sequences of the open block's records.
    range: Option<(u64, u64)>,
    footer: Footer,
}

impl ArchiveBuilder {
    pub(crate) fn new(header: &Header) -> Self {
        let bytes = header.encode_as(ARCHIVE_MAGIC);
        Self {
            bytes,
            raw: Vec::new(),
            range: None,
            footer: Footer::default(),
        }
    }

    pub(crate) fn records(&self) -> u64 {
        self.footer.records
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.footer.streams
    }

    /// Adds a record with its frame's bytes.
    pub(crate) fn add(&mut self, record: &Record<'_>, bytes: &[u8]) -> io::Result<()> {
        self.raw.extend_from_slice(bytes);
        let first = self.range.map_or(record.sequence, |(first, _)| first);
        self.range = Some((first, record.sequence));
        let Record {
            sequence,
            version,
            at_micros,
            ..
        } = *record;
        let note = RecordNote {
            sequence,
            version,
            at_micros,
        };
        advance(&mut self.footer.streams, record.stream, &note);
        self.footer.records += 1;
        if self.raw.len() >= BLOCK_BYTES {
            self.close_block()
        } else {
            Ok(())
        }
    }

    fn close_block(&mut self) -> io::Result<()> {
        let Some((first, last)) = self.range.take() else {
            return Ok(());
        };
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&self.raw)?;
        let compressed = encoder.finish()?;
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.footer.blocks.push(Block {
            first,
            last,
            offset: self.bytes.len() as u64,
            length: number(compressed.len()),
            raw_length: number(self.raw.len()),
            crc: crc(&compressed),
        });
        self.bytes.extend_from_slice(&compressed);
        self.raw.clear();
        Ok(())
    }

    /// The whole file.
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        self.close_block()?;
        self.footer.encode(&mut self.bytes);
        Ok(self.bytes)
    }
}
