//! Reading events: one stream through the index, or all of them in global order.
//!
//! Both iterators see the journal as it was when they were made, read in constant memory, and check
//! what they read: a record has to be where its predecessor says it is, or the reader doesn't use it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;

use crate::catalog::Catalog;
use crate::error::{Damage, ReadError};
use crate::frame::{Entry, Record};
use crate::hash::ChainHash;
use crate::index::Pointer;
use crate::options::EventKind;
use crate::scan::{ScanError, Scanner, read_frame};
use crate::store::Store;

/// One event with what the journal knows about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<E> {
    /// The stream that it belongs to.
    pub stream: String,
    /// Its place in the stream: 1, 2, 3, …
    pub version: u64,
    /// Its place in the journal: 1, 2, 3, …
    pub sequence: u64,
    /// When it happened, as the writer said, in whole microseconds.
    pub at: SystemTime,
    /// The writer's epoch (fencing number).
    pub epoch: u64,
    /// The W3C trace context that it was written in.
    pub traceparent: Option<String>,
    /// The schema number that the payload was written with.
    pub schema: u16,
    /// The hash of the record before it.
    pub previous: ChainHash,
    /// The hash of its own record.
    pub hash: ChainHash,
    /// The event itself.
    pub event: E,
}

pub(crate) fn from_micros(micros: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_micros(micros))
        .unwrap_or(UNIX_EPOCH)
}

pub(crate) fn envelope<E: DeserializeOwned>(
    kind: &EventKind<E>,
    record: &Record<'_>,
    hash: ChainHash,
) -> Result<Envelope<E>, ReadError> {
    let event = kind
        .decode(record.schema, record.payload)
        .map_err(|source| ReadError::Payload {
            sequence: record.sequence,
            stream: record.stream.to_owned(),
            schema: record.schema,
            source,
        })?;
    Ok(Envelope {
        stream: record.stream.to_owned(),
        version: record.version,
        sequence: record.sequence,
        at: from_micros(record.at_micros),
        epoch: record.epoch,
        traceparent: record.trace.map(|t| t.to_string()),
        schema: record.schema,
        previous: record.previous,
        hash,
        event,
    })
}

pub(crate) fn scan_error(scanner: &Scanner, sequence: u64, error: ScanError) -> ReadError {
    let path = scanner.segment().disk.path.clone();
    match error {
        ScanError::Io(source) => ReadError::Io { path, source },
        ScanError::Frame(error) => ReadError::Damaged(Damage {
            path,
            offset: scanner.offset(),
            sequence,
            what: error.to_string(),
        }),
    }
}

/// The events from a global sequence on, in global order.
#[derive(Debug)]
pub struct ReadAll<E> {
    kind: Arc<EventKind<E>>,
    cursor: Cursor,
}

impl<E> ReadAll<E> {
    pub(crate) fn new(
        kind: Arc<EventKind<E>>,
        catalog: Arc<Catalog>,
        from: u64,
        upto: u64,
    ) -> Self {
        Self {
            kind,
            cursor: Cursor::new(catalog, from, upto),
        }
    }
}

impl<E: DeserializeOwned> Iterator for ReadAll<E> {
    type Item = Result<Envelope<E>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let kind = &self.kind;
        self.cursor
            .next(|_| true, |record, hash| envelope(kind, record, hash))
    }
}

/// Walks the records `next..=upto` of a catalog.
#[derive(Debug)]
pub(crate) struct Cursor {
    catalog: Arc<Catalog>,
    segment: usize,
    scanner: Option<Scanner>,
    next: u64,
    upto: u64,
}

impl Cursor {
    pub(crate) fn new(catalog: Arc<Catalog>, from: u64, upto: u64) -> Self {
        let next = from.max(1);
        let segment = catalog.position(next);
        let scanner = catalog
            .segments
            .get(segment)
            .map(|s| Scanner::from(Arc::clone(s), s.near(next)));
        Self {
            catalog,
            segment,
            scanner,
            next,
            upto,
        }
    }

    /// The next record that is `wanted`, made into something that lasts.
    pub(crate) fn next<T>(
        &mut self,
        wanted: impl Fn(&Record<'_>) -> bool,
        make: impl FnOnce(&Record<'_>, ChainHash) -> Result<T, ReadError>,
    ) -> Option<Result<T, ReadError>> {
        while self.next <= self.upto {
            let scanner = self.scanner.as_mut()?;
            let offset = scanner.offset();
            let found = match scanner.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    self.segment += 1;
                    let segment = self.catalog.segments.get(self.segment);
                    self.scanner = segment.cloned().map(Scanner::new);
                    if self.scanner.is_none() {
                        return Some(Err(self.short()));
                    }
                    continue;
                }
                Err(error) => {
                    let error = scan_error(scanner, self.next, error);
                    self.scanner = None;
                    return Some(Err(error));
                }
            };
            let (first, last) = match &found.entry {
                Entry::Record(record) => (record.sequence, record.sequence),
                Entry::Gap(gap) => (gap.first, gap.last),
            };
            // Reading begins at a signpost, some records early.
            if last < self.next {
                continue;
            }
            if first > self.next {
                let what = format!("record {first} stands here");
                let path = scanner.segment().disk.path.clone();
                let damage = Damage {
                    path,
                    offset,
                    sequence: self.next,
                    what,
                };
                self.scanner = None;
                return Some(Err(ReadError::Damaged(damage)));
            }
            self.next = last + 1;
            if let Entry::Record(record) = &found.entry
                && wanted(record)
            {
                return Some(make(record, found.hash));
            }
        }
        None
    }

