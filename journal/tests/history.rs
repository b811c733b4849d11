//! Following, exporting, importing and setting aside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

use std::fs;
use std::time::Duration;

use journal::{ImportError, Journal, OnDamage, OpenError, Options, ReadOnly, import};
use support::{
    Door, all, append, at, events, fill, kind, open, segments, small, try_open, unlocked,
};

async fn exported(journal: &Journal<Door>) -> Vec<u8> {
    let mut output = Vec::new();
    let exported = journal.export(&mut output).unwrap();
    assert_eq!(exported.head, journal.head());
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_delivers_everything_once_in_order_until_the_journal_closes() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 30).await;
    let mut tail = journal.tail(11).unwrap();
    let mut news = journal.tail(journal.head().sequence + 1).unwrap();
    let follower = tokio::spawn(async move {
        let mut seen = vec![];
        while let Some(item) = tail.next().await {
            seen.push(item.unwrap().sequence);
        }
        seen
    });
    fill(&journal, 100).await;
    assert_eq!(news.next().await.unwrap().unwrap().sequence, 31);
    journal.close().await;
    assert!(follower.await.unwrap().into_iter().eq(11..=130));
    let mut rest = vec![];
    while let Some(item) = news.next().await {
        rest.push(item.unwrap().sequence);
    }
    assert!(rest.into_iter().eq(32..=130));
}

#[tokio::test]
async fn a_tail_waits_and_loses_nothing_when_it_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let mut tail = journal.tail(1).unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(20), tail.next()).await;
    assert!(nothing.is_err());
    append(&journal, "front", vec![unlocked(1), unlocked(2)]).await;
    assert_eq!(tail.next().await.unwrap().unwrap().event, unlocked(1));
    assert_eq!(tail.next().await.unwrap().unwrap().event, unlocked(2));
    drop(journal);
    assert!(tail.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_opener_sees_a_consistent_prefix_beside_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        preallocate_bytes: 1500,
        ..small()
    };
    let journal = try_open(dir.path(), options).await.unwrap().journal;
    fill(&journal, 10).await;
    let writer = {
        let journal = journal.clone();
        tokio::spawn(async move { fill(&journal, 300).await })
    };
    let mut looks = 0;
    while !writer.is_finished() || looks == 0 {
        let before = journal.head().sequence;
        let reader = ReadOnly::open(dir.path(), kind()).unwrap();
        let seen: Vec<_> = reader
            .read_all(1)
            .map(|item| item.unwrap().sequence)
            .collect();
        assert!(seen.len() as u64 >= before);
        assert!(seen.into_iter().eq(1..=reader.head().sequence));
        looks += 1;
    }
    writer.await.unwrap();
    let reader = ReadOnly::open(dir.path(), kind()).unwrap();
    let read: Vec<_> = reader
        .read("front", 3)
        .unwrap()
        .map(|e| e.unwrap().event)
        .collect();
    assert_eq!(read, events(&journal, "front")[2..]);
    assert_eq!(reader.streams(), journal.streams().unwrap());
    assert_eq!(reader.head(), journal.head());
    let mut output = Vec::new();
    reader.export(&mut output).unwrap();
    assert_eq!(output, exported(&journal).await);
}

#[tokio::test]
async fn a_read_only_opener_changes_nothing_and_skips_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 5).await;
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("segments")).unwrap();
    let segment = &segments(dir.path())[0];
    let mut bytes = fs::read(segment).unwrap();
    bytes.truncate(bytes.len() - 3);
    let to = copy
        .path()
        .join("segments")
        .join(segment.file_name().unwrap());
    fs::write(&to, &bytes).unwrap();
    let reader = ReadOnly::open(copy.path(), kind()).unwrap();
    assert_eq!(reader.read_all(1).count(), 4);
    assert_eq!(fs::read(&to).unwrap(), bytes);
    assert_eq!(fs::read_dir(copy.path()).unwrap().count(), 1);
    assert!(ReadOnly::open(copy.path().join("nowhere"), kind()).is_err());
}

