//! The lines of an export.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::frame::{Gap, Record};
use crate::hash::ChainHash;
use crate::head::Head;

/// The version of the export format.
pub(super) const EXPORT_VERSION: u16 = 1;

/// One line; its JSON object has the line's kind as its only key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Line {
    Journal(HeaderLine),
    Record(RecordLine),
    Gap(GapLine),
    /// Something that could not be read; only in what was salvaged from a damaged journal.
    Damaged(DamagedLine),
    End(EndLine),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderLine {
    pub(crate) kind: String,
    pub(crate) format: u16,
}

impl HeaderLine {
    pub(crate) fn new(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            format: EXPORT_VERSION,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordLine {
    pub(crate) sequence: u64,
    pub(crate) stream: String,
    pub(crate) version: u64,
    /// Microseconds since the Unix epoch.
    pub(crate) at: u64,
    pub(crate) epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    pub(crate) schema: u16,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) continues: bool,
    pub(crate) previous: String,
    pub(crate) hash: String,
    /// Hexadecimal.
    pub(crate) payload: String,
    /// The decoded payload. Not read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) event: Option<serde_json::Value>,
}

impl RecordLine {
    pub(crate) fn new(
        record: &Record<'_>,
        hash: ChainHash,
        event: Option<serde_json::Value>,
    ) -> Self {
        Self {
            sequence: record.sequence,
            stream: record.stream.to_owned(),
            version: record.version,
            at: record.at_micros,
            epoch: record.epoch,
            traceparent: record.trace.map(|trace| trace.to_string()),
            schema: record.schema,
            continues: record.continues,
            previous: record.previous.to_string(),
            hash: hash.to_string(),
            payload: to_hex(record.payload),
            event,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GapLine {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) hash: String,
}

impl From<&Gap> for GapLine {
    fn from(gap: &Gap) -> Self {
        Self {
            first: gap.first,
            last: gap.last,
            hash: gap.hash.to_string(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DamagedLine {
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndLine {
    pub(crate) records: u64,
    pub(crate) head: HeadLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadLine {
    pub(crate) sequence: u64,
    pub(crate) hash: String,
}

impl From<Head> for HeadLine {
    fn from(head: Head) -> Self {
        Self {
            sequence: head.sequence,
            hash: head.hash.to_string(),
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes that `text` spells in hexadecimal.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}
