//! Reading a journal without its lock, also while another process writes it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::catalog::Catalog;
use crate::chain::Streams;
use crate::error::{OpenError, ReadError};
use crate::export::{self, ExportError, Exported};
use crate::head::Head;
use crate::journal::{StreamInfo, stream_infos};
use crate::options::EventKind;
use crate::read::{Cursor, Envelope, ReadAll, envelope};
use crate::recover::{self, Kind};

/// A journal that is only read. It takes no lock and writes nothing, not even a repair.
///
/// It sees a consistent prefix: every record that was on the disk when it was opened, checked as in
/// [`crate::Journal::open`], and at most a few more that were being written. Records that come later
/// are seen by opening it again. Reading a single stream looks at every record, as there is no index.
#[derive(Debug)]
pub struct ReadOnly<E> {
    kind: Arc<EventKind<E>>,
    catalog: Arc<Catalog>,
    streams: Streams,
    head: Head,
}

impl<E: DeserializeOwned> ReadOnly<E> {
    /// Opens the journal in `dir`. Blocks while it reads all records.
    ///
    /// # Errors
    /// See [`OpenError`]. A torn tail is left out without an error.
    pub fn open(dir: impl Into<PathBuf>, kind: EventKind<E>) -> Result<Self, OpenError> {
        let dir = dir.into();
        let reads = |schema| kind.reads(schema);
        let salvage = |_: &Path, _: &mut dyn Write| Err(io::ErrorKind::Unsupported.into());
        let (catalog, chain) = recover::open_read_only(
            &dir,
            &Kind {
                name: &kind.name,
                schema: kind.schema,
                reads: &reads,
                salvage: &salvage,
            },
        )?;
        let head = chain.head();
        let streams = recover::all_streams(chain, &catalog);
        let catalog = Arc::new(catalog);
        Ok(Self {
            kind: Arc::new(kind),
            catalog,
            streams,
            head,
        })
    }

    /// The events of a stream from version `from` on. An unknown stream has none.
    ///
    /// # Errors
    /// [`ReadError::Retired`] if retention has given up events that were asked for. The items have
    /// errors of their own.
    pub fn read(
        &self,
        stream: &str,
        from: u64,
    ) -> Result<impl Iterator<Item = Result<Envelope<E>, ReadError>> + use<E>, ReadError> {
        let asked = from.max(1);
        if let Some(state) = self.streams.get(stream).filter(|state| asked < state.first) {
            let stream = stream.to_owned();
            return Err(ReadError::Retired {
                stream,
                asked,
                first: state.first,
            });
        }
        let upto = self
            .streams
            .get(stream)
            .map_or(0, |state| state.last_sequence);
        Ok(Filtered {
            cursor: Cursor::new(Arc::clone(&self.catalog), 1, upto),
            kind: Arc::clone(&self.kind),
            stream: stream.to_owned(),
            from: asked,
        })
    }

    /// All events from the global sequence `from` on, in global order.
    #[must_use]
    pub fn read_all(&self, from: u64) -> ReadAll<E> {
        let (kind, catalog) = (Arc::clone(&self.kind), Arc::clone(&self.catalog));
        ReadAll::new(kind, catalog, from, self.head.sequence)
    }

    /// Every stream, by name.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamInfo> {
        stream_infos(&self.streams)
    }

    /// The last record that is seen.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Writes every record that is seen as JSON lines; [`crate::import`] reads them.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn export(&self, output: &mut dyn Write) -> Result<Exported, ExportError>
    where
        E: Serialize,
    {
        export::export(&self.kind, &self.catalog, self.head, output)
    }
}

/// The records of one stream among all.
struct Filtered<E> {
    cursor: Cursor,
    kind: Arc<EventKind<E>>,
    stream: String,
    from: u64,
}

impl<E: DeserializeOwned> Iterator for Filtered<E> {
    type Item = Result<Envelope<E>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (stream, from, kind) = (&self.stream, self.from, &self.kind);
        self.cursor.next(
            |record| record.stream == *stream && record.version >= from,
            |record, hash| envelope(kind, record, hash),
        )
    }
}
