//! Reading the frames of a segment one after the other, in constant memory.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::catalog::Segment;
use crate::frame::{self, Frame, FrameError};
use crate::segment::HEADER_BYTES;

const CHUNK: usize = 256 << 10;

/// Why a scan can't go on.
#[derive(Debug)]
pub(crate) enum ScanError {
    Io(io::Error),
    /// What stands at the scanner's offset is not a frame.
    Frame(FrameError),
}

/// Reads a segment up to the length that it had when the scan began.
#[derive(Debug)]
pub(crate) struct Scanner {
    segment: Arc<Segment>,
    limit: u64,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame begins, and where in the file the buffer does.
    position: usize,
    base: u64,
}

impl Scanner {
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        Self::from(segment, HEADER_BYTES as u64)
    }

    /// Starts at a frame's offset.
    pub(crate) fn from(segment: Arc<Segment>, offset: u64) -> Self {
        let limit = segment.length();
        Self {
            segment,
            limit,
            buffer: Vec::new(),
            position: 0,
            base: offset,
        }
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Where the next frame begins.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// The next frame, or `None` at the end. After an error the scan stays where it is.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, ScanError> {
        if self.offset() >= self.limit {
            return Ok(None);
        }
        self.have(8)?;
        let length = self
            .buffer
            .get(self.position + 4..)
            .and_then(|rest| rest.first_chunk::<4>())
            .map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length <= crate::MAX_RECORD_BYTES {
            self.have(length)?;
        }
        let rest = self.buffer.get(self.position..).unwrap_or_default();
        let frame = frame::decode(rest).map_err(ScanError::Frame)?;
        self.position += frame.bytes.len();
        Ok(Some(frame))
    }

    /// Fills the buffer with at least `wanted` bytes of the frame, if the file has them.
    fn have(&mut self, wanted: usize) -> Result<(), ScanError> {
        if self.buffer.len().saturating_sub(self.position) >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.position.min(self.buffer.len()));
        self.base += self.position as u64;
        self.position = 0;
        let filled = self.buffer.len();
        let available = self.limit.saturating_sub(self.base + filled as u64);
        let more = usize::try_from(available).unwrap_or(usize::MAX).min(CHUNK);
        self.buffer.resize(filled + more, 0);
        let target = self.buffer.get_mut(filled..).unwrap_or_default();
        let read = self
            .segment
            .disk
            .file
            .read_exact_at(target, self.base + filled as u64);
        if let Err(error) = read {
            self.buffer.truncate(filled);
            // Shorter than it was: somebody cut the file under our hands.
            return match error.kind() {
                io::ErrorKind::UnexpectedEof => Err(ScanError::Frame(FrameError::Incomplete)),
                _ => Err(ScanError::Io(error)),
            };
        }
        Ok(())
    }
}

/// Reads the one frame that stands at `offset` and has `length` bytes.
pub(crate) fn read_frame<'b>(
    segment: &Segment,
    offset: u64,
    length: u32,
    buffer: &'b mut Vec<u8>,
) -> Result<Frame<'b>, ScanError> {
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    if size > crate::MAX_RECORD_BYTES || offset + u64::from(length) > segment.length() {
        return Err(ScanError::Frame(FrameError::Length(length)));
    }
    buffer.resize(size, 0);
    segment
        .disk
        .file
        .read_exact_at(buffer, offset)
        .map_err(ScanError::Io)?;
    frame::decode(buffer).map_err(ScanError::Frame)
}
