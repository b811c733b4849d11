//! The one thread that writes: it takes what is queued, writes it as one group, syncs once, and only
//! then answers.

mod group;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use crate::catalog::Segment;
use crate::chain::{RecordNote, advance};
use crate::disk::WholeError;
use crate::error::AppendError;
use crate::frame::{self, Record};
use crate::head::{self, Head, Mark};
use crate::index::Line;
use crate::lock::Lock;
use crate::segment::{FileId, HEADER_BYTES, Header};
use crate::store::Store;
use group::{Group, Pace, Then, Written, take_group};

pub(crate) use group::{Message, Request};

/// What an append is told when its events are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The stream's version after the append.
    pub stream_version: u64,
    /// The global sequence of the last event.
    pub global_sequence: u64,
    /// The hash of the last event's record.
    pub hash: crate::ChainHash,
}

/// The state of the writer thread.
pub(crate) struct Writer {
    store: Arc<Store>,
    segment: Arc<Segment>,
    /// The length of the segment's file: zeros follow the last record.
    allocated: u64,
    head: Head,
    group: Group,
    pace: Pace,
    stopped: Option<String>,
    _lock: Lock,
}

impl Writer {
    /// A writer that goes on where the store ends. `None` if the store has no segment.
    pub(crate) fn new(store: Arc<Store>, lock: Lock) -> Option<Self> {
        let segment = store.catalog().segments.last().cloned()?;
        let head = store.head();
        let allocated = segment.disk.file.metadata().map_or(0, |file| file.len());
        Some(Self {
            allocated,
            store,
            segment,
            head,
            group: Group::default(),
            pace: Pace::default(),
            stopped: None,
            _lock: lock,
        })
    }