#[tokio::test]
async fn an_export_is_deterministic_and_comes_back_identical() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let traced = journal::Context {
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..support::context(3)
    };
    let note = vec![Door::Note("\u{7f}\"\\ ß".into()), Door::Locked];
    journal
        .append("Küche", journal::Expected::Any, traced, note)
        .await
        .unwrap();
    fill(&journal, 40).await;
    let export = exported(&journal).await;
    assert_eq!(export, exported(&journal).await);
    let lines: Vec<serde_json::Value> = export
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 44);
    assert_eq!(lines[0]["journal"]["kind"], "door-lock");
    assert_eq!(lines[2]["record"]["event"], "Locked");
    assert_eq!(lines[43]["end"]["records"], 42);

    let target = tempfile::tempdir().unwrap();
    let imported = import(target.path(), export.as_slice()).unwrap();
    assert_eq!((imported.records, imported.head), (42, journal.head()));
    let opened = try_open(
        target.path(),
        Options {
            known_head: Some(imported.head),
            ..small()
        },
    )
    .await
    .unwrap();
    assert_eq!(all(&opened.journal), all(&journal));
    assert_eq!(exported(&opened.journal).await, export);
    append(&opened.journal, "front", vec![Door::Locked]).await;

    let error = import(target.path(), export.as_slice()).unwrap_err();
    assert!(matches!(error, ImportError::Occupied { .. }));
}

#[tokio::test]
async fn a_changed_export_is_refused_with_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 3).await;
    let export = String::from_utf8(exported(&journal).await).unwrap();
    let lines: Vec<&str> = export.lines().collect();
    let hole = [lines[0], lines[1], lines[3], lines[4]].join("\n");
    let swapped = [lines[0], lines[2], lines[1], lines[3], lines[4]].join("\n");
    let cut = lines[..4].join("\n");
    let extra = format!("{export}{}\n", lines[4]);
    let cases = [
        (hole, "line 3: record 3 stands where 2 should"),
        (swapped, "line 2: record 2 stands where 1 should"),
        (cut, "line 5: the export is cut off"),
        (extra, "line 6: nothing may follow"),
        (
            export.replacen("\"epoch\":7", "\"epoch\":8", 1),
            "line 2: the record's hash is",
        ),
        (
            export.replacen("\"format\":1", "\"format\":2", 1),
            "line 1: format 2",
        ),
        (
            export.replacen("{\"record\"", "{\"recrod\"", 1),
            "line 2: unknown variant",
        ),
        (
            export.replacen("\"payload\":\"0", "\"payload\":\"x", 1),
            "line 2: `payload` is not",
        ),
        (String::new(), "line 1: an export begins with"),
        (
            export.replacen("\"records\":3", "\"records\":4", 1),
            "line 5: the end line doesn't fit",
        ),
    ];
    for (text, expected) in cases {
        let target = tempfile::tempdir().unwrap();
        let path = target.path().join("journal");
        let error = import(&path, text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}, expected {expected}");
        assert_eq!(
            fs::read_dir(target.path()).unwrap().count(),
            0,
            "{expected}"
        );
    }
}

#[tokio::test]
async fn what_was_archived_is_salvaged_too() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 60).await;
    journal.compact(|info| info.name == "front").await.unwrap();
    journal.close().await;
    let files = segments(dir.path());
    let last = files
        .iter()
        .rfind(|path| path.extension().unwrap() == "seg")
        .unwrap();
    fs::remove_file(last).unwrap();
    let options = Options {
        on_damage: OnDamage::SetAside { at: at(0) },
        ..small()
    };
    let aside = try_open(dir.path(), options)
        .await
        .unwrap()
        .report
        .set_aside
        .unwrap();
    assert_eq!(aside.records, 60);
    let export = fs::read_to_string(&aside.export).unwrap();
    assert_eq!(export.matches("\"stream\":\"front\"").count(), 30);
}

