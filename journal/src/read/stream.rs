//! The records of one stream.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::all::Cursor;
use super::{Envelope, envelope};
use crate::archive::ArchiveScanner;
use crate::catalog::Catalog;
use crate::error::{Damage, ReadError};
use crate::frame::{Entry, Record};
use crate::options::EventKind;
use crate::scan::{Finder, ScanError};
use crate::store::Store;

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
    /// Sequences that were looked up ahead, in reverse.
    ahead: Vec<(u64, u64)>,
    finder: Finder,
    /// Reads versions that have been archived, and the archive's place in the catalog.
    archived: Option<ArchiveScanner>,
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
            finder: Finder::default(),
            archived: None,
            fallback: None,
        })
    }

    /// The global sequence of the next version by the index; `None` if the index can't say.
    fn sequence(&mut self) -> Option<u64> {
        if self.ahead.is_empty() {
            let index = &self.store.index;
            self.ahead = index
                .lookup(&self.stream, self.next, self.upto, LOOKUP)
                .ok()?;
            self.ahead.reverse();
        }
        let (version, sequence) = self.ahead.pop()?;
        (version == self.next).then_some(sequence)
    }
}

impl<E: DeserializeOwned> ReadStream<E> {
    /// Reads the next version through the index; `None` if that doesn't work out.
    fn by_index(&mut self) -> Option<Result<Envelope<E>, ReadError>> {
        let sequence = self.sequence()?;
        if !self.finder.seek(&self.catalog, sequence).ok()? {
            // It was written to a segment that is newer than our view.
            self.catalog = self.store.catalog();
            self.finder.seek(&self.catalog, sequence).ok()?;
        }
        let frame = self.finder.next().ok()??;
        let Entry::Record(record) = &frame.entry else {
            return None;
        };
        let is_it = record.stream == self.stream
            && record.version == self.next
            && record.sequence == sequence;
        is_it.then(|| envelope(&self.kind, record, frame.hash))
    }

    /// Reads the next version from an archive; `None` if none has it.
    fn by_archive(&mut self) -> Option<Result<Envelope<E>, ReadError>> {
        let fits = |scanner: &ArchiveScanner| scanner.archive().has(&self.stream, self.next);
        if !self.archived.as_ref().is_some_and(fits) {
            // It may have been moved since our view was taken.
            self.catalog = self.store.catalog();
            let archive = self
                .catalog
                .archives
                .iter()
                .find(|a| a.has(&self.stream, self.next))?;
            self.archived = Some(ArchiveScanner::from(Arc::clone(archive), 0));
            self.ahead.clear();
        }
        let scanner = self.archived.as_mut()?;
        loop {
            match scanner.next() {
                Ok(Some(frame)) => {
                    if let Entry::Record(record) = &frame.entry
                        && record.stream == self.stream
                        && record.version == self.next
                    {
                        return Some(envelope(&self.kind, record, frame.hash));
                    }
                }
                Ok(None) => return None,
                Err(ScanError::Io(source)) => {
                    let path = scanner.archive().disk.path.clone();
                    return Some(Err(ReadError::Io { path, source }));
                }
                Err(ScanError::Frame(error)) => {
                    return Some(Err(ReadError::Damaged(scanner.damage(0, error))));
                }
            }
        }
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
            None => self.by_index().or_else(|| self.by_archive()),
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
