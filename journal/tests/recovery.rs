//! What happens to a store between two openings, and what `open` makes of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use journal::{Head, OpenError, Options, Repair};
use support::{Door, all, append, events, fill, open, segments, small, try_open, unlocked};

/// The files of a journal as they are on the disk while it is open: as after a kill.
fn killed(live: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("segments")).unwrap();
    fs::copy(live.join("HEAD"), dir.path().join("HEAD")).unwrap();
    for path in segments(live) {
        fs::copy(
            &path,
            dir.path().join("segments").join(path.file_name().unwrap()),
        )
        .unwrap();
    }
    dir
}

fn last_segment(dir: &Path) -> PathBuf {
    segments(dir).pop().unwrap()
}

/// Changes a file's content.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn damage(error: &OpenError) -> (PathBuf, u64) {
    match error {
        OpenError::Damaged(damage) => (damage.path.clone(), damage.sequence),
        other => panic!("not damage: {other}"),
    }
}

/// The text that every refusal has to have.
fn says_nothing_was_changed(error: &OpenError) {
    assert!(error.to_string().contains("nothing was changed"), "{error}");
}

#[tokio::test]
async fn a_torn_tail_is_cut_back_and_reported() {
    let live = tempfile::tempdir().unwrap();
    let journal = open(live.path()).await.journal;
    fill(&journal, 5).await;
    let dir = killed(live.path());
    let whole = fs::metadata(last_segment(dir.path())).unwrap().len();
    for tail in [
        b"JREC\x93\0\0\0\x01\0".to_vec(),
        [vec![0; 3000], vec![7]].concat(),
        b"JREC garbage".repeat(20),
    ] {
        edit(&last_segment(dir.path()), |bytes| bytes.extend(&tail));
        let opened = open(dir.path()).await;
        assert!(opened.report.repairs.contains(&Repair::TornTail {
            path: last_segment(dir.path()),
            offset: whole,
            bytes: tail.len() as u64,
            sequence: 6
        }));
        assert_eq!(all(&opened.journal), all(&journal));
        opened.journal.close().await;
        let again = open(dir.path()).await;
        assert_eq!(again.report.repairs, []);
        again.journal.close().await;
    }
    let journal = open(dir.path()).await.journal;
    assert_eq!(
        append(&journal, "front", vec![Door::Locked])
            .await
            .global_sequence,
        6
    );
}

#[tokio::test]
async fn zeros_behind_the_last_record_are_nothing_to_report() {
    let live = tempfile::tempdir().unwrap();
    let journal = open(live.path()).await.journal;
    fill(&journal, 5).await;
    let dir = killed(live.path());
    let whole = fs::read(last_segment(dir.path())).unwrap();
    edit(&last_segment(dir.path()), |bytes| bytes.extend([0; 3000]));
    let opened = open(dir.path()).await;
    assert_eq!(
        opened.report.repairs,
        [Repair::IndexRefilled { records: 5 }]
    );
    assert_eq!(all(&opened.journal), all(&journal));
    opened.journal.close().await;
    assert_eq!(fs::read(last_segment(dir.path())).unwrap(), whole);
}

#[tokio::test]
async fn an_append_is_kept_as_a_whole_or_not_at_all() {
    let live = tempfile::tempdir().unwrap();
    let journal = open(live.path()).await.journal;
    append(&journal, "front", vec![unlocked(1)]).await;
    let before = fs::metadata(last_segment(live.path())).unwrap().len();
    append(
        &journal,
        "front",
        vec![unlocked(2), unlocked(3), unlocked(4)],
    )
    .await;
    let after = fs::metadata(last_segment(live.path())).unwrap().len();
    for length in (before..after).step_by(7) {
        let dir = killed(live.path());
        edit(&last_segment(dir.path()), |bytes| {
            bytes.truncate(length.try_into().unwrap())
        });
        let opened = open(dir.path()).await;
        assert_eq!(
            events(&opened.journal, "front"),
            [unlocked(1)],
            "length {length}"
        );
        assert_eq!(
            fs::metadata(last_segment(dir.path())).unwrap().len(),
            before
        );
    }
}

