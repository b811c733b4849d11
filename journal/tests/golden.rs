//! The files of every format version ever written stay readable, and today's are written byte by
//! byte as `FORMAT.md` says.
//!
//! `UPDATE_GOLDEN=1 cargo test -p journal --test golden` writes the files of a *new* version; those
//! of a released one never change.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use journal::{Context, Expected, Repair};
use support::{Door, all, at, small, try_open, unlocked};

const FILES: [&str; 3] = [
    "HEAD",
    "segments/00000000000000000001.0000.seg",
    "segments/00000000000000000004.0000.seg",
];

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(version)
}

fn expected_events() -> Vec<(&'static str, u64, Door)> {
    vec![
        (
            "front",
            1,
            Door::Installed {
                place: "porch".into(),
            },
        ),
        ("front", 2, unlocked(4711)),
        ("Küche", 1, Door::Locked),
        ("front", 3, Door::Note("oiled".into())),
    ]
}

/// Writes the journal that the golden files hold.
async fn write(dir: &Path) -> String {
    let options = journal::Options {
        segment_bytes: 500,
        ..small()
    };
    let journal = try_open(dir, options).await.unwrap().journal;
    let plain = |seconds| Context {
        epoch: 7,
        traceparent: None,
        at: at(seconds),
    };
    let traced = Context {
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..plain(1)
    };
    let [first, second, third, fourth] = expected_events().try_into().unwrap();
    journal
        .append("front", Expected::NoStream, traced, vec![first.2, second.2])
        .await
        .unwrap();
    journal
        .append("Küche", Expected::Any, plain(2), vec![third.2])
        .await
        .unwrap();
    journal
        .append("front", Expected::Exactly(2), plain(0), vec![fourth.2])
        .await
        .unwrap();
    let head = journal.head().hash.to_string();
    let mut export = Vec::new();
    journal.export(&mut export).unwrap();
    journal.close().await;
    fs::write(dir.join("export.jsonl"), export).unwrap();
    head
}

#[tokio::test]
async fn todays_files_are_the_golden_ones() {
    let dir = tempfile::tempdir().unwrap();
    let head = write(dir.path()).await;
    fs::write(dir.path().join("head.txt"), head).unwrap();
    for name in FILES.into_iter().chain(["head.txt", "export.jsonl"]) {
        let written = fs::read(dir.path().join(name)).unwrap();
        let path = golden("v1").join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &written).unwrap();
        }
        let pinned = fs::read(&path).unwrap();
        assert!(
            written == pinned,
            "{name} is not what it was: the format has changed"
        );
    }
    assert_eq!(support::segments(dir.path()).len(), 2);
}

fn copy(version: &str, files: &[&str], to: &Path) {
    fs::create_dir(to.join("segments")).unwrap();
    for name in files {
        fs::copy(golden(version).join(name), to.join(name)).unwrap();
    }
}

#[tokio::test]
async fn version_1_is_readable() {
    let dir = tempfile::tempdir().unwrap();
    copy("v1", &FILES, dir.path());
    let opened = try_open(dir.path(), small()).await.unwrap();
    assert_eq!(
        opened.report.repairs,
        [Repair::IndexRefilled { records: 4 }]
    );
    let read = all(&opened.journal);
    let events: Vec<_> = read
        .iter()
        .map(|e| (e.stream.as_str(), e.version, e.event.clone()))
        .collect();
    assert_eq!(events, expected_events());
    assert!(read[0].traceparent.is_some() && read[2].traceparent.is_none());
    assert_eq!(read[3].at, at(0));
    assert_eq!(
        opened.journal.head().hash.to_string(),
        fs::read_to_string(golden("v1").join("head.txt"))
            .unwrap()
            .trim()
    );
}

/// The same journal after `front` was archived. How well zlib compresses may change, so these files
/// are only read.
const COMPACTED: [&str; 6] = [
    "HEAD",
    "segments/00000000000000000001.0001.arc",
    "segments/00000000000000000001.0001.seg",
    "segments/00000000000000000004.0001.arc",
    "segments/00000000000000000004.0001.seg",
    "segments/00000000000000000005.0000.seg",
];

#[tokio::test]
async fn version_1_is_readable_when_compacted() {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).await;
        let journal = try_open(dir.path(), small()).await.unwrap().journal;
        journal.compact(|info| info.name == "front").await.unwrap();
        journal.close().await;
        fs::create_dir_all(golden("v1-compacted").join("segments")).unwrap();
        for name in COMPACTED {
            fs::copy(dir.path().join(name), golden("v1-compacted").join(name)).unwrap();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    copy("v1-compacted", &COMPACTED, dir.path());
    let journal = try_open(dir.path(), small()).await.unwrap().journal;
    let read = all(&journal);
    let events: Vec<_> = read
        .iter()
        .map(|e| (e.stream.as_str(), e.version, e.event.clone()))
        .collect();
    assert_eq!(events, expected_events());
    let verified = journal.verify().unwrap();
    assert_eq!((verified.records, verified.archives), (4, 2));
    let mut export = Vec::new();
    journal.export(&mut export).unwrap();
    assert_eq!(export, fs::read(golden("v1").join("export.jsonl")).unwrap());
}