#[tokio::test]
async fn a_damaged_journal_is_set_aside_with_what_is_readable() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 60).await;
    let head = journal.head();
    journal.close().await;
    for round in 0..2 {
        let path = segments(dir.path())[0].clone();
        let mut bytes = fs::read(&path).unwrap();
        let records = if round == 0 { 60 } else { 2 };
        bytes[150] ^= 1; // the first record
        fs::write(&path, &bytes).unwrap();
        let options = Options {
            on_damage: OnDamage::SetAside { at: at(0) },
            known_head: Some(head),
            ..small()
        };
        let refused = try_open(dir.path(), small()).await.unwrap_err();
        assert!(matches!(refused, OpenError::Damaged(_)));
        // The damage decides: the known head is that of the journal which is set aside.
        let opened = try_open(dir.path(), options).await.unwrap();
        let aside = opened.report.set_aside.clone().unwrap();
        let suffix = if round == 0 { "" } else { "-2" };
        assert_eq!(
            aside.folder,
            dir.path().join(format!("damaged-20231114T221320Z{suffix}"))
        );
        assert_eq!(aside.records, records - 1);
        assert_eq!(aside.damage.path, path);
        assert_eq!(
            fs::read(
                aside
                    .folder
                    .join("segments")
                    .join(path.file_name().unwrap())
            )
            .unwrap(),
            bytes
        );
        let export = fs::read_to_string(&aside.export).unwrap();
        assert_eq!(export.matches("{\"record\":").count() as u64, records - 1);
        assert!(
            export.lines().nth(1).unwrap().starts_with("{\"damaged\":"),
            "{export}"
        );
        assert!(import(dir.path().join("new"), export.as_bytes()).is_err());
        assert!(opened.report.created && opened.journal.head().sequence == 0);
        fill(&opened.journal, 2).await;
        opened.journal.close().await;
    }
}

fn count(state: &mut (u64, u64), envelope: &journal::Envelope<Door>) {
    if let Door::Unlocked { code, .. } = envelope.event {
        *state = (state.0 + 1, state.1 + u64::from(code));
    }
}

#[tokio::test]
async fn a_snapshot_is_believed_only_where_it_fits() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 20).await;
    let fold = |journal: &Journal<Door>, upto: u64| {
        let mut state = (0, 0);
        let events = journal.read("front", 1).unwrap().map(Result::unwrap);
        events
            .filter(|e| e.version <= upto)
            .for_each(|e| count(&mut state, &e));
        state
    };
    assert_eq!(journal.snapshot::<(u64, u64)>("front").unwrap(), None);
    assert_eq!(
        journal.verify_snapshot("front", (0, 0), count).unwrap(),
        None
    );
    journal
        .save_snapshot("front", 7, &fold(&journal, 7))
        .unwrap();
    let expected = journal::Snapshot {
        version: 7,
        state: fold(&journal, 7),
    };
    journal.compact(|info| info.name == "front").await.unwrap();
    assert_eq!(journal.snapshot("front").unwrap().as_ref(), Some(&expected));
    assert_eq!(
        journal.verify_snapshot("front", (0, 0), count).unwrap(),
        Some(true)
    );
    let mut resumed = expected.state;
    let rest = journal.read("front", 8).unwrap().map(Result::unwrap);
    rest.for_each(|e| count(&mut resumed, &e));
    assert_eq!(resumed, fold(&journal, 99));

    // A wrong one is found out, and one of another type or history is not used.
    journal.save_snapshot("front", 8, &(1u64, 1u64)).unwrap();
    assert_eq!(
        journal.verify_snapshot("front", (0, 0), count).unwrap(),
        Some(false)
    );
    assert_eq!(journal.snapshot::<u8>("front").unwrap(), None);
    assert!(
        journal
            .save_snapshot("front", 11, &0u8)
            .unwrap_err()
            .to_string()
            .contains("no version 11")
    );
    assert!(journal.save_snapshot("front", 0, &0u8).is_err());
    let large = journal
        .save_snapshot("front", 1, &vec![0u8; 70_000])
        .unwrap_err();
    assert!(large.to_string().contains("70008 bytes"), "{large}");
    journal.verify().unwrap();
    journal.close().await;

    let journal = open(dir.path()).await.journal;
    assert_eq!(
        journal.snapshot("front").unwrap(),
        Some(journal::Snapshot {
            version: 8,
            state: (1u64, 1u64)
        })
    );
    journal.close().await;
    let other = tempfile::tempdir().unwrap();
    let journal = open(other.path()).await.journal;
    append(&journal, "front", vec![Door::Locked]).await;
    fill(&journal, 15).await;
    journal.close().await;
    fs::remove_dir_all(dir.path().join("segments")).unwrap();
    fs::rename(other.path().join("segments"), dir.path().join("segments")).unwrap();
    fs::copy(other.path().join("HEAD"), dir.path().join("HEAD")).unwrap();
    let journal = open(dir.path()).await.journal;
    assert_eq!(journal.snapshot::<(u64, u64)>("front").unwrap(), None);
}
