//! Reading events: one stream through the index, or all of them in global order.
//!
//! Both iterators see the journal as it was when they were made, read in constant memory, and check
//! what they read: a record has to be where its predecessor says it is, or the reader doesn't use it.

mod all;
mod stream;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;

use crate::error::ReadError;
use crate::frame::Record;
use crate::hash::ChainHash;
use crate::options::EventKind;

pub(crate) use all::Cursor;
pub use all::ReadAll;
pub use stream::ReadStream;

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
