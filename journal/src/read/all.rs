//! All records in global order.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Envelope, envelope, scan_error};
use crate::catalog::Catalog;
use crate::error::{Damage, ReadError};
use crate::frame::{Entry, Record};
use crate::hash::ChainHash;
use crate::options::EventKind;
use crate::scan::Scanner;

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
