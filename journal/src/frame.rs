//! The frames of a segment: records and gaps, byte-exact as in `FORMAT.md`.
//!
//! Decoding trusts nothing: whatever the bytes are, it ends in a frame or a [`FrameError`].

use crate::MAX_RECORD_BYTES;
use crate::bytes::{Fields, seal, unseal};
use crate::hash::ChainHash;
use crate::trace::TraceParent;

/// The frame version that this crate writes, and the only one there is so far.
pub(crate) const FORMAT_VERSION: u16 = 1;

/// Starts every record.
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"JREC";
/// Starts every gap.
pub(crate) const GAP_MAGIC: [u8; 4] = *b"JGAP";

/// Bytes of a record before its stream name.
const FIXED: usize = 112;
/// Bytes of a record after its payload: commit and CRC. They are not hashed.
const TRAILER: usize = 12;
/// The smallest frame is a gap.
const MIN_FRAME: usize = GAP_BYTES;
/// Every gap has this length.
const GAP_BYTES: usize = 64;

const FLAG_TRACE: u16 = 1;
const FLAG_CONTINUES: u16 = 1 << 1;

/// No sequence or version is higher, so that the next one can always be computed.
const MAX_SEQUENCE: u64 = u64::MAX >> 1;

/// The longest stream name in bytes.
pub(crate) const MAX_STREAM_BYTES: usize = 255;

/// One record as it lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The application's schema number of the payload.
    pub(crate) schema: u16,
    /// More records of the same append follow: without them this one doesn't count.
    pub(crate) continues: bool,
    pub(crate) stream: &'a str,
    /// Global sequence, 1-based, contiguous.
    pub(crate) sequence: u64,
    /// Sequence within the stream, 1-based, contiguous.
    pub(crate) version: u64,
    /// Microseconds since the Unix epoch, as the caller gave them.
    pub(crate) at_micros: u64,
    pub(crate) epoch: u64,
    pub(crate) trace: Option<TraceParent>,
    /// The hash of the record with the global sequence before this one's.
    pub(crate) previous: ChainHash,
    pub(crate) payload: &'a [u8],
    /// The global sequence of the first record that shared this one's `fdatasync`. A record whose
    /// commit lies behind another record proves that the other one had been on the disk.
    pub(crate) commit: u64,
}

/// Records that once stood here and were moved to an archive, or given up by retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The hash of the record `last`, so that the chain goes on across the gap.
    pub(crate) hash: ChainHash,
}

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Record(Record<'a>),
    Gap(Gap),
}

/// A frame, its length in bytes and the hash that the next one must name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) entry: Entry<'a>,
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: ChainHash,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the frame is cut off")]
    Incomplete,
    #[error("no frame starts here")]
    Magic,
    #[error("the frame's length {0} is out of range")]
    Length(u32),
    #[error("the frame's checksum is wrong")]
    Checksum,
    #[error("the frame has format version {0}, this program reads up to {FORMAT_VERSION}")]
    Version(u16),
    #[error("the frame's checksum is right but its field `{0}` is not valid")]
    Field(&'static str),
}

/// The size of a record's frame.
pub(crate) const fn record_bytes(stream: usize, payload: usize) -> usize {
    FIXED + stream + payload + TRAILER
}

/// Appends a record's frame to `out` and returns the record's hash. The caller has checked the
/// sizes against [`MAX_RECORD_BYTES`] and [`MAX_STREAM_BYTES`].
pub(crate) fn encode_record(record: &Record<'_>, out: &mut Vec<u8>) -> ChainHash {
    let start = out.len();
    let length = record_bytes(record.stream.len(), record.payload.len());
    let mut flags = 0;
    flags |= if record.trace.is_some() {
        FLAG_TRACE
    } else {
        0
    };
    flags |= if record.continues { FLAG_CONTINUES } else { 0 };
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&saturating_u32(length).to_le_bytes());
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&record.schema.to_le_bytes());
    let stream_length = u16::try_from(record.stream.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&stream_length.to_le_bytes());
    for number in [
        record.sequence,
        record.version,
        record.at_micros,
        record.epoch,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let (trace, parent, trace_flags) = record
        .trace
        .map_or(([0; 16], [0; 8], 0), |t| (t.trace, t.parent, t.flags));
    out.extend_from_slice(&trace);
    out.extend_from_slice(&parent);
    out.extend_from_slice(&[trace_flags, 0, 0, 0]);
    out.extend_from_slice(record.previous.as_bytes());
    out.extend_from_slice(&saturating_u32(record.payload.len()).to_le_bytes());
    out.extend_from_slice(record.stream.as_bytes());
    out.extend_from_slice(record.payload);
    let hash = ChainHash::of(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&record.commit.to_le_bytes());
    seal(out, start);
    hash
}

/// Appends a gap's frame to `out`.
pub(crate) fn encode_gap(gap: &Gap, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&GAP_MAGIC);
    out.extend_from_slice(&saturating_u32(GAP_BYTES).to_le_bytes());
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&gap.first.to_le_bytes());
    out.extend_from_slice(&gap.last.to_le_bytes());
    out.extend_from_slice(gap.hash.as_bytes());
    seal(out, start);
}

fn saturating_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// As many bytes of a frame as [`peek`] needs.
pub(crate) const PREFIX_BYTES: usize = 28;

