//! The disk says no.

use super::*;
use crate::{AppendError, Expected, OpenError};

async fn append(journal: &Journal<String>, text: &str) -> Result<u64, AppendError> {
    let appended = journal
        .append("front", Expected::Any, context(), vec![text.to_owned()])
        .await?;
    Ok(appended.stream_version)
}

#[tokio::test]
async fn a_full_disk_is_a_clean_error_and_the_journal_goes_on_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let journal = open(dir.path(), &disk);
    append(&journal, "one").await.unwrap();
    disk.fail("write", ".seg", io::ErrorKind::StorageFull);
    for _ in 0..2 {
        let error = append(&journal, &"x".repeat(500)).await.unwrap_err();
        assert!(matches!(error, AppendError::NoSpace { .. }), "{error}");
    }
    assert_eq!(contents(&journal), ["one"]);
    disk.heal();
    assert_eq!(append(&journal, "two").await.unwrap(), 2);
    journal.verify().unwrap();
    journal.close().await;
    assert_eq!(contents(&open(dir.path(), &disk)), ["one", "two"]);
}

#[tokio::test]
async fn a_full_disk_that_cannot_be_cut_back_stops_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let journal = open(dir.path(), &disk);
    append(&journal, "one").await.unwrap();
    disk.fail("write", ".seg", io::ErrorKind::StorageFull);
    disk.fail("truncate", ".seg", io::ErrorKind::Other);
    assert!(matches!(
        append(&journal, "two").await,
        Err(AppendError::Stopped { .. })
    ));
    disk.heal();
    assert!(matches!(
        append(&journal, "three").await,
        Err(AppendError::Stopped { .. })
    ));
    drop(journal);
    let journal = open(dir.path(), &disk);
    assert_eq!(contents(&journal), ["one"]);
    assert_eq!(append(&journal, "four").await.unwrap(), 2);
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_ever_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let journal = open(dir.path(), &disk);
    append(&journal, "one").await.unwrap();
    disk.fail("sync", ".seg", io::ErrorKind::Other);
    assert!(matches!(
        append(&journal, "two").await,
        Err(AppendError::Stopped { .. })
    ));
    disk.heal();
    let before = disk.ops().len();
    assert!(matches!(
        append(&journal, "three").await,
        Err(AppendError::Stopped { .. })
    ));
    assert_eq!(
        contents(&journal),
        ["one"],
        "what is not known to be on the disk is not shown"
    );
    journal.close().await;
    assert_eq!(disk.ops().len(), before);
    // The outcome was unknown; this disk had written it after all.
    assert_eq!(contents(&open(dir.path(), &disk)), ["one", "two"]);
}

#[tokio::test]
async fn a_full_disk_while_rotating_only_delays_the_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let journal = open(dir.path(), &disk);
    disk.fail("write", ".tmp", io::ErrorKind::StorageFull);
    for version in 1..=8 {
        assert_eq!(append(&journal, &"x".repeat(600)).await.unwrap(), version);
    }
    let segments = || {
        std::fs::read_dir(dir.path().join("segments"))
            .unwrap()
            .count()
    };
    assert_eq!(segments(), 1);
    disk.heal();
    append(&journal, "y").await.unwrap();
    assert_eq!(segments(), 2);
    assert_eq!(append(&journal, "z").await.unwrap(), 10);
    journal.verify().unwrap();
    journal.close().await;
    assert_eq!(contents(&open(dir.path(), &disk)).len(), 10);
}

#[tokio::test]
async fn a_rotation_whose_folder_sync_fails_stops_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let journal = open(dir.path(), &disk);
    disk.fail("sync_dir", "segments", io::ErrorKind::Other);
    let mut written = 0;
    let error = loop {
        match append(&journal, &"x".repeat(600)).await {
            Ok(version) => written = version,
            Err(error) => break error,
        }
        assert!(written < 9, "it was never rotated");
    };
    assert!(matches!(error, AppendError::Stopped { .. }), "{error}");
    drop(journal);
    disk.heal();
    let journal = open(dir.path(), &disk);
    assert_eq!(contents(&journal).len() as u64, written);
    append(&journal, "y").await.unwrap();
}

