//! The sled index: which global sequence each version of each stream has.
//!
//! The index holds nothing that the segments don't, so any fault in it costs time and never an
//! event: a fault at open means that it is rebuilt, a fault later that readers do without it. sled
//! is kept at arm's length: it is opened and scanned on a thread of its own with a deadline, its
//! panics are caught, and what it returns is compared with the segments.

mod line;
mod recent;

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use line::{CHUNK, chunk_value, key, parse_chunk, parse_key};
pub(crate) use line::{Census, Line};
use recent::{Recent, Runs};

/// Why the index can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IndexFault {
    #[error("sled: {0}")]
    Sled(String),
    #[error("sled panicked: {0}")]
    Panic(String),
    #[error("sled did not finish within {0:?}")]
    Hang(Duration),
    #[error("a line of the index is not valid")]
    Line,
    #[error("{0}")]
    Io(String),
    #[error("the index was given up earlier")]
    Broken,
}

/// An open index.
#[derive(Debug)]
pub(crate) struct Index {
    db: RwLock<Option<sled::Db>>,
    recent: Recent,
    broken: AtomicBool,
    mover: Mutex<Option<JoinHandle<()>>>,
    /// One move at a time: lines must reach sled in their order.
    moving: Mutex<()>,
}

impl Index {
    /// Opens the index in `path` (creating an empty one) and counts its lines.
    pub(crate) fn open(
        path: &Path,
        cache_bytes: u64,
        deadline: Duration,
    ) -> Result<(Arc<Self>, Census), IndexFault> {
        remove_generating(path).map_err(|e| IndexFault::Io(e.to_string()))?;
        let (sender, receiver) = mpsc::channel();
        let folder = path.to_owned();
        let worker = move || {
            // Nobody listens any more when the deadline has passed.
            let _ = sender.send(caught(|| open_and_count(&folder, cache_bytes)));
        };
        thread::Builder::new()
            .name("journal-index".into())
            .spawn(worker)
            .map_err(|e| IndexFault::Io(e.to_string()))?;
        let opened = receiver
            .recv_timeout(deadline)
            .map_err(|_| IndexFault::Hang(deadline))?;
        let (db, census) = opened?;
        Ok((Arc::new(Self::new(Some(db))), census))
    }

    fn new(db: Option<sled::Db>) -> Self {
        Self {
            db: RwLock::new(db),
            recent: Recent::default(),
            broken: AtomicBool::new(false),
            mover: Mutex::default(),
            moving: Mutex::default(),
        }
    }

    /// No index: every lookup says that it is broken.
    pub(crate) fn absent(reason: &str) -> Self {
        let index = Self::new(None);
        index.give_up(reason);
        index
    }

    /// Starts the thread that moves new lines to sled.
    pub(crate) fn start_mover(self: &Arc<Self>) -> io::Result<()> {
        let index = Arc::clone(self);
        let mover = thread::Builder::new()
            .name("journal-index".into())
            .spawn(move || {
                while index.recent.wait_for_work() {
                    // A fault has broken the index, which is all that there is to do about it.
                    let _ = index.settle();
                }
            })?;
        *self.mover.lock().unwrap_or_else(PoisonError::into_inner) = Some(mover);
        Ok(())
    }