/// The length and the last sequence of the frame at the front of `bytes`, unchecked.
pub(crate) fn peek(bytes: &[u8]) -> Result<(usize, u64), FrameError> {
    let mut fields = Fields(bytes);
    let magic: [u8; 4] = fields.array().ok_or(FrameError::Incomplete)?;
    let length = fields.u32().ok_or(FrameError::Incomplete)?;
    // A record has its sequence at 16, a gap its last one at 20.
    let before = match magic {
        RECORD_MAGIC => 8,
        GAP_MAGIC => 12,
        _ => return Err(FrameError::Magic),
    };
    fields.slice(before).ok_or(FrameError::Incomplete)?;
    let last = fields.u64().ok_or(FrameError::Incomplete)?;
    match usize::try_from(length) {
        Ok(size) if (MIN_FRAME..=MAX_RECORD_BYTES).contains(&size) => Ok((size, last)),
        _ => Err(FrameError::Length(length)),
    }
}

/// Decodes the frame at the front of `bytes`, which may hold more.
pub(crate) fn decode(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let mut prefix = Fields(bytes);
    let magic: [u8; 4] = prefix.array().ok_or(FrameError::Incomplete)?;
    let length = prefix.u32().ok_or(FrameError::Incomplete)?;
    if magic != RECORD_MAGIC && magic != GAP_MAGIC {
        return Err(FrameError::Magic);
    }
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    if !(MIN_FRAME..=MAX_RECORD_BYTES).contains(&size) {
        return Err(FrameError::Length(length));
    }
    let frame = bytes.get(..size).ok_or(FrameError::Incomplete)?;
    // Magic, length, version and the CRC at the end have the same place in every version, so that
    // "damaged" and "too new" can be told apart.
    let body = unseal(frame).ok_or(FrameError::Checksum)?;
    let version = prefix.u16().ok_or(FrameError::Incomplete)?;
    if version != FORMAT_VERSION {
        return Err(FrameError::Version(version));
    }
    let body = body.get(10..).unwrap_or_default();
    if magic == GAP_MAGIC {
        let gap = decode_gap(body).ok_or(FrameError::Field("gap"))?;
        return Ok(Frame {
            entry: Entry::Gap(gap),
            bytes: frame,
            hash: gap.hash,
        });
    }
    let record = decode_record(body)?;
    let hashed = frame.get(..size - TRAILER).unwrap_or_default();
    Ok(Frame {
        entry: Entry::Record(record),
        bytes: frame,
        hash: ChainHash::of(hashed),
    })
}

fn decode_gap(body: &[u8]) -> Option<Gap> {
    let mut fields = Fields(body);
    let reserved = fields.u16()?;
    let gap = Gap {
        first: fields.u64()?,
        last: fields.u64()?,
        hash: ChainHash::from_bytes(fields.array()?),
    };
    let in_order = 1 <= gap.first && gap.first <= gap.last && gap.last <= MAX_SEQUENCE;
    let sound = reserved == 0 && fields.0.is_empty() && in_order;
    sound.then_some(gap)
}

/// `body` starts behind the version and ends before the CRC.
fn decode_record(body: &[u8]) -> Result<Record<'_>, FrameError> {
    use FrameError::Field;
    let mut fields = Fields(body);
    let flags = fields.u16().ok_or(Field("flags"))?;
    if flags & !(FLAG_TRACE | FLAG_CONTINUES) != 0 {
        return Err(Field("flags"));
    }
    let schema = fields.u16().ok_or(Field("schema"))?;
    let stream_length = fields.u16().ok_or(Field("stream length"))?;
    let sequence = fields
        .u64()
        .filter(|n| (1..=MAX_SEQUENCE).contains(n))
        .ok_or(Field("sequence"))?;
    let version = fields
        .u64()
        .filter(|n| (1..=MAX_SEQUENCE).contains(n))
        .ok_or(Field("stream version"))?;
    let at_micros = fields.u64().ok_or(Field("timestamp"))?;
    let epoch = fields.u64().ok_or(Field("epoch"))?;
    let trace = decode_trace(&mut fields, flags & FLAG_TRACE != 0).ok_or(Field("trace context"))?;
    let previous = fields
        .array()
        .map(ChainHash::from_bytes)
        .ok_or(Field("previous hash"))?;
    let payload_length = fields.u32().ok_or(Field("payload length"))?;
    let stream = fields
        .slice(usize::from(stream_length))
        .and_then(|name| std::str::from_utf8(name).ok())
        .filter(|name| valid_stream(name))
        .ok_or(Field("stream"))?;
    let payload = usize::try_from(payload_length)
        .ok()
        .and_then(|length| fields.slice(length))
        .ok_or(Field("payload length"))?;
    let commit = fields
        .u64()
        .filter(|n| (1..=sequence).contains(n))
        .ok_or(Field("commit"))?;
    if !fields.0.is_empty() {
        return Err(Field("length"));
    }
    Ok(Record {
        schema,
        continues: flags & FLAG_CONTINUES != 0,
        stream,
        sequence,
        version,
        at_micros,
        epoch,
        trace,
        previous,
        payload,
        commit,
    })
}

/// `None` when the bytes and the flag disagree.
fn decode_trace(fields: &mut Fields<'_>, present: bool) -> Option<Option<TraceParent>> {
    let trace = TraceParent {
        trace: fields.array()?,
        parent: fields.array()?,
        flags: fields.u8()?,
    };
    let reserved: [u8; 3] = fields.array()?;
    let absent = trace
        == TraceParent {
            trace: [0; 16],
            parent: [0; 8],
            flags: 0,
        };
    match present {
        _ if reserved != [0; 3] => None,
        true if trace.has_ids() => Some(Some(trace)),
        false if absent => Some(None),
        _ => None,
    }
}

/// Stream names are 1 to 255 bytes of UTF-8 without control characters.
pub(crate) fn valid_stream(name: &str) -> bool {
    (1..=MAX_STREAM_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
