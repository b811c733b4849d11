//! One shape of work for the journal and its peers: some appenders, each of which waits until its
//! event is on the disk before it appends the next one, and for the peers a writer thread that
//! commits what is queued as one group, as the journal's own does.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use journal::{Context, EventKind, Expected, Journal, Options};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

/// The bytes of an event's payload, about.
pub const PAYLOAD: usize = 300;

#[derive(Debug, Serialize, Deserialize)]
pub struct Event {
    pub number: u64,
    pub text: String,
}

pub fn event(number: u64) -> Event {
    Event {
        number,
        text: "x".repeat(PAYLOAD - 16),
    }
}

pub fn kind() -> EventKind<Event> {
    EventKind::new("bench", 1)
}

pub fn context() -> Context {
    Context {
        epoch: 1,
        traceparent: None,
        at: UNIX_EPOCH,
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// A store that can commit a group durably.
pub trait Peer: Send + 'static {
    fn open(dir: &Path) -> Self;
    /// Appends the values behind number `first` and returns when they are on the disk.
    fn commit(&mut self, first: u64, values: &[Vec<u8>]);
}

/// A file and `fdatasync`: what no store can beat.
pub struct Raw(File, u64);

impl Peer for Raw {
    fn open(dir: &Path) -> Self {
        let path = dir.join("raw");
        Self(
            OpenOptions::new()
                .create_new(true)
                .write(true)
                .open(path)
                .unwrap(),
            0,
        )
    }

    fn commit(&mut self, _first: u64, values: &[Vec<u8>]) {
        let bytes = values.concat();
        self.0.write_all_at(&bytes, self.1).unwrap();
        self.1 += bytes.len() as u64;
        self.0.sync_data().unwrap();
    }
}

/// sled as it has to be used to survive a power cut: `flush` and an `fdatasync` of its file.
pub struct Sled(sled::Db, File);

impl Peer for Sled {
    fn open(dir: &Path) -> Self {
        let db = sled::Config::new()
            .path(dir.join("sled"))
            .cache_capacity(64 << 20)
            .open()
            .unwrap();
        let file = File::open(dir.join("sled/db")).unwrap();
        Self(db, file)
    }

    fn commit(&mut self, first: u64, values: &[Vec<u8>]) {
        let mut batch = sled::Batch::default();
        for (number, value) in (first..).zip(values) {
            batch.insert(&number.to_be_bytes(), value.as_slice());
        }
        self.0.apply_batch(batch).unwrap();
        self.0.flush().unwrap();
        self.1.sync_data().unwrap();
    }
}

pub struct Redb(redb::Database);

const TABLE: redb::TableDefinition<u64, &[u8]> = redb::TableDefinition::new("events");

impl Peer for Redb {
    fn open(dir: &Path) -> Self {
        Self(redb::Database::create(dir.join("redb")).unwrap())
    }

    fn commit(&mut self, first: u64, values: &[Vec<u8>]) {
        let transaction = self.0.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            for (number, value) in (first..).zip(values) {
                table.insert(number, value.as_slice()).unwrap();
            }
        }
        transaction.commit().unwrap();
    }
}

pub struct Fjall(fjall::Database, fjall::Keyspace);

impl Peer for Fjall {
    fn open(dir: &Path) -> Self {
        let database = fjall::Database::builder(dir.join("fjall")).open().unwrap();
        let events = database
            .keyspace("events", fjall::KeyspaceCreateOptions::default)
            .unwrap();
        Self(database, events)
    }

    fn commit(&mut self, first: u64, values: &[Vec<u8>]) {
        let mut batch = self.0.batch();
        for (number, value) in (first..).zip(values) {
            batch.insert(&self.1, number.to_be_bytes(), value.as_slice());
        }
        batch.commit().unwrap();
        self.0.persist(fjall::PersistMode::SyncData).unwrap();
    }
}

pub struct Sqlite(rusqlite::Connection);

impl Peer for Sqlite {
    fn open(dir: &Path) -> Self {
        let connection = rusqlite::Connection::open(dir.join("sqlite")).unwrap();
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .unwrap();
        connection
            .pragma_update(None, "synchronous", "FULL")
            .unwrap();
        connection
            .execute(
                "CREATE TABLE events (number INTEGER PRIMARY KEY, value BLOB)",
                (),
            )
            .unwrap();
        Self(connection)
    }