    /// Serves until it is told to close or nobody can ask any more.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut closing = None;
        while closing.is_none() {
            let Some(first) = queue.blocking_recv() else {
                break;
            };
            self.pace.gather(&queue);
            let (requests, then) = take_group(first, &mut queue);
            self.commit(requests, &queue);
            match then {
                Then::Continue => {}
                Then::Close(reply) => closing = Some(reply),
                Then::Seal(reply) => {
                    if self.stopped.is_none() && self.segment.length() > HEADER_BYTES as u64 {
                        self.rotate();
                    }
                    // Whoever asked looks at what there is.
                    let _ = reply.send(());
                }
            }
        }
        self.shut_down();
        // The lock goes before the queue: whoever finds the queue closed may open the journal again.
        drop(self);
        drop(queue);
        if let Some(reply) = closing {
            // Whoever asked may have gone.
            let _ = reply.send(());
        }
    }

    fn commit(&mut self, requests: Vec<Request>, queue: &mpsc::Receiver<Message>) {
        let started = Instant::now();
        let count = requests.len();
        for request in requests {
            self.prepare(request);
        }
        let outcome = self.write();
        let mut group = std::mem::take(&mut self.group);
        if outcome.is_ok() {
            self.publish(&group);
        }
        self.pace.observe(count + queue.len(), started.elapsed());
        for (reply, result) in group.replies.drain(..) {
            // A conflict was judged against the whole group: if that failed, it means nothing.
            let result = outcome.clone().and(result);
            // An append whose future was dropped is not told; the events are in all the same.
            let _ = reply.send(result);
        }
        group.clear();
        self.group = group;
        if outcome.is_ok() && self.segment.length() >= self.store.segment_bytes {
            self.rotate();
        }
    }

    /// Checks the expectation and encodes the request's records behind those of the group.
    fn prepare(&mut self, request: Request) {
        let known = self.group.versions.get(&request.stream).copied();
        let actual = known
            .or_else(|| {
                self.store
                    .stream(&request.stream)
                    .map(|state| state.version)
            })
            .unwrap_or(0);
        if !request.expected.allows(actual) {
            let stream = request.stream.as_ref().to_owned();
            let conflict = AppendError::Conflict {
                stream,
                expected: request.expected,
                actual,
            };
            self.group.replies.push((request.reply, Err(conflict)));
            return;
        }
        let tip = self.tip();
        let commit = self.head.sequence + 1;
        let (mut sequence, mut version, mut hash) = (tip.sequence, actual, tip.hash);
        let count = request.payloads.len();
        for (at, payload) in request.payloads.iter().enumerate() {
            sequence += 1;
            version += 1;
            let start = self.group.bytes.len();
            let record = Record {
                schema: self.store.schema,
                continues: at + 1 < count,
                stream: &request.stream,
                sequence,
                version,
                at_micros: request.at_micros,
                epoch: request.epoch,
                trace: request.trace,
                previous: hash,
                payload,
                commit,
            };
            hash = frame::encode_record(&record, &mut self.group.bytes);
            let offset = self.segment.length() + start as u64;
            let note = RecordNote {
                sequence,
                version,
                at_micros: request.at_micros,
            };
            let stream = Arc::clone(&request.stream);
            self.group.written.push(Written {
                stream,
                note,
                offset,
            });
        }
        self.group.versions.insert(request.stream, version);
        let appended = Appended {
            stream_version: version,
            global_sequence: sequence,
            hash,
        };
        self.group.replies.push((request.reply, Ok(appended)));
    }

    /// The last record of the group so far.
    fn tip(&self) -> Head {
        let last = self
            .group
            .replies
            .iter()
            .rev()
            .find_map(|(_, result)| result.as_ref().ok());
        last.map_or(self.head, |a| Head {
            sequence: a.global_sequence,
            hash: a.hash,
        })
    }

    /// Writes and syncs the group's bytes.
    fn write(&mut self) -> Result<(), AppendError> {
        if let Some(reason) = &self.stopped {
            let reason = reason.clone();
            return Err(AppendError::Stopped { reason });
        }
        if self.group.bytes.is_empty() {
            return Ok(());
        }
        let length = self.group.bytes.len();
        let used = self.segment.length() + length as u64;
        if used > self.allocated {
            // Zeros for the groups to come, so that their syncs needn't commit the file's length.
            let room = self.store.segment_bytes.saturating_sub(used);
            let ahead = usize::try_from(room.min(self.store.preallocate_bytes)).unwrap_or(0);
            self.group.bytes.resize(length + ahead, 0);
        }
        let mut written = self.try_write();
        if self.group.bytes.len() > length {
            self.group.bytes.truncate(length);
            if written.is_err() && self.stopped.is_none() {
                // There was no room for the zeros; perhaps there is for the records.
                written = self.try_write();
            }
        }
        written
    }

    fn try_write(&mut self) -> Result<(), AppendError> {
        let (disk, file, end) = (&self.store.disk, &self.segment.disk, self.segment.length());
        if let Err(error) = disk.write_at(file, &self.group.bytes, end) {
            let undone = disk.truncate(file, end).and_then(|()| disk.sync(file));
            self.allocated = end;
            return Err(match undone {
                Ok(()) => write_error(&error),
                Err(undo) => self.stop(&format!(
                    "a write failed ({error}), undoing it too ({undo})"
                )),
            });
        }
        if let Err(error) = disk.sync(file) {
            // The kernel may have dropped the pages: a second sync could succeed without them.
            return Err(self.stop(&format!("a sync failed: {error}")));
        }
        self.allocated = self.allocated.max(end + self.group.bytes.len() as u64);
        Ok(())
    }

    /// Takes away the zeros behind the last record.
    fn trim(&mut self) -> io::Result<()> {
        let end = self.segment.length();
        if self.allocated > end {
            self.store.disk.truncate(&self.segment.disk, end)?;
            self.allocated = end;
            self.store.disk.sync(&self.segment.disk)?;
        }
        Ok(())
    }

    fn stop(&mut self, reason: &str) -> AppendError {
        tracing::error!(reason, "journal stopped for good");
        self.stopped = Some(reason.to_owned());
        AppendError::Stopped {
            reason: reason.to_owned(),
        }
    }

    /// Makes a synced group readable.
    fn publish(&mut self, group: &Group) {
        let Some(last) = group.written.last() else {
            return;
        };
        let lines = group.written.iter().map(|w| Line {
            stream: Arc::clone(&w.stream),
            version: w.note.version,
            sequence: w.note.sequence,
        });
        self.store.index.add(lines);
        for written in &group.written {
            self.segment.note(written.note.sequence, written.offset);
        }
        self.segment
            .set_length(self.segment.length() + group.bytes.len() as u64);
        {
            let mut streams = self
                .store
                .streams
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            for written in &group.written {
                advance(&mut streams, &written.stream, &written.note);
            }
        }
        let hash = group
            .replies
            .iter()
            .rev()
            .find_map(|(_, result)| result.as_ref().ok())
            .map_or(self.head.hash, |appended| appended.hash);
        self.head = Head {
            sequence: last.note.sequence,
            hash,
        };
        self.store.head.send_replace(self.head);
    }

    /// Seals the segment and begins the next one. If there is no room for that, the old one just
    /// grows further.
    fn rotate(&mut self) {
        if let Err(error) = self.trim() {
            self.stop(&format!("the end of a segment was not settled: {error}"));
            return;
        }
        let header = Header {
            kind: self.store.kind.clone(),
            id: FileId {
                first: self.head.sequence + 1,
                generation: 0,
            },
            previous: self.head.hash,
        };
        let folder = self.store.layout.segments();
        let segment = match Segment::create(&*self.store.disk, &folder, header) {
            Ok(segment) => Arc::new(segment),
            Err(WholeError::Unchanged(error)) => {
                tracing::warn!(%error, "journal segment not sealed, will try again");
                return;
            }
            Err(WholeError::Unsettled(error)) => {
                // Whichever segment were written to now, a power cut could leave the other one.
                self.stop(&format!("a new segment's folder was not synced: {error}"));
                return;
            }
        };
        self.allocated = segment.length();
        self.segment = Arc::clone(&segment);
        self.store
            .change_catalog(|catalog| catalog.segments.push(segment));
        if let Err(error) = self.write_mark() {
            tracing::warn!(%error, "journal HEAD not written, the next segment will try again");
        }
    }

    fn write_mark(&self) -> io::Result<()> {
        let mark = Mark {
            head: self.head,
            active: self.segment.id.first,
        };
        head::write(&*self.store.disk, &self.store.layout.head(), &mark)
    }

    fn shut_down(&mut self) {
        self.store.closed.store(true, Ordering::Release);
        if self.stopped.is_none()
            && let Err(error) = self.trim().and_then(|()| self.write_mark())
        {
            tracing::warn!(%error, "journal not closed in order; the next open puts it right");
        }
        self.store.index.close();
        // Wakes whoever waits for the head, so that they see that the journal is closed.
        self.store.head.send_replace(self.head);
    }
}

fn write_error(error: &io::Error) -> AppendError {
    let explanation = error.to_string();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            AppendError::NoSpace { explanation }
        }
        _ => AppendError::Write { explanation },
    }
}
