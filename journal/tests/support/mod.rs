//! What the tests share: a door lock's events.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use journal::{
    Appended, Context, Envelope, EventKind, Expected, Journal, OpenError, Opened, Options,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    Installed { place: String },
    Unlocked { by: String, code: u32 },
    Locked,
    Note(String),
}

pub fn kind() -> EventKind<Door> {
    EventKind::new("door-lock", 1)
}

pub fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

pub fn context(seconds: u64) -> Context {
    Context {
        epoch: 7,
        traceparent: None,
        at: at(seconds),
    }
}

pub fn unlocked(code: u32) -> Door {
    Door::Unlocked {
        by: "ada".into(),
        code,
    }
}

/// Small segments, so that tests see several of them, without anything behind the last record.
pub fn small() -> Options {
    Options {
        segment_bytes: 4096,
        preallocate_bytes: 0,
        cache_bytes: 8 << 20,
        ..Options::default()
    }
}

pub async fn try_open(dir: &Path, options: Options) -> Result<Opened<Door>, OpenError> {
    Journal::open(dir, kind(), options).await
}

pub async fn open(dir: &Path) -> Opened<Door> {
    try_open(dir, small()).await.unwrap()
}

pub async fn append(journal: &Journal<Door>, stream: &str, events: Vec<Door>) -> Appended {
    journal
        .append(stream, Expected::Any, context(0), events)
        .await
        .unwrap()
}

/// Appends `count` single events, alternating between two doors.
pub async fn fill(journal: &Journal<Door>, count: u32) {
    for code in 0..count {
        let stream = if code % 2 == 0 { "front" } else { "back" };
        append(journal, stream, vec![unlocked(code)]).await;
    }
}

pub fn events(journal: &Journal<Door>, stream: &str) -> Vec<Door> {
    let items = journal.read(stream, 1).unwrap();
    items.map(|item| item.unwrap().event).collect()
}

pub fn all(journal: &Journal<Door>) -> Vec<Envelope<Door>> {
    journal.read_all(1).unwrap().map(Result::unwrap).collect()
}

/// The segment files, in order.
pub fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir.join("segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}
