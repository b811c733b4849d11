//! The journal as JSON lines, and back, without loss.
//!
//! The first line names the kind, then comes one line per record in global order, then a line with
//! the head. A record's line has everything that its hash covers, so that the import can compute the
//! hash again; `payload` holds the exact bytes, `event` is there for the reader's convenience. The same
//! journal always gives the same bytes.

mod import;
mod line;
mod salvage;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::catalog::Catalog;
use crate::error::Damage;
use crate::frame::{Entry, Frame};
use crate::hash::ChainHash;
use crate::head::Head;
use crate::options::EventKind;
use crate::walk::{WalkError, walk};

pub use import::{ImportError, Imported, import};
pub(crate) use line::{EndLine, HeaderLine, Line, RecordLine};
pub(crate) use salvage::salvage;

/// What was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// The last record.
    pub head: Head,
    /// How many records were written.
    pub records: u64,
}

/// Why an export isn't complete.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output refused to be written to.
    #[error("can't write the export: {0}")]
    Write(#[from] io::Error),
    /// The operating system refused to read the journal.
    #[error("can't read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The journal is damaged.
    #[error("the journal is damaged: {0}")]
    Damaged(Damage),
}

impl From<WalkError<io::Error>> for ExportError {
    fn from(error: WalkError<io::Error>) -> Self {
        match error {
            WalkError::Io { path, source } => Self::Read { path, source },
            WalkError::Damaged(damage) => Self::Damaged(damage),
            WalkError::Visitor(error) => Self::Write(error),
        }
    }
}

/// Writes all records up to `head`.
pub(crate) fn export<E: Serialize + DeserializeOwned>(
    kind: &EventKind<E>,
    catalog: &Arc<Catalog>,
    head: Head,
    output: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let genesis = ChainHash::genesis(&kind.name);
    let mut records = 0;
    write_line(output, &Line::Journal(HeaderLine::new(&kind.name)))?;
    walk(catalog, genesis, head, |frame, _| {
        records += u64::from(matches!(frame.entry, Entry::Record(_)));
        write_line(output, &frame_line(kind, frame))
    })?;
    write_line(
        output,
        &Line::End(EndLine {
            records,
            head: head.into(),
        }),
    )?;
    output.flush()?;
    Ok(Exported { head, records })
}

fn frame_line<E: Serialize + DeserializeOwned>(kind: &EventKind<E>, frame: &Frame<'_>) -> Line {
    match &frame.entry {
        Entry::Gap(gap) => Line::Gap(gap.into()),
        Entry::Record(record) => {
            // A payload that doesn't decode is exported all the same, as bytes.
            let event = kind.decode(record.schema, record.payload).ok();
            let event = event.and_then(|event| serde_json::to_value(event).ok());
            Line::Record(RecordLine::new(record, frame.hash, event))
        }
    }
}

fn write_line(output: &mut dyn Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")
}
