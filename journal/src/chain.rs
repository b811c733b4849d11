//! The rules that make a series of frames a journal: contiguous sequences, linked hashes, whole
//! appends. Recovery and verification both apply them through [`Chain`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::frame::{Entry, Frame, Gap, Record};
use crate::hash::ChainHash;
use crate::head::Head;

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamState {
    /// The first version that is still there.
    pub(crate) first: u64,
    /// The last version.
    pub(crate) version: u64,
    /// Global sequence and time of the last record.
    pub(crate) last_sequence: u64,
    pub(crate) last_at_micros: u64,
}

/// Every stream by its name.
pub(crate) type Streams = BTreeMap<Arc<str>, StreamState>;

/// Moves a stream on by one record.
pub(crate) fn advance(streams: &mut Streams, stream: &str, record: &RecordNote) {
    let state = StreamState {
        first: record.version,
        version: record.version,
        last_sequence: record.sequence,
        last_at_micros: record.at_micros,
    };
    match streams.get_mut(stream) {
        Some(known) => {
            *known = StreamState {
                first: known.first,
                ..state
            }
        }
        None => {
            streams.insert(stream.into(), state);
        }
    }
}

/// The small part of a record that outlives its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordNote {
    pub(crate) sequence: u64,
    pub(crate) version: u64,
    pub(crate) at_micros: u64,
}

/// Checks frames in global order.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The last record that belongs to a whole append.
    head: Head,
    /// The last record seen.
    tip: Head,
    streams: Streams,
    /// The records of an append whose last one hasn't been seen yet: they are all of one stream.
    open: Option<(Arc<str>, Vec<RecordNote>)>,
    /// Some records are missing by intent, so stream versions may skip.
    gaps: bool,
}

impl Chain {
    pub(crate) fn new(genesis: ChainHash) -> Self {
        let head = Head {
            sequence: 0,
            hash: genesis,
        };
        Self {
            head,
            tip: head,
            streams: Streams::new(),
            open: None,
            gaps: false,
        }
    }

    /// The end of the last whole append.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// The last record seen, whole append or not.
    pub(crate) fn tip(&self) -> Head {
        self.tip
    }

    /// Whether the last append seen is whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.open.is_none()
    }

    /// Gives up the records of an append that isn't whole.
    pub(crate) fn drop_open(&mut self) {
        self.open = None;
        self.tip = self.head;
    }

    pub(crate) fn into_streams(self) -> Streams {
        self.streams
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Takes the next frame, or says which rule it breaks.
    pub(crate) fn accept(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        match &frame.entry {
            Entry::Record(record) => self.record(record, frame.hash),
            Entry::Gap(gap) => self.gap(gap),
        }
    }

    fn record(&mut self, record: &Record<'_>, hash: ChainHash) -> Result<(), String> {
        let expected = self.tip.sequence + 1;
        if record.sequence != expected {
            return Err(format!(
                "record {} stands where {expected} should",
                record.sequence
            ));
        }
        if record.previous != self.tip.hash {
            return Err("its link to the record before it is wrong".into());
        }
        let pending = self
            .open
            .as_ref()
            .map_or(0, |(_, notes)| notes.len() as u64);
        if self
            .open
            .as_ref()
            .is_some_and(|(stream, _)| **stream != *record.stream)
        {
            return Err("it continues an append to another stream".into());
        }
        let known = self
            .streams
            .get(record.stream)
            .map_or(0, |state| state.version);
        let next = known + pending + 1;
        if record.version != next && !(self.gaps && record.version > next) {
            return Err(format!(
                "its stream version is {}, expected {next}",
                record.version
            ));
        }
        self.tip = Head {
            sequence: record.sequence,
            hash,
        };
        self.keep(record);
        Ok(())
    }

    fn keep(&mut self, record: &Record<'_>) {
        let note = RecordNote {
            sequence: record.sequence,
            version: record.version,
            at_micros: record.at_micros,
        };
        if record.continues {
            let (_, notes) = self
                .open
                .get_or_insert_with(|| (record.stream.into(), Vec::new()));
            notes.push(note);
            return;
        }
        let earlier = self.open.take().map(|(_, notes)| notes).unwrap_or_default();
        for note in earlier.iter().chain([&note]) {
            advance(&mut self.streams, record.stream, note);
        }
        self.head = self.tip;
    }

    fn gap(&mut self, gap: &Gap) -> Result<(), String> {
        let expected = self.tip.sequence + 1;
        if gap.first != expected {
            return Err(format!(
                "a gap from {} stands where {expected} should",
                gap.first
            ));
        }
        if !self.is_whole() {
            return Err("a gap stands inside an append".into());
        }
        self.gaps = true;
        self.tip = Head {
            sequence: gap.last,
            hash: gap.hash,
        };
        self.head = self.tip;
        Ok(())
    }
}