#[tokio::test]
async fn a_read_only_folder_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    for (name, kind) in [
        ("create", io::ErrorKind::ReadOnlyFilesystem),
        ("rename", io::ErrorKind::PermissionDenied),
    ] {
        let disk = Arc::new(TestDisk::default());
        disk.fail(name, "", kind);
        let error =
            Journal::open_on(dir.path().into(), super::kind(), &options(), disk).unwrap_err();
        assert!(matches!(error, OpenError::NotWritable { .. }), "{error}");
        assert!(
            error.to_string().contains("this process may write to"),
            "{error}"
        );
    }
    open(dir.path(), &Arc::default());
}

#[tokio::test]
async fn without_its_index_a_journal_does_everything() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let journal = open(dir.path(), &disk);
    append(&journal, "one").await.unwrap();
    journal.give_up_index("for a test");
    append(&journal, "two").await.unwrap();
    append(&journal, "three").await.unwrap();
    let read: Vec<_> = journal
        .read("front", 2)
        .unwrap()
        .map(|e| e.unwrap().event)
        .collect();
    assert_eq!(read, ["two", "three"]);
    assert!(matches!(
        journal.verify(),
        Err(crate::VerifyError::Index(_))
    ));
    journal.close().await;
    let opened = Journal::open_on(dir.path().into(), kind(), &options(), disk).unwrap();
    assert!(!opened.report.repairs.is_empty());
    opened.journal.verify().unwrap();
}

#[tokio::test]
async fn a_full_disk_while_compacting_leaves_everything_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let journal = open(dir.path(), &disk);
    for _ in 0..12 {
        append(&journal, &"x".repeat(600)).await.unwrap();
    }
    let before = contents(&journal);
    for (name, path) in [
        ("write", ".tmp"),
        ("rename", ".tmp"),
        ("sync_dir", "segments"),
    ] {
        disk.fail(name, path, io::ErrorKind::StorageFull);
        let error = journal.compact(|_| true).await.unwrap_err();
        assert!(
            matches!(error, crate::MaintenanceError::Io { .. }),
            "{error}"
        );
        disk.heal();
        assert_eq!(contents(&journal), before, "{name}");
        journal.verify().unwrap();
    }
    assert!(journal.compact(|_| true).await.unwrap().records > 0);
    assert_eq!(contents(&journal), before);
    journal.verify().unwrap();
    journal.close().await;
    assert_eq!(contents(&open(dir.path(), &disk)), before);
}

#[tokio::test]
async fn zeros_are_written_ahead_and_taken_away_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(TestDisk::default());
    let options = Options {
        preallocate_bytes: 900,
        ..options()
    };
    let journal = open_with(dir.path(), &disk, &options);
    let length = || {
        let files = std::fs::read_dir(dir.path().join("segments")).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum::<u64>()
    };
    append(&journal, "one").await.unwrap();
    assert_eq!(length(), journal.usage().segment_bytes + 900);
    append(&journal, "two").await.unwrap();
    assert!(
        length() < journal.usage().segment_bytes + 900,
        "the second one went into the zeros"
    );
    disk.fail("write", ".seg", io::ErrorKind::StorageFull);
    let error = append(&journal, "three").await.unwrap_err();
    assert!(matches!(error, AppendError::NoSpace { .. }), "{error}");
    assert_eq!(length(), journal.usage().segment_bytes);
    disk.heal();
    append(&journal, "four").await.unwrap();
    // As after a kill: the zeros are there, and nobody minds.
    let bytes = std::fs::read_dir(dir.path().join("segments"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let (name, content) = (bytes.file_name(), std::fs::read(bytes.path()).unwrap());
    journal.close().await;
    std::fs::write(dir.path().join("segments").join(name), content).unwrap();
    let opened = Journal::open_on(dir.path().into(), kind(), &options, disk.clone()).unwrap();
    assert_eq!(opened.report.repairs, []);
    for _ in 0..6 {
        append(&opened.journal, &"x".repeat(600)).await.unwrap();
    }
    opened.journal.verify().unwrap();
    assert!(opened.journal.usage().segments > 1);
    opened.journal.clone().close().await;
    assert_eq!(length(), opened.journal.usage().segment_bytes);
    assert_eq!(contents(&open(dir.path(), &disk)).len(), 9);
}
