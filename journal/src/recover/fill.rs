//! Bringing the index to what the segments say.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::frame::{Entry, Record};
use crate::index::{Census, Index, IndexFault, Line};
use crate::scan::{ScanError, Scanner};

const BATCH: usize = 64 << 10;

/// Compares an index with the records of a scan as they go by, and adds those that it lacks.
pub(crate) struct Filler<'i> {
    index: &'i Index,
    found: Census,
    expected: Census,
    /// Records of an append whose end hasn't been seen.
    open: Vec<Line>,
    missing: Vec<Line>,
    names: HashSet<Arc<str>>,
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
            names: HashSet::new(),
            added: 0,
            fault: None,
        }
    }

    pub(crate) fn record(&mut self, record: &Record<'_>) {
        if record.sequence <= self.found.highest {
            self.expected
                .count(record.stream.as_bytes(), record.version, record.sequence);
            return;
        }
        let stream = self.name(record.stream);
        self.open.push(Line {
            stream,
            version: record.version,
            sequence: record.sequence,
        });
        if record.continues {
            return;
        }
        self.missing.append(&mut self.open);
        if self.missing.len() >= BATCH {
            self.flush();
        }
    }

    /// One copy of a name for many lines.
    fn name(&mut self, stream: &str) -> Arc<str> {
        if let Some(name) = self.names.get(stream) {
            return Arc::clone(name);
        }
        let name: Arc<str> = stream.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    fn flush(&mut self) {
        let lines = std::mem::take(&mut self.missing);
        if lines.is_empty() || self.fault.is_some() {
            return;
        }
        self.added += lines.len() as u64;
        self.index.add(lines.into_iter());
        self.fault = self.index.settle().err();
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

/// Fills an empty index from segments that have been checked. Returns the number of records.
pub(crate) fn fill(index: &Index, catalog: &Catalog) -> Result<u64, String> {
    let mut filler = Filler::new(index, Census::default());
    for segment in &catalog.segments {
        let mut scanner = Scanner::new(segment.clone());
        loop {
            let frame = match scanner.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(ScanError::Io(e)) => return Err(e.to_string()),
                Err(ScanError::Frame(e)) => return Err(e.to_string()),
            };
            if let Entry::Record(record) = &frame.entry {
                filler.record(record);
            }
        }
    }
    filler.finish()
}
