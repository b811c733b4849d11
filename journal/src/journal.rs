//! The public handle.

use std::collections::HashSet;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use crate::chain::{StreamState, Streams};
use crate::codec;
use crate::compact::{self, Compacted, MaintenanceError};
use crate::disk::{Disk, RealDisk};
use crate::error::{AppendError, OpenError, ReadError, VerifyError};
use crate::export::{self, ExportError, Exported};
use crate::frame::{record_bytes, valid_stream};
use crate::head::Head;
use crate::options::{EventKind, Options};
use crate::read::{ReadAll, ReadStream, from_micros};
use crate::recover::{self, Kind};
use crate::report::Opened;
use crate::retain::{self, Retained, Retention};
use crate::store::Store;
use crate::tail::Tail;
use crate::verify::{self, Verified};
use crate::writer::{Appended, Message, Request, Writer};
use crate::{MAX_EVENTS, MAX_RECORD_BYTES};

/// Requests that may wait for the writer; further appends wait in their own tasks.
const QUEUE: usize = 1024;

/// What a stream's version has to be for an append to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Any version, also none.
    Any,
    /// The stream has no events.
    NoStream,
    /// The stream's last event has this version; 0 means the same as `NoStream`.
    Exactly(u64),
}

impl Expected {
    pub(crate) fn allows(self, actual: u64) -> bool {
        match self {
            Self::Any => true,
            Self::NoStream => actual == 0,
            Self::Exactly(version) => actual == version,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::NoStream => f.write_str("none"),
            Self::Exactly(version) => write!(f, "{version}"),
        }
    }
}

/// The circumstances of an append. The journal has no clock of its own: time is the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The writer's epoch: a fencing number that grows with every change of leader.
    pub epoch: u64,
    /// The W3C `traceparent` of the operation, if there is one.
    pub traceparent: Option<String>,
    /// When it happened. Kept in whole microseconds; times may repeat and go back.
    pub at: SystemTime,
}

/// A stream and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// The stream's name.
    pub name: String,
    /// The version of its last event.
    pub version: u64,
    /// The version of its first event that is still there; above 1 only after retention.
    pub first: u64,
    /// The global sequence of its last event.
    pub last_sequence: u64,
    /// The time of its last event.
    pub last_at: SystemTime,
}

/// How much there is on the disk, without the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The number of segments; each keeps one file open, as do archives.
    pub segments: usize,
    /// Their lengths together.
    pub segment_bytes: u64,
    /// The number of archives.
    pub archives: usize,
    /// Their lengths together.
    pub archive_bytes: u64,
}

/// An open journal of events of type `E`. Clones share it.
///
/// # Guarantees
/// - When [`append`](Self::append) returns `Ok`, the events are on the disk (`fdatasync`) and every
///   read that begins afterwards sees them. Without an `Ok` none of them is in the journal, unless the
///   error is [`AppendError::Stopped`] or the future was dropped: then all of them are or none is.
/// - The events of one append lie together, in order, all or none, also after a crash.
/// - Readers see only what is on the disk.
///
/// # Blocking
/// `append`, `open` and `close` don't block the runtime. The reads are plain blocking calls that can
/// be used from any code; each step is a memory or page-cache access in the normal case, but a long
/// read, [`verify`](Self::verify) above all, belongs on a blocking thread (`spawn_blocking`).
/// Dropping the last clone without `close` waits for the writer thread to finish in order.
pub struct Journal<E> {
    inner: Arc<Inner<E>>,
}

struct Inner<E> {
    store: Arc<Store>,
    kind: Arc<EventKind<E>>,
    queue: Option<mpsc::Sender<Message>>,
    writer: Option<JoinHandle<()>>,
}

impl<E> Clone for Journal<E> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<E> fmt::Debug for Journal<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.inner.store.layout.root)
            .field("kind", &self.inner.store.kind)
            .field("head", &self.inner.store.head())
            .finish_non_exhaustive()
    }
}

impl<E> Drop for Inner<E> {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("journal writer panicked");
        }
    }
}

