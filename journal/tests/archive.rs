//! Compaction and retention: out of the way, and still there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use journal::{
    Expected, Journal, OpenError, ReadError, ReadOnly, Repair, Retention, VerifyError, import,
};
use support::{
    Door, all, append, at, context, events, fill, kind, open, small, try_open, unlocked,
};

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths = support::segments(dir);
    paths.retain(|path| path.extension().unwrap() == extension);
    paths
}

fn exported(journal: &Journal<Door>) -> String {
    let mut output = Vec::new();
    journal.export(&mut output).unwrap();
    String::from_utf8(output).unwrap()
}

/// What a journal shows of itself; compaction must not change it.
fn view(journal: &Journal<Door>) -> impl PartialEq + std::fmt::Debug + use<> {
    let streams = journal.streams().unwrap();
    let each: Vec<_> = streams
        .iter()
        .map(|info| events(journal, &info.name))
        .collect();
    let tails: Vec<_> = streams
        .iter()
        .map(|info| journal.read(&info.name, info.version / 2).unwrap().count())
        .collect();
    let later = journal
        .read_all(77)
        .unwrap()
        .map(Result::unwrap)
        .collect::<Vec<_>>();
    (
        streams,
        each,
        tails,
        later,
        all(journal),
        journal.head(),
        exported(journal),
    )
}

#[tokio::test]
async fn compaction_changes_nothing_that_can_be_seen() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 200).await;
    append(
        &journal,
        "side",
        vec![Door::Note("x".repeat(30_000)), Door::Locked],
    )
    .await;
    fill(&journal, 30).await;
    let before = view(&journal);
    let in_progress = journal.read_all(1).unwrap();
    let mut stream_in_progress = journal.read("front", 1).unwrap();
    stream_in_progress.next().unwrap().unwrap();

    let compacted = journal.compact(|info| info.name != "back").await.unwrap();
    assert_eq!(compacted.records, 117);
    assert!(
        compacted.archive_bytes < compacted.bytes_before - compacted.bytes_after,
        "{compacted:?}"
    );
    assert_eq!(files(dir.path(), "arc").len(), compacted.segments);
    let usage = journal.usage();
    let bytes = |extension| -> u64 {
        let paths = files(dir.path(), extension);
        paths
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .sum()
    };
    assert_eq!(
        (usage.segment_bytes, usage.archive_bytes),
        (bytes("seg"), bytes("arc"))
    );
    assert_eq!(
        (usage.archives, usage.archive_bytes),
        (compacted.segments, compacted.archive_bytes)
    );
    assert_eq!(
        in_progress.map(Result::unwrap).collect::<Vec<_>>(),
        all(&journal)
    );
    assert_eq!(stream_in_progress.map(Result::unwrap).count(), 114);
    assert!(view(&journal) == before, "live");
    let verified = journal.verify().unwrap();
    assert_eq!(
        (verified.records, verified.archives),
        (232, compacted.segments)
    );
    assert_eq!(
        journal
            .compact(|info| info.name != "back")
            .await
            .unwrap()
            .segments,
        0
    );

    let opened = {
        journal.close().await;
        open(dir.path()).await
    };
    assert_eq!(opened.report.repairs, []);
    assert!(view(&opened.journal) == before, "reopened");
    opened.journal.verify().unwrap();
    let reader = ReadOnly::open(dir.path(), kind()).unwrap();
    assert_eq!(
        reader
            .read("front", 1)
            .unwrap()
            .map(|e| e.unwrap().event)
            .collect::<Vec<_>>(),
        events(&opened.journal, "front")
    );
    assert_eq!(reader.streams(), opened.journal.streams().unwrap());
}

#[tokio::test]
async fn an_archived_stream_may_go_on_and_be_archived_again() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 60).await;
    let before = view(&journal);
    journal.compact(|info| info.name == "front").await.unwrap();
    journal.compact(|_| true).await.unwrap();
    assert!(view(&journal) == before);
    let expected = Expected::Exactly(30);
    let next = journal
        .append("front", expected, context(9), vec![Door::Locked])
        .await;
    assert_eq!(next.unwrap().global_sequence, 61);
    journal.compact(|info| info.name == "front").await.unwrap();
    assert_eq!(events(&journal, "front").len(), 31);
    journal.verify().unwrap();
    let export = exported(&journal);
    let copy = tempfile::tempdir().unwrap();
    import(copy.path(), export.as_bytes()).unwrap();
    assert_eq!(exported(&open(copy.path()).await.journal), export);
}

#[tokio::test]
async fn without_its_index_an_archived_journal_is_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 100).await;
    journal.compact(|info| info.name == "front").await.unwrap();
    fill(&journal, 20).await;
    let before = view(&journal);
    journal.close().await;
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    let opened = open(dir.path()).await;
    assert_eq!(
        opened.report.repairs,
        [Repair::IndexRefilled { records: 70 }]
    );
    assert!(view(&opened.journal) == before);
    opened.journal.verify().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_and_reads_go_on_during_a_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 100).await;
    let writer = {
        let journal = journal.clone();
        tokio::spawn(async move { fill(&journal, 200).await })
    };
    let mut rounds = 0;
    while !writer.is_finished() || rounds < 3 {
        let finished = if rounds % 2 == 0 { "front" } else { "back" };
        let (compacted, read) =
            tokio::join!(journal.compact(|info| info.name == finished), async {
                (events(&journal, "front").len(), all(&journal).len())
            });
        compacted.unwrap();
        assert!(read.0 >= 50 && read.1 >= 100);
        rounds += 1;
    }
    writer.await.unwrap();
    assert_eq!(all(&journal).len(), 300);
    assert_eq!(
        events(&journal, "front").len() + events(&journal, "back").len(),
        300
    );
    journal.verify().unwrap();
}

