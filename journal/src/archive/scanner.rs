//! Reading the records of an archive one after the other.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::read::ZlibDecoder;

use super::{Archive, Block};
use crate::bytes::crc;
use crate::error::Damage;
use crate::frame::{self, Frame, FrameError};
use crate::scan::ScanError;

/// Blocks are cut when they have reached 128 KiB; none is longer than that and one record.
const MAX_RAW: u32 = 256 << 10;

/// Reads an archive from some sequence on, a block at a time.
#[derive(Debug)]
pub(crate) struct ArchiveScanner {
    archive: Arc<Archive>,
    /// The block that comes after the one in the buffer.
    block: usize,
    buffer: Vec<u8>,
    position: usize,
}

impl ArchiveScanner {
    /// Starts with the block that may have this sequence.
    pub(crate) fn from(archive: Arc<Archive>, sequence: u64) -> Self {
        let block = archive
            .footer
            .blocks
            .partition_point(|block| block.last < sequence);
        Self {
            archive,
            block,
            buffer: Vec::new(),
            position: 0,
        }
    }

    pub(crate) fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    /// The sequence of the next record, or `None` at the end.
    pub(crate) fn peek(&mut self) -> Result<Option<u64>, ScanError> {
        if self.position >= self.buffer.len() {
            let Some(block) = self.archive.footer.blocks.get(self.block).copied() else {
                return Ok(None);
            };
            self.load(&block)?;
            self.block += 1;
        }
        let rest = self.buffer.get(self.position..).unwrap_or_default();
        frame::peek(rest)
            .map(|(_, sequence)| Some(sequence))
            .map_err(ScanError::Frame)
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, ScanError> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let rest = self.buffer.get(self.position..).unwrap_or_default();
        let frame = frame::decode(rest).map_err(ScanError::Frame)?;
        self.position += frame.bytes.len();
        Ok(Some(frame))
    }

    /// Leaves the next record out.
    pub(crate) fn skip(&mut self) -> Result<(), ScanError> {
        let rest = self.buffer.get(self.position..).unwrap_or_default();
        let (length, _) = frame::peek(rest).map_err(ScanError::Frame)?;
        self.position += length;
        Ok(())
    }

    fn load(&mut self, block: &Block) -> Result<(), ScanError> {
        let checksum = || ScanError::Frame(FrameError::Checksum);
        if block.raw_length > MAX_RAW || block.length > 2 * MAX_RAW {
            return Err(ScanError::Frame(FrameError::Length(block.raw_length)));
        }
        let size = |length: u32| usize::try_from(length).unwrap_or(usize::MAX);
        let mut compressed = vec![0; size(block.length)];
        match self
            .archive
            .disk
            .file
            .read_exact_at(&mut compressed, block.offset)
        {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(checksum()),
            read => read.map_err(ScanError::Io)?,
        }
        if crc(&compressed) != block.crc {
            return Err(checksum());
        }
        self.buffer.clear();
        self.position = 0;
        let limit = u64::from(block.raw_length) + 1;
        let read = ZlibDecoder::new(compressed.as_slice())
            .take(limit)
            .read_to_end(&mut self.buffer);
        if read.map_err(|_| checksum())? != size(block.raw_length) {
            self.buffer.clear();
            return Err(checksum());
        }
        Ok(())
    }

    /// What a scan error here means to a reader who wanted the record `sequence`.
    pub(crate) fn damage(&self, sequence: u64, error: FrameError) -> Damage {
        let before = self.block.saturating_sub(1);
        let offset = self
            .archive
            .footer
            .blocks
            .get(before)
            .map_or(0, |block| block.offset);
        let what = format!("in the archive's block that begins here: {error}");
        Damage {
            path: self.archive.disk.path.clone(),
            offset,
            sequence,
            what,
        }
    }
}
