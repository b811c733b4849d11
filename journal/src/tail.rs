//! Following a journal as it grows.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::error::ReadError;
use crate::head::Head;
use crate::options::EventKind;
use crate::read::{Envelope, ReadAll};
use crate::store::Store;

/// The events from a position on, the present ones and then each new one when it is on the disk.
///
/// A tail that is slower than the writer misses nothing and holds nothing up: it reads from the
/// files, in constant memory.
#[derive(Debug)]
pub struct Tail<E> {
    kind: Arc<EventKind<E>>,
    store: Arc<Store>,
    head: watch::Receiver<Head>,
    /// The global sequence of the next event.
    next: u64,
    /// What is being read, and up to where.
    reading: Option<(ReadAll<E>, u64)>,
}

impl<E> Tail<E> {
    pub(crate) fn new(kind: Arc<EventKind<E>>, store: Arc<Store>, from: u64) -> Self {
        let head = store.head.subscribe();
        Self {
            kind,
            store,
            head,
            next: from.max(1),
            reading: None,
        }
    }
}

impl<E: DeserializeOwned> Tail<E> {
    /// The next event; waits for it if there is none yet. `None` when the journal was closed and
    /// everything in it has been delivered. Dropping the future loses nothing.
    ///
    /// After an error the same event is tried again.
    pub async fn next(&mut self) -> Option<Result<Envelope<E>, ReadError>> {
        loop {
            if let Some((reading, upto)) = &mut self.reading {
                match reading.next() {
                    Some(Ok(envelope)) => {
                        self.next = envelope.sequence + 1;
                        return Some(Ok(envelope));
                    }
                    Some(Err(error)) => {
                        self.reading = None;
                        return Some(Err(error));
                    }
                    None => {
                        self.next = *upto + 1;
                        self.reading = None;
                    }
                }
            }
            // Closed first: what was appended before that is covered by the head read after it.
            let closed = self.store.is_closed();
            let upto = self.head.borrow_and_update().sequence;
            if upto >= self.next {
                let (kind, catalog) = (Arc::clone(&self.kind), self.store.catalog());
                self.reading = Some((ReadAll::new(kind, catalog, self.next, upto), upto));
                continue;
            }
            if closed || self.head.changed().await.is_err() {
                return None;
            }
        }
    }
}