    /// Runs `action` on the database, unless the index is closed or broken; a fault breaks it.
    fn with<T>(
        &self,
        action: impl FnOnce(&sled::Db) -> Result<T, IndexFault>,
    ) -> Result<T, IndexFault> {
        if self.is_broken() {
            return Err(IndexFault::Broken);
        }
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let db = db.as_ref().ok_or(IndexFault::Broken)?;
        let done = caught(|| action(db));
        if let Err(fault) = &done {
            self.give_up(&fault.to_string());
        }
        done
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// From now on readers do without the index.
    pub(crate) fn give_up(&self, reason: &str) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            tracing::error!(
                reason,
                "journal index given up until the next open; reads are slower"
            );
        }
    }

    /// Adds lines in the order of their records. They can be looked up at once.
    pub(crate) fn add(&self, lines: impl Iterator<Item = Line>) {
        if !self.is_broken() {
            self.recent.add(lines);
            self.recent.wait_for_room();
        }
    }

    /// Moves to sled what isn't there yet, all or none of it.
    pub(crate) fn settle(&self) -> Result<(), IndexFault> {
        let _turn = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = self.recent.take();
        if runs.is_empty() {
            return Ok(());
        }
        let moved = self.with(|db| db.apply_batch(batch(&runs)).map_err(fault));
        self.recent.done();
        moved
    }

    /// Up to `limit` consecutive lines of a stream, with versions in `from..=upto`, in order; none
    /// if the first of them isn't there.
    pub(crate) fn lookup(
        &self,
        stream: &str,
        from: u64,
        upto: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, IndexFault> {
        // The recent ones first: what isn't among them any more is in sled already.
        let mut lines = self.recent.lookup(stream, from, limit);
        if lines.first().is_none_or(|(version, _)| *version != from) {
            lines = self.with(|db| stored(db, stream, from, upto, limit))?;
        }
        lines.retain(|(version, _)| *version <= upto);
        Ok(lines)
    }

    /// Removes the lines of a stream up to a version.
    pub(crate) fn forget(&self, stream: &str, upto: u64) -> Result<(), IndexFault> {
        self.settle()?;
        // Nothing may be moved in between, it could be what is being forgotten.
        let _turn = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        self.with(|db| {
            let mut batch = sled::Batch::default();
            for pair in db.range(key(stream, 0)..=key(stream, upto)) {
                let (old, value) = pair.map_err(fault)?;
                let (_, first) = parse_key(&old).ok_or(IndexFault::Line)?;
                let chunk = (first..).zip(parse_chunk(&value)?);
                let kept: Vec<_> = chunk.filter(|(version, _)| *version > upto).collect();
                batch.remove(old);
                if let Some((version, _)) = kept.first() {
                    let sequences: Vec<u64> = kept.iter().map(|(_, s)| *s).collect();
                    batch.insert(key(stream, *version), chunk_value(&sequences));
                }
            }
            db.apply_batch(batch).map_err(fault)
        })
    }

    /// Counts every line of a record up to `sequence`.
    pub(crate) fn census_upto(&self, sequence: u64) -> Result<Census, IndexFault> {
        self.settle()?;
        self.with(|db| count(db, sequence))
    }

    /// Lets go of sled: flushes it and releases its files.
    pub(crate) fn close(&self) {
        self.recent.close();
        let mover = self
            .mover
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let ended = mover.is_none_or(|mover| mover.join().is_ok());
        let settled = self.settle();
        let db = self
            .db
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(db) = db else { return };
        let closed = settled.and_then(|()| {
            caught(|| {
                db.flush().map_err(fault)?;
                drop(db);
                Ok(())
            })
        });
        if let Err(fault) = closed {
            tracing::warn!(%fault, ended, "journal index not closed in order; the next open mends it");
        }
    }
}

fn batch(runs: &Runs) -> sled::Batch {
    let mut batch = sled::Batch::default();
    for (stream, (first, sequences)) in runs {
        let versions = (*first..).step_by(CHUNK);
        for (version, chunk) in versions.zip(sequences.chunks(CHUNK)) {
            batch.insert(key(stream, version), chunk_value(chunk));
        }
    }
    batch
}

/// Lines of a stream that are in sled; none if `from` isn't.
fn stored(
    db: &sled::Db,
    stream: &str,
    from: u64,
    upto: u64,
    limit: usize,
) -> Result<Vec<(u64, u64)>, IndexFault> {
    let mut lines = Vec::new();
    let Some(begin) = db.range(key(stream, 0)..=key(stream, from)).next_back() else {
        return Ok(lines);
    };
    let (begin, _) = begin.map_err(fault)?;
    let end = sled::IVec::from(key(stream, upto.max(from)));
    for pair in db.range(begin..=end) {
        let (key, value) = pair.map_err(fault)?;
        let (_, first) = parse_key(&key).ok_or(IndexFault::Line)?;
        let chunk = (first..).zip(parse_chunk(&value)?);
        lines.extend(chunk.filter(|(version, _)| *version >= from));
        if lines.len() >= limit {
            break;
        }
    }
    let consecutive = lines
        .iter()
        .zip(from..)
        .take_while(|((v, _), want)| v == want)
        .count();
    lines.truncate(consecutive);
    Ok(lines)
}

fn fault(error: sled::Error) -> IndexFault {
    IndexFault::Sled(error.to_string())
}

fn open_and_count(path: &Path, cache_bytes: u64) -> Result<(sled::Db, Census), IndexFault> {
    let db = sled::Config::new()
        .path(path)
        .cache_capacity(cache_bytes)
        .mode(sled::Mode::HighThroughput)
        .open()
        .map_err(fault)?;
    let census = count(&db, u64::MAX)?;
    Ok((db, census))
}

fn count(db: &sled::Db, upto: u64) -> Result<Census, IndexFault> {
    let mut census = Census::default();
    for pair in db.iter() {
        let (key, value) = pair.map_err(fault)?;
        let (stream, first) = parse_key(&key).ok_or(IndexFault::Line)?;
        for (version, found) in (first..).zip(parse_chunk(&value)?) {
            if found <= upto {
                census.count(stream, version, found);
            }
        }
    }
    Ok(census)
}

/// Turns a panic into a fault.
fn caught<T>(action: impl FnOnce() -> Result<T, IndexFault>) -> Result<T, IndexFault> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(IndexFault::Panic(text.to_owned()))
    })
}

/// A process killed while sled wrote a snapshot leaves a `*.generating` file behind, with which
/// sled 0.34.7 refuses to open for ever. Without it nothing is lost.
fn remove_generating(path: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let file = entry?.path();
        if file.extension().is_some_and(|e| e == "generating") {
            fs::remove_file(&file)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