impl<E> Journal<E>
where
    E: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Opens the journal in the folder `dir`, or creates it there.
    ///
    /// Every record of the journal is checked: a million takes about a second. What a crash leaves
    /// behind is repaired and reported in [`Opened::report`].
    ///
    /// # Errors
    /// See [`OpenError`]. On an error no record has been changed.
    pub async fn open(
        dir: impl Into<PathBuf>,
        kind: EventKind<E>,
        options: Options,
    ) -> Result<Opened<E>, OpenError> {
        let dir = dir.into();
        tokio::task::spawn_blocking(move || Self::open_on(dir, kind, &options, Arc::new(RealDisk)))
            .await
            .map_err(|e| OpenError::Interrupted(e.to_string()))?
    }

    pub(crate) fn open_on(
        dir: PathBuf,
        kind: EventKind<E>,
        options: &Options,
        disk: Arc<dyn Disk>,
    ) -> Result<Opened<E>, OpenError> {
        let reads = |schema| kind.reads(schema);
        let salvage =
            |folder: &Path, output: &mut dyn Write| export::salvage(&kind, folder, output);
        let (store, lock, report) = recover::open(
            &dir,
            &Kind {
                name: &kind.name,
                schema: kind.schema,
                reads: &reads,
                salvage: &salvage,
            },
            options,
            disk,
        )?;
        let interrupted = || OpenError::Interrupted("the store has no segment".into());
        let writer = Writer::new(Arc::clone(&store), lock).ok_or_else(interrupted)?;
        let (queue, requests) = mpsc::channel(QUEUE);
        let thread = thread::Builder::new()
            .name("journal-writer".into())
            .spawn(move || writer.run(requests))
            .map_err(|e| OpenError::io("start the writer thread for", &dir, e))?;
        let inner = Inner {
            store,
            kind: Arc::new(kind),
            queue: Some(queue),
            writer: Some(thread),
        };
        Ok(Opened {
            journal: Self {
                inner: Arc::new(inner),
            },
            report,
        })
    }

    /// Appends events to a stream, all or none, if the stream is at the `expected` version. Returns
    /// when they are on the disk and readable.
    ///
    /// Concurrent appends share one sync. Of several with the same [`Expected::Exactly`], one wins.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append(
        &self,
        stream: &str,
        expected: Expected,
        context: Context,
        events: Vec<E>,
    ) -> Result<Appended, AppendError> {
        let (reply, answer) = oneshot::channel();
        let request = request(stream, expected, &context, &events, reply)?;
        let queue = self.inner.queue.as_ref().ok_or(AppendError::Closed)?;
        queue
            .send(Message::Append(request))
            .await
            .map_err(|_| AppendError::Closed)?;
        answer.await.map_err(|_| AppendError::Closed)?
    }

    /// The events of a stream from version `from` (1-based; 0 means 1) up to its present end. An
    /// unknown stream has none.
    ///
    /// # Errors
    /// [`ReadError::Retired`] if retention has given up events that were asked for,
    /// [`ReadError::Closed`] after `close`. The items have errors of their own.
    pub fn read(&self, stream: &str, from: u64) -> Result<ReadStream<E>, ReadError> {
        self.check_open()?;
        let Inner { store, kind, .. } = &*self.inner;
        ReadStream::new(Arc::clone(kind), Arc::clone(store), stream, from)
    }

    /// All events from the global sequence `from` (1-based; 0 means 1) up to the present head, in
    /// global order.
    ///
    /// # Errors
    /// [`ReadError::Closed`] after `close`. The items have errors of their own.
    pub fn read_all(&self, from: u64) -> Result<ReadAll<E>, ReadError> {
        self.check_open()?;
        let Inner { store, kind, .. } = &*self.inner;
        // The head first: the catalog that is taken after it has everything up to it.
        let upto = store.head().sequence;
        Ok(ReadAll::new(Arc::clone(kind), store.catalog(), from, upto))
    }

    /// Every stream, by name.
    ///
    /// # Errors
    /// [`ReadError::Closed`] after `close`.
    pub fn streams(&self) -> Result<Vec<StreamInfo>, ReadError> {
        self.check_open()?;
        let store = &self.inner.store;
        let streams = store.streams.read().unwrap_or_else(PoisonError::into_inner);
        Ok(stream_infos(&streams))
    }

    /// Follows the journal from the global sequence `from` on (1-based; 0 means 1). To get only what
    /// is new, start behind the head: `journal.head().sequence + 1`.
    ///
    /// # Errors
    /// [`ReadError::Closed`] after `close`. The items have errors of their own.
    pub fn tail(&self, from: u64) -> Result<Tail<E>, ReadError> {
        self.check_open()?;
        let Inner { store, kind, .. } = &*self.inner;
        Ok(Tail::new(Arc::clone(kind), Arc::clone(store), from))
    }

    /// Checks every record up to the present head: checksum, link, sequences; and the index.
    ///
    /// # Errors
    /// The first place that is not as it was written; see [`VerifyError`].
    pub fn verify(&self) -> Result<Verified, VerifyError> {
        verify::verify(&self.inner.store)
    }

    /// Moves the streams that `finished` says yes to out of the way, into compressed archives. They
    /// stay readable as before, and may be appended to again. Appends go on meanwhile.
    ///
    /// # Errors
    /// See [`MaintenanceError`]; no record is lost.
    pub async fn compact(
        &self,
        finished: impl Fn(&StreamInfo) -> bool,
    ) -> Result<Compacted, MaintenanceError> {
        let infos = self.streams().map_err(|_| MaintenanceError::Closed)?;
        let names: HashSet<Arc<str>> = infos
            .iter()
            .filter(|info| finished(info))
            .map(|info| info.name.as_str().into())
            .collect();
        if names.is_empty() {
            return Ok(Compacted::default());
        }
        let (reply, sealed) = oneshot::channel();
        let queue = self.inner.queue.as_ref().ok_or(MaintenanceError::Closed)?;
        queue
            .send(Message::Seal(reply))
            .await
            .map_err(|_| MaintenanceError::Closed)?;
        sealed.await.map_err(|_| MaintenanceError::Closed)?;
        let store = Arc::clone(&self.inner.store);
        tokio::task::spawn_blocking(move || compact::compact(&store, &names))
            .await
            .map_err(|_| MaintenanceError::Closed)?
    }

    /// Gives up old archives. What was in them can't be read any more; `verify` and `export` know the
    /// places as gaps, and a stream of which nothing is left is forgotten.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub async fn retain(&self, policy: Retention) -> Result<Retained, MaintenanceError> {
        self.check_open().map_err(|_| MaintenanceError::Closed)?;
        let store = Arc::clone(&self.inner.store);
        tokio::task::spawn_blocking(move || retain::retain(&store, &policy))
            .await
            .map_err(|_| MaintenanceError::Closed)?
    }

    /// Writes every record up to the present head as JSON lines; [`crate::import`] reads them. Blocks.
    ///
    /// # Errors
    /// See [`ExportError`].
    pub fn export(&self, output: &mut dyn Write) -> Result<Exported, ExportError> {
        let Inner { store, kind, .. } = &*self.inner;
        let head = store.head();
        export::export(kind, &store.catalog(), head, output)
    }

    /// How much there is on the disk. Cheap enough for a metric.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let catalog = self.inner.store.catalog();
        Usage {
            segments: catalog.segments.len(),
            segment_bytes: catalog
                .segments
                .iter()
                .map(|segment| segment.length())
                .sum(),
            archives: catalog.archives.len(),
            archive_bytes: catalog.archives.iter().map(|archive| archive.bytes).sum(),
        }
    }

    /// The last durable record. Keep it elsewhere too, and hand it to [`Options::known_head`].
    #[must_use]
    pub fn head(&self) -> Head {
        self.inner.store.head()
    }

    /// Closes the journal for all clones: what is queued is written, the lock is released.
    /// Afterwards every call ends in `Closed`.
    pub async fn close(self) {
        let (reply, done) = oneshot::channel();
        let Some(queue) = self.inner.queue.as_ref() else {
            return;
        };
        if queue.send(Message::Close(reply)).await.is_ok() {
            // An error means that another clone's close came first and has been carried out.
            let _ = done.await;
        }
        queue.closed().await;
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    #[cfg(test)]
    pub(crate) fn give_up_index(&self, reason: &str) {
        self.inner.store.index.give_up(reason);
    }

    fn check_open(&self) -> Result<(), ReadError> {
        if self.inner.store.is_closed() {
            Err(ReadError::Closed)
        } else {
            Ok(())
        }
    }
}

