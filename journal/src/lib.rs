//! A durable, tamper-evident event journal.
//!
//! Events of one type are appended to named streams. An append returns when its events are on the
//! disk; every record is linked to the one before it by a hash, so that holes and changes show; reads
//! go by stream or in global order.
//!
//! The truth are append-only segment files that are synced once per group of appends. Beside them
//! lies an index in sled, which holds nothing that the segments don't and is rebuilt from them
//! whenever it is not what it should be. Finished streams can be moved to compressed archives, from
//! which they are read as before. `FORMAT.md` describes the files byte by byte, `README.md` says what
//! holds when something fails.
//!
//! ```
//! use journal::{Context, EventKind, Expected, Journal, Options};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! enum Door {
//!     Unlocked { by: String },
//!     Locked,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! let kind = EventKind::new("door-lock", 1);
//! let opened = Journal::open(dir.path(), kind, Options::default()).await?;
//! let journal = opened.journal;
//! let context = Context { epoch: 1, traceparent: None, at: std::time::SystemTime::now() };
//! let events = vec![Door::Unlocked { by: "ada".into() }, Door::Locked];
//! let appended = journal.append("front", Expected::NoStream, context, events).await?;
//! assert_eq!(appended.stream_version, 2);
//! let last = journal.read("front", 2)?.next().ok_or("no event")??;
//! assert_eq!(last.event, Door::Locked);
//! journal.verify()?;
//! journal.close().await;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })
//! # }
//! ```

#![forbid(unsafe_code)]

mod archive;
mod bytes;
mod catalog;
mod chain;
mod codec;
mod compact;
mod date;
mod disk;
mod error;
mod export;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod head;
mod index;
mod journal;
mod lock;
mod mainline;
mod options;
mod read;
mod read_only;
mod recover;
mod report;
mod retain;
mod scan;
mod segment;
#[cfg(test)]
mod simulation;
mod snapshot;
mod store;
mod tail;
mod trace;
mod verify;
mod walk;
mod writer;

pub use codec::{PayloadError, decode_payload};
pub use compact::{Compacted, MaintenanceError};
pub use error::{AppendError, Damage, OpenError, ReadError, VerifyError};
pub use export::{ExportError, Exported, ImportError, Imported, import};
pub use hash::{ChainHash, InvalidHash};
pub use head::Head;
pub use journal::{Context, Expected, Journal, StreamInfo, Usage};
pub use options::{EventKind, OnDamage, Options};
pub use read::{Envelope, ReadAll, ReadStream};
pub use read_only::ReadOnly;
pub use report::{OpenReport, Opened, Repair, SetAside};
pub use retain::{Retained, Retention};
pub use snapshot::{Snapshot, SnapshotError};
pub use tail::Tail;
pub use trace::InvalidTraceParent;
pub use verify::Verified;
pub use writer::Appended;

/// The largest record, header and all, in bytes.
pub const MAX_RECORD_BYTES: usize = 64 * 1024;

/// The most events that one append takes.
pub const MAX_EVENTS: usize = 1024;
