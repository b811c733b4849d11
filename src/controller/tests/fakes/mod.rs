//! An outside in memory: a cluster with Jumpstarter in it, lab hosts, a journal, a clock, and a
//! crash that can be set to any of the effects on them.

mod cluster;
mod hosts;

pub(super) use cluster::{FakeCluster, Objects};
pub(super) use hosts::FakeHosts;

use crate::controller::ports::*;
use crate::controller::record::Record;
use crate::host::Fence;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::time::Instant;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the world at one effect, as a SIGKILL would: what was to follow never happens.
#[derive(Default)]
pub(super) struct Crash {
    left: AtomicU64,
    pub(super) hit: Notify,
}

impl Crash {
    /// Crashes at the `at`-th place from now, 1 being the next; 0 is never.
    pub(super) fn set(&self, at: u64) {
        self.left.store(at, Ordering::SeqCst);
    }

    /// Whether the crash is still to come.
    pub(super) fn is_due(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    async fn place(&self) {
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                Some(left.saturating_sub(1))
            });
        if before == Ok(1) {
            self.hit.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// A journal in memory. What was appended is there after a crash; an append that the crash hit is
/// there or not.
pub(super) struct FakeJournal {
    pub(super) entries: Mutex<Vec<Entry>>,
    crash: Arc<Crash>,
}

impl FakeJournal {
    pub(super) fn new(crash: &Arc<Crash>) -> Self {
        Self {
            entries: Mutex::default(),
            crash: Arc::clone(crash),
        }
    }
}

impl Journal for Arc<FakeJournal> {
    async fn append(
        &self,
        stream: &str,
        expected: Option<u64>,
        context: Context,
        records: Vec<Record>,
    ) -> Result<u64, JournalError> {
        self.crash.place().await;
        let version = {
            let mut entries = lock(&self.entries);
            let of_stream = entries
                .iter()
                .filter(|entry| entry.stream == stream)
                .count();
            let mut version = u64::try_from(of_stream).unwrap_or(u64::MAX);
            if expected.is_some_and(|expected| expected != version) {
                return Err(JournalError(format!("{stream} is at {version}")));
            }
            for record in records {
                version += 1;
                let (stream, at) = (stream.to_owned(), context.at);
                entries.push(Entry {
                    stream,
                    version,
                    at,
                    record,
                });
            }
            version
        };
        self.crash.place().await;
        Ok(version)
    }

    fn replay(
        &self,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + '_>, JournalError> {
        Ok(Box::new(lock(&self.entries).clone().into_iter().map(Ok)))
    }
}

/// Tokio's paused clock.
#[derive(Clone)]
pub(super) struct FakeClock {
    start: Instant,
    draws: Arc<AtomicU64>,
}

impl FakeClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            draws: Arc::default(),
        }
    }
}

impl Clock for FakeClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) + self.start.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn random(&self) -> u64 {
        self.draws.fetch_add(1, Ordering::SeqCst)
    }
}

/// Always the leader.
pub(super) struct FakeLeadership;

impl Leadership for FakeLeadership {
    fn fence(&self) -> Option<Fence> {
        Some(Fence {
            lease_uid: "lease".into(),
            epoch: 1,
        })
    }
}
