//! What `open` found and did.

use std::path::PathBuf;

use crate::error::Damage;
use crate::head::Head;

/// The result of opening: the journal, and what had to be done to open it.
#[derive(Debug)]
pub struct Opened<E> {
    /// The open journal.
    pub journal: crate::Journal<E>,
    /// What was found and repaired.
    pub report: OpenReport,
}

/// What `open` found and repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReport {
    /// There was no journal in the folder; a new, empty one was made.
    pub created: bool,
    /// The last record.
    pub head: Head,
    /// How many streams there are.
    pub streams: usize,
    /// What was not in order and has been put in order.
    pub repairs: Vec<Repair>,
    /// A damaged journal was moved away and an empty one begun, as [`crate::OnDamage::SetAside`] asks.
    pub set_aside: Option<SetAside>,
}

/// Where a damaged journal has gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// What was wrong with it.
    pub damage: Damage,
    /// The folder that has all its files now.
    pub folder: PathBuf,
    /// JSON lines with every record that could still be read.
    pub export: PathBuf,
    /// How many those are.
    pub records: u64,
}

/// One thing that was not in order and has been put in order. No repair takes away a record that
/// an `append` had acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// A file that a crash had left unfinished was removed.
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// A file that a finished compaction had replaced was removed.
    Superseded {
        /// The file.
        path: PathBuf,
    },
    /// The end of the last segment was an append that a crash had cut off, and was removed.
    TornTail {
        /// The segment.
        path: PathBuf,
        /// The segment's length now.
        offset: u64,
        /// How many bytes were removed.
        bytes: u64,
        /// The global sequence that the next record gets.
        sequence: u64,
    },
    /// The `HEAD` file was missing or unreadable and was written again.
    HeadRewritten {
        /// What was wrong with it.
        reason: &'static str,
    },
    /// The index lacked the last records and got them from the segments.
    IndexRefilled {
        /// How many.
        records: u64,
    },
    /// The index was rebuilt from the segments.
    IndexRebuilt {
        /// Why.
        reason: String,
        /// How many records it has now.
        records: u64,
    },
    /// There is no usable index and none could be made. Reads of single streams are slow until the
    /// next open; nothing else is different.
    IndexAbsent {
        /// Why.
        reason: String,
    },
}