    fn commit(&mut self, first: u64, values: &[Vec<u8>]) {
        let transaction = self.0.transaction().unwrap();
        {
            let insert = "INSERT INTO events (number, value) VALUES (?1, ?2)";
            let mut statement = transaction.prepare_cached(insert).unwrap();
            for (number, value) in (first as i64..).zip(values) {
                statement.execute((number, value)).unwrap();
            }
        }
        transaction.commit().unwrap();
    }
}

/// Something that events are appended to, one at a time and durably.
pub trait Target: Clone + Send + 'static {
    fn append(&self, appender: usize, number: u64) -> impl Future<Output = ()> + Send;
}

impl Target for Journal<Event> {
    async fn append(&self, appender: usize, number: u64) {
        let events = vec![event(number)];
        let stream = format!("stream-{appender}");
        Journal::append(self, &stream, Expected::Any, context(), events)
            .await
            .unwrap();
    }
}

pub async fn open_journal(dir: &Path) -> Journal<Event> {
    Journal::open(dir.join("journal"), kind(), Options::default())
        .await
        .unwrap()
        .journal
}

/// A peer behind a writer thread with group commit.
#[derive(Clone)]
pub struct Grouped(mpsc::Sender<(Vec<u8>, oneshot::Sender<()>)>);

impl Grouped {
    pub fn open<P: Peer>(dir: &Path) -> Self {
        let mut peer = P::open(dir);
        let (sender, mut queue) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>(1024);
        std::thread::spawn(move || {
            let (mut next, mut callers, mut patience) = (0, 0, Duration::ZERO);
            while let Some(first) = queue.blocking_recv() {
                // The journal's writer gathers a group like this, so its peers may too.
                let started = Instant::now();
                while queue.len() + 1 < callers && started.elapsed() < patience {
                    std::thread::yield_now();
                }
                let started = Instant::now();
                let (mut values, mut replies) = (vec![first.0], vec![first.1]);
                while let Ok((value, reply)) = queue.try_recv() {
                    values.push(value);
                    replies.push(reply);
                }
                peer.commit(next, &values);
                next += values.len() as u64;
                callers = values.len() + queue.len();
                patience = (started.elapsed() / 2).min(Duration::from_micros(250));
                replies
                    .into_iter()
                    .for_each(|reply| reply.send(()).unwrap());
            }
        });
        Self(sender)
    }
}

impl Target for Grouped {
    async fn append(&self, _appender: usize, number: u64) {
        let (reply, answer) = oneshot::channel();
        let mut value = number.to_le_bytes().to_vec();
        value.resize(PAYLOAD, b'x');
        self.0.send((value, reply)).await.unwrap();
        answer.await.unwrap();
    }
}

/// What a run of appends came to.
#[derive(Debug, Clone)]
pub struct Run {
    pub took: Duration,
    /// The latency of each append, in order of size.
    pub latencies: Vec<Duration>,
}

impl Run {
    pub fn percentile(&self, percent: usize) -> Duration {
        self.latencies[(self.latencies.len() * percent / 100).min(self.latencies.len() - 1)]
    }

    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }
}

/// Appends at least `events` events with `appenders` appenders side by side.
pub async fn append_all<T: Target>(target: &T, appenders: usize, events: u64) -> Run {
    let each = events.div_ceil(appenders as u64);
    let started = Instant::now();
    let tasks: Vec<_> = (0..appenders)
        .map(|appender| {
            let target = target.clone();
            tokio::spawn(async move {
                let mut latencies = Vec::with_capacity(usize::try_from(each).unwrap());
                for number in 0..each {
                    let begun = Instant::now();
                    target.append(appender, number).await;
                    latencies.push(begun.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    let took = started.elapsed();
    latencies.sort_unstable();
    Run { took, latencies }
}

/// `batches` batches of `size` records, one after the other, on a bare file.
pub fn raw_batches(dir: &Path, size: usize, batches: u64) -> Run {
    let mut raw = Raw::open(dir);
    let values = vec![vec![b'x'; PAYLOAD]; size];
    let started = Instant::now();
    let mut latencies = Vec::new();
    for batch in 0..batches {
        let begun = Instant::now();
        raw.commit(batch, &values);
        latencies.extend(std::iter::repeat_n(begun.elapsed(), size));
    }
    let took = started.elapsed();
    latencies.sort_unstable();
    Run { took, latencies }
}

/// The bytes on the disk below a folder.
pub fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata().unwrap() {
            data if data.is_dir() => disk_bytes(&entry.path()),
            data => data.blocks() * 512,
        })
        .sum()
}