#[tokio::test]
async fn a_flipped_bit_is_damage_and_nothing_is_changed() {
    let live = tempfile::tempdir().unwrap();
    let journal = open(live.path()).await.journal;
    fill(&journal, 60).await;
    let dir = killed(live.path());
    let paths = segments(dir.path());
    assert!(paths.len() > 2);
    // In a sealed segment, in a header, and in the last segment before its last group.
    for (path, offset) in [
        (&paths[0], 700),
        (&paths[1], 30),
        (paths.last().unwrap(), 140),
    ] {
        edit(path, |bytes| bytes[offset] ^= 1);
        let before = fs::read(path).unwrap();
        let error = try_open(dir.path(), small()).await.unwrap_err();
        assert_eq!(damage(&error).0, *path);
        says_nothing_was_changed(&error);
        assert_eq!(fs::read(path).unwrap(), before);
        edit(path, |bytes| bytes[offset] ^= 1);
    }
    open(dir.path()).await;
}

#[tokio::test]
async fn in_a_closed_journal_the_last_record_is_protected_too() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 5).await;
    journal.close().await;
    edit(&last_segment(dir.path()), |bytes| {
        *bytes.last_mut().unwrap() ^= 1
    });
    let error = try_open(dir.path(), small()).await.unwrap_err();
    assert_eq!(damage(&error).1, 5);
}

#[tokio::test]
async fn missing_and_empty_files_are_refused_by_name() {
    let live = tempfile::tempdir().unwrap();
    let journal = open(live.path()).await.journal;
    fill(&journal, 60).await;
    journal.close().await;
    let count = segments(live.path()).len();
    for at in 0..count {
        for remove in [true, false] {
            let dir = killed(live.path());
            let path = segments(dir.path())[at].clone();
            if remove {
                fs::remove_file(&path).unwrap()
            } else {
                edit(&path, Vec::clear)
            }
            let error = try_open(dir.path(), small()).await.unwrap_err();
            says_nothing_was_changed(&error);
            damage(&error);
        }
    }
    let dir = killed(live.path());
    segments(dir.path())
        .iter()
        .for_each(|path| fs::remove_file(path).unwrap());
    let error = try_open(dir.path(), small()).await.unwrap_err();
    assert!(
        error.to_string().contains("the segments are gone"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_or_unreadable_head_file_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 5).await;
    journal.close().await;
    let head = dir.path().join("HEAD");
    let good = fs::read(&head).unwrap();
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    for (content, reason) in [
        (None, "it was missing"),
        (Some(vec![]), "it was not readable"),
        (Some(flipped), "it was not readable"),
    ] {
        match content {
            Some(content) => fs::write(&head, content).unwrap(),
            None => fs::remove_file(&head).unwrap(),
        }
        let opened = open(dir.path()).await;
        assert_eq!(opened.report.repairs, [Repair::HeadRewritten { reason }]);
        opened.journal.close().await;
        assert_eq!(fs::read(&head).unwrap(), good);
    }
}

#[tokio::test]
async fn leftovers_of_a_crash_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 2).await;
    journal.close().await;
    let leftovers = [
        dir.path().join("HEAD.tmp"),
        dir.path().join("segments/x.tmp"),
    ];
    leftovers
        .iter()
        .for_each(|path| fs::write(path, b"half").unwrap());
    let opened = open(dir.path()).await;
    let expected = leftovers.clone().map(|path| Repair::Unfinished { path });
    assert_eq!(opened.report.repairs, expected);
    assert!(leftovers.iter().all(|path| !path.exists()));
}

#[tokio::test]
async fn a_journal_behind_or_beside_its_known_head_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 5).await;
    let fifth = journal.head();
    fill(&journal, 5).await;
    let tenth = journal.head();
    let early = killed(dir.path());
    journal.close().await;
    let with = |known_head: Head| Options {
        known_head: Some(known_head),
        ..small()
    };
    for known in [fifth, tenth] {
        try_open(dir.path(), with(known))
            .await
            .unwrap()
            .journal
            .close()
            .await;
    }
    let wrong = Head {
        sequence: 10,
        ..fifth
    };
    let error = try_open(dir.path(), with(wrong)).await.unwrap_err();
    assert!(
        matches!(error, OpenError::Diverged { found, .. } if found == tenth.hash),
        "{error}"
    );

    // Emptied, and cut short without a trace: both are sound in themselves.
    let empty = tempfile::tempdir().unwrap();
    let error = try_open(empty.path(), with(tenth)).await.unwrap_err();
    assert!(
        matches!(error, OpenError::Behind { found, .. } if found.sequence == 0),
        "{error}"
    );
    edit(&last_segment(early.path()), |bytes| {
        bytes.truncate(bytes.len() - 1)
    });
    let error = try_open(early.path(), with(tenth)).await.unwrap_err();
    assert!(
        matches!(error, OpenError::Behind { found, .. } if found.sequence == 9),
        "{error}"
    );
    assert!(error.to_string().contains("record 10"), "{error}");
}

