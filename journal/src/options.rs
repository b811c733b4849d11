//! What a caller chooses when opening a journal.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::codec::{PayloadError, decode_payload};
use crate::head::Head;
use serde::de::DeserializeOwned;

/// Settings of one open journal. Start from `Options::default()`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Upper bound of the index's cache in bytes. Default 64 MiB.
    pub cache_bytes: u64,
    /// How long the index may take to open before it is given up and rebuilt from the segments.
    /// Default 60 s.
    pub open_deadline: Duration,
    /// A segment that has reached this length is sealed and followed by a new one. Default 32 MiB.
    pub segment_bytes: u64,
    /// How many bytes of zeros the segment being written is filled up with, when it needs more room.
    /// A sync within them is quicker than one that has to commit a new length as well. Default 4 MiB;
    /// 0 is none.
    pub preallocate_bytes: u64,
    /// The head that the caller knows from elsewhere. A journal that doesn't contain it is refused.
    pub known_head: Option<Head>,
    /// What to do about damage that no repair covers. Default: refuse to open.
    pub on_damage: OnDamage,
}

/// What `open` does about damage that no repair covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Refuse to open, and change nothing.
    Refuse,
    /// Move the whole store into a folder named by this time, export what is readable beside it, and
    /// begin an empty journal. For applications that can rebuild their state from elsewhere. A journal
    /// that is sound but behind its known head is refused all the same.
    SetAside {
        /// The caller's time.
        at: SystemTime,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            open_deadline: Duration::from_secs(60),
            segment_bytes: 32 << 20,
            preallocate_bytes: 4 << 20,
            known_head: None,
            on_damage: OnDamage::Refuse,
        }
    }
}

type DecodeOlder<E> = fn(u16, &[u8]) -> Result<E, PayloadError>;

/// What a journal holds: the application's name for it and the schema number of its payloads.
///
/// Raise the schema number whenever the encoding of `E` changes, and keep a frozen copy of the old
/// type to decode old records with: bincode is not self-describing, so an added field or a variant
/// in the middle would be misread without any error.
pub struct EventKind<E> {
    pub(crate) name: String,
    pub(crate) schema: u16,
    pub(crate) older: Option<DecodeOlder<E>>,
}

impl<E> EventKind<E> {
    /// A kind with a name of 1 to 64 bytes and the schema number that new records get.
    #[must_use]
    pub fn new(name: impl Into<String>, schema: u16) -> Self {
        Self {
            name: name.into(),
            schema,
            older: None,
        }
    }

    /// How to read payloads of a schema number below the current one: the function gets that number
    /// and the payload, decodes it with [`decode_payload`] and converts it.
    #[must_use]
    pub fn with_older(mut self, decode: DecodeOlder<E>) -> Self {
        self.older = Some(decode);
        self
    }

    /// Whether payloads of this schema number can be decoded at all.
    pub(crate) fn reads(&self, schema: u16) -> bool {
        schema == self.schema || (schema < self.schema && self.older.is_some())
    }
}

impl<E: DeserializeOwned> EventKind<E> {
    pub(crate) fn decode(&self, schema: u16, payload: &[u8]) -> Result<E, PayloadError> {
        if schema == self.schema {
            return decode_payload(payload);
        }
        match self.older {
            Some(decode) if schema < self.schema => decode(schema, payload),
            _ => Err(PayloadError::new("this program doesn't know the schema")),
        }
    }
}

impl<E> Clone for EventKind<E> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            schema: self.schema,
            older: self.older,
        }
    }
}

impl<E> fmt::Debug for EventKind<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventKind")
            .field("name", &self.name)
            .field("schema", &self.schema)
            .field("reads_older", &self.older.is_some())
            .finish()
    }
}
