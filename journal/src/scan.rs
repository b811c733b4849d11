//! Reading the frames of a segment one after the other, in constant memory.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::catalog::{Catalog, Segment};
use crate::frame::{self, Entry, Frame, FrameError, Gap};
use crate::segment::HEADER_BYTES;

/// How much a long scan reads at once.
const CHUNK: usize = 256 << 10;
const FIRST_CHUNK: usize = 8 << 10;

/// Why a scan can't go on.
#[derive(Debug)]
pub(crate) enum ScanError {
    Io(io::Error),
    /// What stands at the scanner's offset is not a frame.
    Frame(FrameError),
}

/// What a scanner stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peeked {
    End,
    Gap(Gap),
    Record,
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
    /// How much is read at once: more and more, so that a single record costs little.
    chunk: usize,
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
            chunk: FIRST_CHUNK,
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

    /// What comes next. A gap is taken, a record isn't.
    pub(crate) fn peek(&mut self) -> Result<Peeked, ScanError> {
        if self.offset() >= self.limit {
            return Ok(Peeked::End);
        }
        self.have(frame::GAP_MAGIC.len())?;
        let rest = self.buffer.get(self.position..).unwrap_or_default();
        if !rest.starts_with(&frame::GAP_MAGIC) {
            return Ok(Peeked::Record);
        }
        match self.next()?.map(|frame| frame.entry) {
            Some(Entry::Gap(gap)) => Ok(Peeked::Gap(gap)),
            _ => Err(ScanError::Frame(FrameError::Magic)),
        }
    }

    /// Goes on to the frame that has this sequence, without checking those before it. `false` at the
    /// end.
    fn seek(&mut self, sequence: u64) -> Result<bool, ScanError> {
        while self.offset() < self.limit {
            self.have(frame::PREFIX_BYTES)?;
            let rest = self.buffer.get(self.position..).unwrap_or_default();
            let (length, last) = frame::peek(rest).map_err(ScanError::Frame)?;
            if last >= sequence {
                return Ok(true);
            }
            // Further than the buffer: `have` makes up for it.
            self.position += length;
        }
        Ok(false)
    }

    /// Fills the buffer with at least `wanted` bytes of the frame, if the file has them.
    fn have(&mut self, wanted: usize) -> Result<(), ScanError> {
        if self.buffer.len().saturating_sub(self.position) >= wanted {
            return Ok(());
        }
        self.buffer.drain(..self.position.min(self.buffer.len()));
        self.chunk = (self.chunk * 2).min(CHUNK);
        self.base += self.position as u64;
        self.position = 0;
        let filled = self.buffer.len();
        let available = self.limit.saturating_sub(self.base + filled as u64);
        let more = usize::try_from(available)
            .unwrap_or(usize::MAX)
            .min(self.chunk.max(wanted));
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

/// Finds records by their sequences, quickest when they are asked for in order.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    scanner: Option<Scanner>,
    /// The last sequence that was looked for.
    last: u64,
}

impl Finder {
    /// Goes to the frame that has this sequence. `false` if the catalog ends before it.
    pub(crate) fn seek(&mut self, catalog: &Catalog, sequence: u64) -> Result<bool, ScanError> {
        let Some(segment) = catalog.segments.get(catalog.position(sequence)) else {
            return Ok(false);
        };
        let near = segment.near(sequence);
        let fits = |scanner: &&mut Scanner| {
            Arc::ptr_eq(&scanner.segment, segment) && scanner.offset() >= near
        };
        if self.last < sequence
            && let Some(scanner) = self.scanner.as_mut().filter(fits)
            && scanner.seek(sequence)?
        {
            self.last = sequence;
            return Ok(true);
        }
        self.last = sequence;
        self.scanner
            .insert(Scanner::from(Arc::clone(segment), near))
            .seek(sequence)
    }

    /// The frame that was gone to.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, ScanError> {
        self.scanner.as_mut().map_or(Ok(None), Scanner::next)
    }
}
