//! The sled index: where each version of each stream lies in the segments.
//!
//! The index holds nothing that the segments don't, so any fault in it costs time and never an
//! event: a fault at open means that it is rebuilt, a fault later that readers do without it. sled
//! is kept at arm's length: it is opened and scanned on a thread of its own with a deadline, its
//! panics are caught, and what it returns is compared with the segments.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use crate::bytes::Fields;
use crate::segment::FileId;

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) sequence: u64,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// One line of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) stream: &'a str,
    pub(crate) version: u64,
    pub(crate) pointer: Pointer,
}

/// A fingerprint of many lines that doesn't depend on their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Census {
    pub(crate) lines: u64,
    sum: u64,
    /// The highest global sequence among them.
    pub(crate) highest: u64,
}

impl Census {
    pub(crate) fn count(&mut self, line: Line<'_>) {
        self.count_raw(&key(line.stream, line.version), &value(&line.pointer));
        self.highest = self.highest.max(line.pointer.sequence);
    }

    fn count_raw(&mut self, key: &[u8], value: &[u8]) {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(key);
        hasher.update(value);
        self.lines += 1;
        // The multiplier spreads the 32 bits, so that two swapped lines don't cancel out.
        let spread = (u64::from(hasher.finalize()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = self.sum.wrapping_add(spread ^ (spread >> 29));
    }
}

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

fn key(stream: &str, version: u64) -> Vec<u8> {
    // A name has no control characters, so the zero byte ends it without ambiguity.
    let mut key = Vec::with_capacity(stream.len() + 9);
    key.extend_from_slice(stream.as_bytes());
    key.push(0);
    key.extend_from_slice(&version.to_be_bytes());
    key
}

fn value(pointer: &Pointer) -> [u8; 32] {
    let mut value = [0; 32];
    let fields = pointer
        .sequence
        .to_le_bytes()
        .into_iter()
        .chain(pointer.file.first.to_le_bytes())
        .chain(pointer.offset.to_le_bytes())
        .chain(pointer.file.generation.to_le_bytes())
        .chain(pointer.length.to_le_bytes());
    for (byte, field) in value.iter_mut().zip(fields) {
        *byte = field;
    }
    value
}

fn parse_value(value: &[u8]) -> Option<Pointer> {
    let mut fields = Fields(value);
    let sequence = fields.u64()?;
    let first = fields.u64()?;
    let offset = fields.u64()?;
    let generation = fields.u32()?;
    let length = fields.u32()?;
    let file = FileId { first, generation };
    fields.0.is_empty().then_some(Pointer {
        sequence,
        file,
        offset,
        length,
    })
}

fn parse_version(key: &[u8]) -> Option<u64> {
    key.last_chunk::<8>()
        .map(|bytes| u64::from_be_bytes(*bytes))
}

/// An open index.
#[derive(Debug)]
pub(crate) struct Index {
    db: RwLock<Option<sled::Db>>,
    broken: AtomicBool,
}

impl Index {
    /// Opens the index in `path` (creating an empty one) and counts its lines.
    pub(crate) fn open(
        path: &Path,
        cache_bytes: u64,
        deadline: Duration,
    ) -> Result<(Self, Census), IndexFault> {
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
        Ok((
            Self {
                db: RwLock::new(Some(db)),
                broken: AtomicBool::new(false),
            },
            census,
        ))
    }

    /// Runs `action` on the database, unless the index is closed or broken; a fault breaks it.
    fn with<T>(
        &self,
        action: impl FnOnce(&sled::Db) -> Result<T, IndexFault>,
    ) -> Result<T, IndexFault> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let db = db
            .as_ref()
            .filter(|_| !self.is_broken())
            .ok_or(IndexFault::Broken)?;
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

    /// Adds lines, all or none.
    pub(crate) fn add<'a>(&self, lines: impl Iterator<Item = Line<'a>>) -> Result<(), IndexFault> {
        self.with(|db| {
            let mut batch = sled::Batch::default();
            for line in lines {
                batch.insert(
                    key(line.stream, line.version),
                    value(&line.pointer).as_slice(),
                );
            }
            db.apply_batch(batch).map_err(fault)
        })
    }

    /// Up to `limit` lines of a stream, with versions in `from..=upto`, in order.
    pub(crate) fn lookup(
        &self,
        stream: &str,
        from: u64,
        upto: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Pointer)>, IndexFault> {
        self.with(|db| {
            let mut lines = Vec::new();
            for pair in db.range(key(stream, from)..=key(stream, upto)).take(limit) {
                let (key, value) = pair.map_err(fault)?;
                let version = parse_version(&key).ok_or(IndexFault::Line)?;
                lines.push((version, parse_value(&value).ok_or(IndexFault::Line)?));
            }
            Ok(lines)
        })
    }

    /// Counts every line of a record up to `sequence`.
    pub(crate) fn census_upto(&self, sequence: u64) -> Result<Census, IndexFault> {
        self.with(|db| count(db, sequence))
    }

    /// Lets go of sled: flushes it and releases its files.
    pub(crate) fn close(&self) {
        let db = self
            .db
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(db) = db else { return };
        let closed = caught(|| {
            db.flush().map_err(fault)?;
            drop(db);
            Ok(())
        });
        if let Err(fault) = closed {
            tracing::warn!(%fault, "journal index not closed in order; the next open will mend it");
        }
    }
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
        let pointer = parse_value(&value).ok_or(IndexFault::Line)?;
        if pointer.sequence <= upto {
            census.count_raw(&key, &value);
            census.highest = census.highest.max(pointer.sequence);
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn pointer(sequence: u64) -> Pointer {
        let file = FileId {
            first: 1,
            generation: 0,
        };
        Pointer {
            sequence,
            file,
            offset: sequence * 100,
            length: 99,
        }
    }

    fn line(stream: &str, version: u64) -> Line<'_> {
        Line {
            stream,
            version,
            pointer: pointer(version),
        }
    }

    fn open(path: &Path) -> (Index, Census) {
        Index::open(path, 1 << 20, Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn streams_with_a_common_prefix_stay_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (index, _) = open(dir.path());
        index
            .add([line("a", 1), line("a", 300), line("ab", 1), line("a/b", 2)].into_iter())
            .unwrap();
        let versions = |stream: &str, from, upto| -> Vec<u64> {
            let lines = index.lookup(stream, from, upto, 10).unwrap();
            lines.into_iter().map(|(version, _)| version).collect()
        };
        assert_eq!(versions("a", 1, u64::MAX), [1, 300]);
        assert_eq!(versions("ab", 0, u64::MAX), [1]);
        assert_eq!(versions("a", 2, 299), [0; 0]);
        assert_eq!(
            index.lookup("a", 300, 300, 1).unwrap(),
            [(300, pointer(300))]
        );
    }

    #[test]
    fn the_census_survives_reopening_and_ignores_order() {
        let dir = tempfile::tempdir().unwrap();
        let (index, empty) = open(dir.path());
        assert_eq!(empty, Census::default());
        index.add((1..=9).map(|v| line("s", v))).unwrap();
        index.close();
        let (_, found) = open(dir.path());
        let mut expected = Census::default();
        (1..=9).rev().for_each(|v| expected.count(line("s", v)));
        assert_eq!(found, expected);
        expected.count(line("t", 1));
        assert_ne!(found, expected);
    }

    #[test]
    fn a_leftover_generating_file_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let (index, _) = open(dir.path());
        index.add([line("s", 1)].into_iter()).unwrap();
        index.close();
        fs::write(dir.path().join("snap.00000000000000FF.generating"), b"junk").unwrap();
        assert_eq!(open(dir.path()).1.lines, 1);
    }

    #[test]
    fn faults_and_panics_break_the_index_only() {
        let dir = tempfile::tempdir().unwrap();
        let (index, _) = open(dir.path());
        let panicked: Result<(), _> = index.with(|_| panic!("in {}", "sled"));
        assert_eq!(panicked, Err(IndexFault::Panic("in sled".into())));
        assert_eq!(index.lookup("s", 1, 2, 1), Err(IndexFault::Broken));
        index.close();
    }
}
