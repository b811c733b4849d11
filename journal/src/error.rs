//! The errors, by kind. Each names the thing, the value and what to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::codec::PayloadError;
use crate::head::Head;
use crate::trace::InvalidTraceParent;
use crate::{Expected, MAX_RECORD_BYTES};

/// A place in the store's files that can't be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} at byte {offset} (record {sequence}): {what}", path.display())]
pub struct Damage {
    /// The damaged file.
    pub path: PathBuf,
    /// Where in the file the first thing stands that can't be trusted.
    pub offset: u64,
    /// The global sequence of the record that should stand there.
    pub sequence: u64,
    /// What is wrong.
    pub what: String,
}

/// Why a journal can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another handle in this one) has it open for writing.
    #[error("the journal is in use by {holder} (lock {}): stop that process first, or open the journal read-only", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Pid and host of the holder, as it wrote them.
        holder: String,
    },
    /// The folder can't be written to.
    #[error("can't {action} {}: {source}; the journal needs a folder that this process may write to", path.display())]
    NotWritable {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The operating system's answer: read-only file system or permission denied.
        source: io::Error,
    },
    /// Another error of the operating system.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The kind's name is not usable.
    #[error("kind `{name}`: a kind's name has 1 to 64 bytes and no control characters")]
    InvalidKind {
        /// The name as given.
        name: String,
    },
    /// The journal was written by another application.
    #[error("{} belongs to a journal of kind `{found}`, not `{expected}`: open the folder that belongs to `{expected}`", path.display())]
    WrongKind {
        /// The file that says so.
        path: PathBuf,
        /// The kind in the file.
        found: String,
        /// The kind that was asked for.
        expected: String,
    },
    /// The files were written by a newer version of this crate.
    #[error("{} has format version {found}; this program reads up to {supported}: use the program version that wrote it, or a newer one", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The version in the file.
        found: u16,
        /// The newest version that this program reads.
        supported: u16,
    },
    /// A payload has a schema number that this application can't decode.
    #[error(
        "record {sequence} has payload schema {found}; this program knows {supported}: {remedy}"
    )]
    UnknownSchema {
        /// The global sequence of the record.
        sequence: u64,
        /// The schema number in the record.
        found: u16,
        /// The application's current schema number.
        supported: u16,
        /// What to do: a newer program, or [`crate::EventKind::with_older`].
        remedy: &'static str,
    },
    /// The store is damaged in a way that no repair covers. Nothing was changed.
    #[error(
        "the journal is damaged: {0}; nothing was changed: restore the folder from a backup, or open it with OnDamage::SetAside"
    )]
    Damaged(Damage),
    /// The journal ends before a head that is known to have been on the disk.
    #[error("the journal ends at record {}, but record {} ({}) is known to have been written: restore the missing files; do not start over an emptied journal", found.sequence, known.sequence, known.hash)]
    Behind {
        /// What is known from elsewhere.
        known: Head,
        /// What the files hold.
        found: Head,
    },
    /// The journal has another record where the known head was.
    #[error("record {} has the hash {}, but is known to have had {}: these files are not the ones that were written then", known.sequence, found, known.hash)]
    Diverged {
        /// What is known from elsewhere.
        known: Head,
        /// The hash in the files.
        found: crate::ChainHash,
    },
    /// A background task of the runtime went away.
    #[error("opening was interrupted: {0}")]
    Interrupted(String),
}

impl OpenError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable {
                    action,
                    path,
                    source,
                }
            }
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }
}

/// Why nothing was appended. After [`AppendError::Stopped`] the outcome is unknown until the
/// journal is opened again; after any other variant the events are certainly not in the journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// The stream's name is not usable.
    #[error("stream `{name}`: a stream's name has 1 to 255 bytes and no control characters")]
    InvalidStream {
        /// The name as given.
        name: String,
    },
    /// The trace context is not valid.
    #[error(transparent)]
    InvalidTraceParent(#[from] InvalidTraceParent),
    /// The time is before 1970.
    #[error("context.at is before 1970-01-01: the caller's clock is wrong")]
    InvalidTime,
    /// No events, or more than one append may hold.
    #[error("events has {count} entries: one append takes 1 to {limit}")]
    InvalidCount {
        /// How many there were.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// An event is too large for a record.
    #[error(
        "events[{index}] makes a record of {size} bytes, the limit is {MAX_RECORD_BYTES}: store large content elsewhere and journal its digest"
    )]
    TooLarge {
        /// The position of the event.
        index: usize,
        /// The size of its record.
        size: u64,
    },
    /// An event can't be encoded.
    #[error("events[{index}] can't be encoded: {explanation}")]
    Payload {
        /// The position of the event.
        index: usize,
        /// The encoder's explanation.
        explanation: String,
    },
    /// The stream is not at the expected version.
    #[error(
        "stream `{stream}` is at version {actual}, expected {expected}: read it again and decide anew"
    )]
    Conflict {
        /// The stream.
        stream: String,
        /// What the caller expected.
        expected: Expected,
        /// Where the stream is; 0 when there is none.
        actual: u64,
    },
    /// The disk is full. The journal is unchanged and goes on when there is space.
    #[error("the disk is full, nothing was written: {explanation}")]
    NoSpace {
        /// The operating system's answer.
        explanation: String,
    },
    /// The write failed. The journal is unchanged.
    #[error("the write failed, nothing was written: {explanation}")]
    Write {
        /// The operating system's answer.
        explanation: String,
    },
    /// A sync failed, now or earlier: what the disk holds is unknown, so nothing more is written.
    #[error("the journal has stopped for good: {reason}; check the disk, then restart the process")]
    Stopped {
        /// What happened.
        reason: String,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

/// Why an event can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system refused to read.
    #[error("can't read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The file doesn't hold what it should.
    #[error("the journal is damaged: {0}; open it again for repair, or restore it")]
    Damaged(Damage),
    /// The payload doesn't decode.
    #[error("record {sequence} of stream `{stream}` (schema {schema}) doesn't decode: {source}")]
    Payload {
        /// Global sequence of the record.
        sequence: u64,
        /// Its stream.
        stream: String,
        /// Its schema number.
        schema: u16,
        /// The decoder's explanation.
        source: PayloadError,
    },
    /// The first events of the stream were given up by retention.
    #[error(
        "stream `{stream}` begins at version {first} now, version {asked} was asked for: earlier ones were given up by retention"
    )]
    Retired {
        /// The stream.
        stream: String,
        /// The version that was asked for.
        asked: u64,
        /// The first version there still is.
        first: u64,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

/// Why the whole journal can't be vouched for.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The operating system refused to read.
    #[error("can't read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The first place that is not as it was written.
    #[error("the journal is damaged: {0}")]
    Damaged(Damage),
    /// The files are sound but the index disagrees with them. Reads notice this too and do without
    /// the index; the next open rebuilds it.
    #[error("the index disagrees with the segments ({0}): open the journal again to rebuild it")]
    Index(String),
}
