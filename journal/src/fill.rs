//! Bringing the index to what the segments say.

use crate::catalog::Catalog;
use crate::frame::{Entry, Record};
use crate::index::{Census, Index, IndexFault, Line, Pointer};
use crate::scan::{ScanError, Scanner};

const BATCH: usize = 4096;

/// A line that outlives the record it was made from.
struct OwnedLine {
    stream: Box<str>,
    version: u64,
    pointer: Pointer,
}

impl OwnedLine {
    fn line(&self) -> Line<'_> {
        Line {
            stream: &self.stream,
            version: self.version,
            pointer: self.pointer,
        }
    }
}

/// Compares an index with the records of a scan as they go by, and adds those that it lacks at
/// the end.
pub(crate) struct Filler<'i> {
    index: &'i Index,
    found: Census,
    expected: Census,
    /// Records of an append whose end hasn't been seen.
    open: Vec<OwnedLine>,
    missing: Vec<OwnedLine>,
    added: u64,
    fault: Option<IndexFault>,
}

impl<'i> Filler<'i> {
    /// `found` is what the index holds.
    pub(crate) fn new(index: &'i Index, found: Census) -> Self {
        Self {
            index,
            found,
            expected: Census::default(),
            open: Vec::new(),
            missing: Vec::new(),
            added: 0,
            fault: None,
        }
    }

    pub(crate) fn record(&mut self, record: &Record<'_>, pointer: Pointer) {
        let line = Line {
            stream: record.stream,
            version: record.version,
            pointer,
        };
        if record.continues {
            self.open.push(own(line));
            return;
        }
        for line in std::mem::take(&mut self.open) {
            self.whole(line.line());
        }
        self.whole(line);
    }

    fn whole(&mut self, line: Line<'_>) {
        if line.pointer.sequence <= self.found.highest {
            self.expected.count(line);
            return;
        }
        self.missing.push(own(line));
        if self.missing.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let lines = std::mem::take(&mut self.missing);
        if lines.is_empty() || self.fault.is_some() {
            return;
        }
        match self.index.add(lines.iter().map(OwnedLine::line)) {
            Ok(()) => self.added += lines.len() as u64,
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// How many records were added; or why the index can't be used.
    pub(crate) fn finish(mut self) -> Result<u64, String> {
        self.flush();
        if let Some(fault) = self.fault {
            return Err(fault.to_string());
        }
        if self.found != self.expected {
            return Err(format!(
                "it holds {} records up to {}, the segments hold {}, or not the same ones",
                self.found.lines, self.found.highest, self.expected.lines
            ));
        }
        Ok(self.added)
    }
}

fn own(line: Line<'_>) -> OwnedLine {
    OwnedLine {
        stream: line.stream.into(),
        version: line.version,
        pointer: line.pointer,
    }
}

/// Fills an empty index from segments that have been checked. Returns the number of records.
pub(crate) fn fill(index: &Index, catalog: &Catalog) -> Result<u64, String> {
    let mut filler = Filler::new(index, Census::default());
    for segment in &catalog.segments {
        let mut scanner = Scanner::new(segment.clone());
        loop {
            let offset = scanner.offset();
            let frame = match scanner.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(ScanError::Io(e)) => return Err(e.to_string()),
                Err(ScanError::Frame(e)) => return Err(e.to_string()),
            };
            if let Entry::Record(record) = &frame.entry {
                let length = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
                let sequence = record.sequence;
                filler.record(
                    record,
                    Pointer {
                        sequence,
                        file: segment.id,
                        offset,
                        length,
                    },
                );
            }
        }
    }
    filler.finish()
}
