//! The controller's journal, kept by the journal crate.

use super::ports::{Context, Entry, Journal, JournalError};
use super::record::Record;
use journal::{EventKind, Expected, OnDamage, Options};
use std::path::PathBuf;
use std::time::SystemTime;

/// The schema number of [`Record`]'s encoding. A change to it needs a new number, a frozen copy of
/// the old types to read old records with, and a golden file.
const SCHEMA: u16 = 1;

/// The journal on the disk.
#[derive(Clone, Debug)]
pub struct Store(journal::Journal<Record>);

fn failed(error: impl std::error::Error) -> JournalError {
    JournalError(error.to_string())
}

impl Store {
    /// Opens the journal in `dir`, or creates it there, and logs what had to be repaired. One that is
    /// damaged beyond repair is set aside under a name with the time `at`, what is readable of it is
    /// exported beside it, and an empty one begins: cluster and hosts tell the rest.
    ///
    /// # Errors
    /// If it is of another version, or held by another process.
    pub async fn open(dir: impl Into<PathBuf>, at: SystemTime) -> Result<Self, JournalError> {
        let dir = dir.into();
        let kind = EventKind::new("exporter-set-controller", SCHEMA);
        let options = Options {
            on_damage: OnDamage::SetAside { at },
            ..Options::default()
        };
        let opened = journal::Journal::open(dir.clone(), kind, options)
            .await
            .map_err(failed)?;
        for repair in &opened.report.repairs {
            tracing::warn!(dir = %dir.display(), ?repair, "the journal was repaired");
        }
        if let Some(set_aside) = &opened.report.set_aside {
            tracing::error!(dir = %dir.display(), ?set_aside, "the journal was damaged beyond repair and set aside; the state is taken from cluster and hosts");
        }
        let head = opened.report.head.sequence;
        tracing::info!(dir = %dir.display(), head, created = opened.report.created, "journal open");
        Ok(Self(opened.journal))
    }

    /// Closes the journal: what was acknowledged is on the disk anyway, the lock is released.
    pub async fn close(self) {
        self.0.close().await;
    }
}

impl Journal for Store {
    async fn append(
        &self,
        stream: &str,
        expected: Option<u64>,
        context: Context,
        records: Vec<Record>,
    ) -> Result<u64, JournalError> {
        let expected = expected.map_or(Expected::Any, Expected::Exactly);
        let Context {
            at,
            epoch,
            traceparent,
        } = context;
        let context = journal::Context {
            epoch,
            traceparent,
            at,
        };
        let appended = self
            .0
            .append(stream, expected, context, records)
            .await
            .map_err(failed)?;
        Ok(appended.stream_version)
    }

    fn replay(
        &self,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + '_>, JournalError> {
        let envelopes = self.0.read_all(1).map_err(failed)?;
        Ok(Box::new(envelopes.map(|envelope| {
            let envelope = envelope.map_err(failed)?;
            Ok(Entry {
                stream: envelope.stream,
                version: envelope.version,
                at: envelope.at,
                record: envelope.event,
            })
        })))
    }
}