#[tokio::test]
async fn newer_formats_are_refused_with_an_explanation() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 2).await;
    journal.close().await;
    let reseal = |bytes: &mut Vec<u8>, range: std::ops::Range<usize>| {
        let sum = crc32fast::hash(&bytes[range.start..range.end - 4]);
        bytes[range.end - 4..range.end].copy_from_slice(&sum.to_le_bytes());
    };
    let segment = last_segment(dir.path());
    let length = usize::from(fs::read(&segment).unwrap()[132]);
    let cases = [
        (segment.clone(), 8, 0..128),
        (segment, 136, 128..128 + length),
        (dir.path().join("HEAD"), 8, 0..68),
    ];
    for (path, at, sealed) in cases {
        let good = fs::read(&path).unwrap();
        edit(&path, |bytes| {
            bytes[at] = 9;
            reseal(bytes, sealed);
        });
        let error = try_open(dir.path(), small()).await.unwrap_err();
        let is_newer = matches!(&error, OpenError::NewerFormat { path: named, found: 9, supported: 1 }
            if *named == path);
        assert!(is_newer, "{error}");
        fs::write(&path, good).unwrap();
    }
    open(dir.path()).await;
}

#[tokio::test]
async fn whatever_happens_to_the_index_it_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 400).await;
    let expected = (all(&journal), events(&journal, "front"));
    journal.close().await;
    let index = dir.path().join("index");
    let db = dir.path().join("index/db");
    let inflict = |name: &str| match name {
        "deleted" => fs::remove_dir_all(&index).unwrap(),
        "cut" => edit(&db, |bytes| bytes.truncate(64)),
        "zeroed" => edit(&db, |bytes| bytes.fill(0)),
        "no database" => fs::remove_file(&db).unwrap(),
        "no configuration" => fs::write(index.join("conf"), b"junk").unwrap(),
        "flipped" => edit(&db, |bytes| {
            bytes.iter_mut().step_by(501).for_each(|b| *b ^= 8)
        }),
        other => panic!("{other}"),
    };
    for name in [
        "deleted",
        "cut",
        "zeroed",
        "no database",
        "no configuration",
        "flipped",
    ] {
        inflict(name);
        let opened = open(dir.path()).await;
        let mended = opened.report.repairs.iter().any(|repair| {
            matches!(
                repair,
                Repair::IndexRebuilt { .. } | Repair::IndexRefilled { .. }
            )
        });
        // sled doesn't need its configuration for everything.
        assert!(
            mended || name == "no configuration",
            "{name}: {:?}",
            opened.report.repairs
        );
        opened.journal.verify().unwrap();
        assert_eq!(
            (all(&opened.journal), events(&opened.journal, "front")),
            expected,
            "{name}"
        );
        opened.journal.close().await;
        let again = open(dir.path()).await;
        assert_eq!(again.report.repairs, [], "{name}");
        again.journal.close().await;
    }
}

#[tokio::test]
async fn an_index_that_does_not_open_in_time_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 9).await;
    journal.close().await;
    let hurried = Options {
        open_deadline: std::time::Duration::ZERO,
        ..small()
    };
    let opened = try_open(dir.path(), hurried).await.unwrap();
    append(&opened.journal, "front", vec![Door::Locked]).await;
    assert_eq!(events(&opened.journal, "front").len(), 6);
    opened.journal.close().await;
    assert_eq!(events(&open(dir.path()).await.journal, "front").len(), 6);
}

#[tokio::test]
async fn a_live_copy_of_the_segments_is_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let writer = {
        let journal = journal.clone();
        tokio::spawn(async move { fill(&journal, 300).await })
    };
    let mut copies = 0;
    while !writer.is_finished() || copies == 0 {
        let before = journal.head();
        let copy = killed(dir.path());
        let known = Options {
            known_head: Some(before),
            ..small()
        };
        let opened = try_open(copy.path(), known).await.unwrap();
        assert!(opened.journal.head().sequence >= before.sequence);
        copies += 1;
    }
    writer.await.unwrap();
}
