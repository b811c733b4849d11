//! Every byte flipped, every length cut: an error or a documented repair, never a panic, never other
//! data than what was written.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::recover::segments_only;
use crate::{ChainHash, Expected};

/// A small store, and the hash of every record.
async fn small_store(dir: &Path, close: bool) -> Vec<ChainHash> {
    let scratch = tempfile::tempdir().unwrap();
    let home = if close { dir } else { scratch.path() };
    let journal = open(home, &Arc::default());
    for round in 0..6 {
        let text = "x".repeat(200 * (round % 3));
        let events = vec![text; 1 + round % 2];
        journal
            .append("front", Expected::Any, context(), events)
            .await
            .unwrap();
    }
    let hashes = journal
        .read_all(1)
        .unwrap()
        .map(|item| item.unwrap().hash)
        .collect();
    if close {
        journal.close().await;
    } else {
        copy(home, dir);
    }
    hashes
}

/// Copies all but the index.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("segments")).unwrap();
    for path in files(from) {
        fs::copy(&path, to.join(path.strip_prefix(from).unwrap())).unwrap();
    }
}

/// HEAD and the segments.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir.join("segments"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.push(dir.join("HEAD"));
    paths.sort();
    paths
}

/// Puts every damaged version of every file in place, one after the other, and returns how many
/// were refused. What is accepted must be a prefix of at least `kept` records.
fn sweep(store: &Path, hashes: &[ChainHash], kept: usize) -> (usize, usize) {
    let scratch = super::scratch();
    let (mut refused, mut accepted) = (0, 0);
    let mut look = |what: &str| match segments_only(scratch.path(), "door-lock") {
        Err(_) => refused += 1,
        Ok(found) => {
            assert!(found.len() >= kept, "{what}: {} records", found.len());
            assert!(hashes.starts_with(&found), "{what}");
            accepted += 1;
        }
    };
    for path in files(store) {
        let good = fs::read(&path).unwrap();
        let target = scratch.path().join(path.strip_prefix(store).unwrap());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for at in 0..good.len() {
            for mask in [0x01, 0x80, 0xff] {
                copy(store, scratch.path());
                let mut bad = good.clone();
                bad[at] ^= mask;
                fs::write(&target, bad).unwrap();
                look(&format!("{name}, byte {at} ^ {mask:#x}"));
            }
            copy(store, scratch.path());
            fs::write(&target, &good[..at]).unwrap();
            look(&format!("{name}, cut to {at}"));
        }
        copy(store, scratch.path());
        fs::remove_file(&target).unwrap();
        look(&format!("{name}, removed"));
    }
    (refused, accepted)
}

#[tokio::test]
async fn in_a_closed_store_no_flip_and_no_cut_goes_unnoticed() {
    let dir = super::scratch();
    let hashes = small_store(dir.path(), true).await;
    let (refused, accepted) = sweep(dir.path(), &hashes, hashes.len());
    let head = fs::metadata(dir.path().join("HEAD")).unwrap().len();
    // All that is accepted is a HEAD that can be written again: three flips and a cut per byte, the
    // removal, and the end of each file.
    assert_eq!(accepted as u64, head * 4 + 1);
    assert!(refused > 5000, "{refused}");
}

#[tokio::test]
async fn in_a_killed_store_at_most_the_last_group_is_taken_for_a_torn_tail() {
    let dir = super::scratch();
    let hashes = small_store(dir.path(), false).await;
    // The last append had two records.
    let (refused, accepted) = sweep(dir.path(), &hashes, hashes.len() - 2);
    assert!(refused > 4000 && accepted > 500, "{refused}, {accepted}");
}

#[tokio::test]
async fn whatever_is_flipped_or_cut_in_the_index_nothing_wrong_is_read() {
    let dir = super::scratch();
    small_store(dir.path(), true).await;
    let (store, home) = (super::scratch(), dir.path().join("index"));
    let expected = contents(&open(dir.path(), &Arc::default()));
    let names = |dir: &Path| {
        let paths = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        paths.filter(|path| path.is_file()).collect::<Vec<_>>()
    };
    for path in names(&home) {
        let good = fs::read(&path).unwrap();
        let used = good
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        for at in 0..used {
            for cut in [false, true] {
                let mut bad = good.clone();
                if cut {
                    bad.truncate(at)
                } else {
                    bad[at] ^= 0x41
                }
                copy(dir.path(), store.path());
                let index = store.path().join("index");
                let _ = fs::remove_dir_all(&index);
                fs::create_dir_all(index.join("blobs")).unwrap();
                names(&home).iter().for_each(|path| {
                    fs::copy(path, index.join(path.file_name().unwrap())).unwrap();
                });
                fs::write(index.join(path.file_name().unwrap()), bad).unwrap();
                let journal = open(store.path(), &Arc::default());
                let read: Vec<_> = journal
                    .read("front", 1)
                    .unwrap()
                    .map(|item| item.unwrap().event)
                    .collect();
                assert_eq!(read, expected, "{} at {at}", path.display());
                journal.verify().unwrap();
                journal.close().await;
            }
        }
    }
}