    fn short(&self) -> ReadError {
        let path = self
            .catalog
            .segments
            .last()
            .map(|s| s.disk.path.clone())
            .unwrap_or_default();
        let what = "the journal ends before its head".into();
        ReadError::Damaged(Damage {
            path,
            offset: 0,
            sequence: self.next,
            what,
        })
    }
}

const LOOKUP: usize = 256;

/// The events of one stream from a version on.
#[derive(Debug)]
pub struct ReadStream<E> {
    kind: Arc<EventKind<E>>,
    store: Arc<Store>,
    catalog: Arc<Catalog>,
    stream: String,
    next: u64,
    upto: u64,
    /// The head when the reading began.
    head: u64,
    /// Pointers that were looked up ahead, in reverse.
    ahead: Vec<(u64, Pointer)>,
    buffer: Vec<u8>,
    /// Takes the place of an index that can't be used.
    fallback: Option<Cursor>,
}

impl<E> ReadStream<E> {
    pub(crate) fn new(
        kind: Arc<EventKind<E>>,
        store: Arc<Store>,
        stream: &str,
        from: u64,
    ) -> Result<Self, ReadError> {
        let head = store.head().sequence;
        let state = store.stream(stream);
        let asked = from.max(1);
        if let Some(state) = state.filter(|state| asked < state.first) {
            let stream = stream.to_owned();
            return Err(ReadError::Retired {
                stream,
                asked,
                first: state.first,
            });
        }
        Ok(Self {
            catalog: store.catalog(),
            kind,
            store,
            stream: stream.to_owned(),
            next: asked,
            upto: state.map_or(0, |state| state.version),
            head,
            ahead: Vec::new(),
            buffer: Vec::new(),
            fallback: None,
        })
    }

    /// Where the next version lies by the index; `None` if the index can't say.
    fn pointer(&mut self) -> Option<Pointer> {
        if self.ahead.is_empty() {
            let index = &self.store.index;
            self.ahead = index
                .lookup(&self.stream, self.next, self.upto, LOOKUP)
                .ok()?;
            self.ahead.reverse();
        }
        let (version, pointer) = self.ahead.pop()?;
        (version == self.next).then_some(pointer)
    }
}

impl<E: DeserializeOwned> ReadStream<E> {
    /// Reads the next version through the index; `None` if that doesn't work out.
    fn by_index(&mut self) -> Option<Result<Envelope<E>, ReadError>> {
        let pointer = self.pointer()?;
        if self.catalog.find(pointer.file).is_none() {
            // Written to a segment that is newer than our view.
            self.catalog = self.store.catalog();
        }
        let segment = self.catalog.find(pointer.file)?;
        let frame = read_frame(segment, pointer.offset, pointer.length, &mut self.buffer).ok()?;
        let Entry::Record(record) = &frame.entry else {
            return None;
        };
        let is_it = record.stream == self.stream
            && record.version == self.next
            && record.sequence == pointer.sequence;
        is_it.then(|| envelope(&self.kind, record, frame.hash))
    }

    /// Reads the next version by looking at every record.
    fn by_scan(&mut self) -> Option<Result<Envelope<E>, ReadError>> {
        let (stream, next, kind) = (&self.stream, self.next, &self.kind);
        let upto = self.store.head().sequence.max(self.head);
        let cursor = self
            .fallback
            .get_or_insert_with(|| Cursor::new(self.store.catalog(), 1, upto));
        let wanted = |record: &Record<'_>| record.stream == *stream && record.version >= next;
        let found = cursor.next(wanted, |record, hash| envelope(kind, record, hash));
        match found {
            Some(Ok(found)) if found.version != next => Some(Err(self.hole(found.sequence))),
            None => Some(Err(self.hole(self.head))),
            found => found,
        }
    }

    fn hole(&self, sequence: u64) -> ReadError {
        let what = format!(
            "version {} of stream `{}` is missing",
            self.next, self.stream
        );
        ReadError::Damaged(Damage {
            path: self.store.layout.segments(),
            offset: 0,
            sequence,
            what,
        })
    }
}

impl<E: DeserializeOwned> Iterator for ReadStream<E> {
    type Item = Result<Envelope<E>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next > self.upto {
            return None;
        }
        if self.store.is_closed() {
            self.upto = 0;
            return Some(Err(ReadError::Closed));
        }
        let mut found = match &self.fallback {
            None => self.by_index(),
            Some(_) => None,
        };
        if found.is_none() {
            if self.fallback.is_none() {
                self.store
                    .index
                    .give_up("it doesn't lead to the records that it names");
            }
            found = self.by_scan();
        }
        self.next += 1;
        if matches!(
            found,
            Some(Err(ReadError::Damaged(_) | ReadError::Io { .. }))
        ) {
            self.upto = 0;
        }
        found
    }
}