pub(crate) fn stream_infos(streams: &Streams) -> Vec<StreamInfo> {
    let info = |(name, state): (&Arc<str>, &StreamState)| StreamInfo {
        name: name.as_ref().to_owned(),
        version: state.version,
        first: state.first,
        last_sequence: state.last_sequence,
        last_at: from_micros(state.last_at_micros),
    };
    streams.iter().map(info).collect()
}

/// Checks and encodes an append.
fn request<E: Serialize>(
    stream: &str,
    expected: Expected,
    context: &Context,
    events: &[E],
    reply: oneshot::Sender<Result<Appended, AppendError>>,
) -> Result<Request, AppendError> {
    if !valid_stream(stream) {
        let name = stream.chars().take(80).collect();
        return Err(AppendError::InvalidStream { name });
    }
    if !(1..=MAX_EVENTS).contains(&events.len()) {
        return Err(AppendError::InvalidCount {
            count: events.len(),
            limit: MAX_EVENTS,
        });
    }
    let trace = context.traceparent.as_deref().map(str::parse).transpose()?;
    let since_epoch = context
        .at
        .duration_since(UNIX_EPOCH)
        .map_err(|_| AppendError::InvalidTime)?;
    let at_micros = u64::try_from(since_epoch.as_micros()).map_err(|_| AppendError::InvalidTime)?;
    let payloads = events
        .iter()
        .enumerate()
        .map(|(index, event)| payload(stream, index, event))
        .collect::<Result<_, _>>()?;
    let stream = stream.into();
    Ok(Request {
        stream,
        expected,
        epoch: context.epoch,
        at_micros,
        trace,
        payloads,
        reply,
    })
}

fn payload<E: Serialize>(stream: &str, index: usize, event: &E) -> Result<Vec<u8>, AppendError> {
    let failed = |e: codec::PayloadError| AppendError::Payload {
        index,
        explanation: e.to_string(),
    };
    let size = codec::encoded_size(event).map_err(failed)?;
    let whole = size.saturating_add(record_bytes(stream.len(), 0) as u64);
    if whole > MAX_RECORD_BYTES as u64 {
        return Err(AppendError::TooLarge { index, size: whole });
    }
    codec::encode(event).map_err(failed)
}