/// The stream `early` is gone, and so many records in all.
fn check_retained(journal: &Journal<Door>, given_up: u64) {
    let streams = journal.streams().unwrap();
    assert_eq!(streams.len(), 1, "{streams:?}");
    let first = streams[0].first;
    assert_eq!((first, streams[0].version), (given_up - 29, 61));
    assert!(
        matches!(journal.read("front", 1), Err(ReadError::Retired { asked: 1, first: f, .. }) if f == first)
    );
    assert_eq!(
        journal
            .read("front", first)
            .unwrap()
            .map(Result::unwrap)
            .count() as u64,
        62 - first
    );
    assert_eq!(all(journal)[0].sequence, given_up + 1);
    assert_eq!(journal.verify().unwrap().records, 91 - given_up);
    assert!(
        exported(journal)
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("{\"gap\":{\"first\":1,")
    );
}

#[tokio::test]
async fn retention_gives_up_the_oldest_archives_only() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    for seconds in 0..90 {
        let stream = ["early", "front"][usize::from(seconds >= 30)];
        journal
            .append(stream, Expected::Any, context(seconds), vec![unlocked(1)])
            .await
            .unwrap();
    }
    journal.compact(|_| true).await.unwrap();
    journal
        .append("front", Expected::Any, context(100), vec![Door::Locked])
        .await
        .unwrap();
    let archives = files(dir.path(), "arc").len();
    assert!(archives > 2);
    assert_eq!(
        journal.retain(Retention::default()).await.unwrap().archives,
        0
    );
    let policy = Retention {
        before: Some(at(60)),
        archive_bytes: None,
    };
    let retained = journal.retain(policy).await.unwrap();
    assert!(retained.archives > 0 && retained.records > 30 && retained.records <= 60);

    let check = |journal: &Journal<Door>| check_retained(journal, retained.records);
    check(&journal);
    journal.close().await;
    let opened = open(dir.path()).await;
    assert_eq!(opened.report.repairs, []);
    check(&opened.journal);
    let copy = tempfile::tempdir().unwrap();
    import(copy.path(), exported(&opened.journal).as_bytes()).unwrap();
    check(&open(copy.path()).await.journal);

    let policy = Retention {
        before: None,
        archive_bytes: Some(0),
    };
    opened.journal.retain(policy).await.unwrap();
    assert_eq!(opened.journal.verify().unwrap().archives, 0);
    assert_eq!(events_from(&opened.journal, 61), [Door::Locked]);
    opened.journal.verify().unwrap();
    // A stream that is forgotten may begin anew.
    let anew = opened
        .journal
        .append("early", Expected::NoStream, context(1), vec![Door::Locked]);
    assert_eq!(anew.await.unwrap().stream_version, 1);
}

fn events_from(journal: &Journal<Door>, version: u64) -> Vec<Door> {
    journal
        .read("front", version)
        .unwrap()
        .map(|item| item.unwrap().event)
        .collect()
}

#[tokio::test]
async fn damage_in_an_archive_is_found_by_verify_and_never_read_as_good() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 12).await;
    journal.compact(|info| info.name == "front").await.unwrap();
    let expected = events(&journal, "front");
    journal.close().await;
    let path = files(dir.path(), "arc")[0].clone();
    let good = fs::read(&path).unwrap();
    let (mut refused, mut found) = (0, 0);
    for (offset, cut) in (0..good.len()).flat_map(|offset| [(offset, false), (offset, true)]) {
        let mut bad = good.clone();
        if cut {
            bad.truncate(offset);
        } else {
            bad[offset] ^= 0x20;
        }
        fs::write(&path, &bad).unwrap();
        match try_open(dir.path(), small()).await {
            Err(OpenError::Damaged(damage)) => {
                assert_eq!(damage.path, path);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
            Ok(opened) => {
                let error = opened.journal.verify().unwrap_err();
                assert!(
                    matches!(error, VerifyError::Damaged(_)),
                    "byte {offset}: {error}"
                );
                let read: Vec<_> = opened.journal.read("front", 1).unwrap().collect();
                let intact: Vec<_> = read
                    .iter()
                    .map_while(|item| item.as_ref().ok())
                    .map(|e| e.event.clone())
                    .collect();
                assert!(expected.starts_with(&intact) && intact.len() < expected.len());
                opened.journal.close().await;
                found += 1;
            }
        }
    }
    assert!(refused > 5 && found > 5, "{refused}, {found}");
    fs::remove_file(&path).unwrap();
    let error = try_open(dir.path(), small()).await.unwrap_err();
    assert!(
        error.to_string().contains("the archive is missing"),
        "{error}"
    );
}

#[tokio::test]
async fn what_an_interrupted_compaction_leaves_is_put_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 40).await;
    let old = files(dir.path(), "seg")[0].clone();
    let content = fs::read(&old).unwrap();
    let before = view(&journal);
    journal.compact(|info| info.name == "front").await.unwrap();
    journal.close().await;
    // Interrupted before the old segment was removed.
    fs::write(&old, &content).unwrap();
    let opened = open(dir.path()).await;
    assert_eq!(
        opened.report.repairs,
        [Repair::Superseded { path: old.clone() }]
    );
    assert!(view(&opened.journal) == before);
    opened.journal.close().await;
    // Interrupted before the new segment was put in place.
    let archive = files(dir.path(), "arc")[0].clone();
    fs::remove_file(archive.with_extension("seg")).unwrap();
    fs::write(&old, &content).unwrap();
    let opened = open(dir.path()).await;
    assert!(opened.report.repairs.contains(&Repair::Unfinished {
        path: archive.clone()
    }));
    assert!(!archive.exists());
    assert!(view(&opened.journal) == before);
    opened.journal.verify().unwrap();
}
