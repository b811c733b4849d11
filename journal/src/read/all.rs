//! All records in global order.

use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Envelope, envelope};
use crate::catalog::Catalog;
use crate::error::{Damage, ReadError};
use crate::frame::{Entry, Record};
use crate::hash::ChainHash;
use crate::mainline::{LineError, Mainline};
use crate::options::EventKind;

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
    line: Mainline,
    next: u64,
    upto: u64,
}

impl Cursor {
    pub(crate) fn new(catalog: Arc<Catalog>, from: u64, upto: u64) -> Self {
        let next = from.max(1);
        Self {
            line: Mainline::from(catalog, next),
            next,
            upto,
        }
    }

    /// The next record that is `wanted`, made into something that lasts. After an error there is
    /// nothing more.
    pub(crate) fn next<T>(
        &mut self,
        wanted: impl Fn(&Record<'_>) -> bool,
        make: impl FnOnce(&Record<'_>, ChainHash) -> Result<T, ReadError>,
    ) -> Option<Result<T, ReadError>> {
        while self.next <= self.upto {
            let next = self.next;
            let found = match self.line.next() {
                Ok(Some((frame, _))) => frame,
                Ok(None) => {
                    self.upto = 0;
                    return Some(Err(hole(next, "the journal ends before its head")));
                }
                Err(error) => {
                    self.upto = 0;
                    return Some(Err(error.into()));
                }
            };
            let (first, last) = match &found.entry {
                Entry::Record(record) => (record.sequence, record.sequence),
                Entry::Gap(gap) => (gap.first, gap.last),
            };
            // Reading begins at a signpost, some records early.
            if last < next {
                continue;
            }
            if first > next {
                self.upto = 0;
                return Some(Err(hole(
                    next,
                    &format!("record {first} stands in its place"),
                )));
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
}

fn hole(sequence: u64, what: &str) -> ReadError {
    let (path, what) = (PathBuf::new(), what.to_owned());
    ReadError::Damaged(Damage {
        path,
        offset: 0,
        sequence,
        what,
    })
}

impl From<LineError> for ReadError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Io { path, source } => Self::Io { path, source },
            LineError::Damaged(damage) => Self::Damaged(damage),
        }
    }
}
