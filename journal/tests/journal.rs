//! Appending, reading, and what holds between them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

use journal::{AppendError, Context, Expected, Journal, MAX_EVENTS, OpenError, Options, ReadError};
use support::{Door, all, append, at, context, events, fill, open, small, try_open, unlocked};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn what_was_appended_is_read_with_its_circumstances() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let context = Context {
        epoch: 3,
        traceparent: Some(TRACE.into()),
        at: at(5),
    };
    let written = vec![
        Door::Installed {
            place: "porch".into(),
        },
        unlocked(1),
        Door::Locked,
    ];
    let appended = journal
        .append("front", Expected::NoStream, context, written.clone())
        .await
        .unwrap();
    assert_eq!((appended.stream_version, appended.global_sequence), (3, 3));
    assert_eq!(events(&journal, "front"), written);
    let read: Vec<_> = journal
        .read("front", 2)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(read.len(), 2);
    let (second, third) = (&read[0], &read[1]);
    assert_eq!((second.version, second.sequence, second.epoch), (2, 2, 3));
    assert_eq!(second.traceparent.as_deref(), Some(TRACE));
    assert_eq!(
        (second.at, second.schema, second.stream.as_str()),
        (at(5), 1, "front")
    );
    assert_eq!(third.previous, second.hash);
    assert_eq!(
        (third.hash, journal.head().hash),
        (appended.hash, appended.hash)
    );
    assert!(events(&journal, "no such door").is_empty());
}

#[tokio::test]
async fn everything_is_there_after_reopening_across_segments() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path()).await;
    assert!(opened.report.created && opened.report.repairs.is_empty());
    fill(&opened.journal, 200).await;
    let before = all(&opened.journal);
    let head = opened.journal.head();
    opened.journal.close().await;
    assert!(
        support::segments(dir.path()).len() > 3,
        "the test needs several segments"
    );

    let opened = try_open(
        dir.path(),
        Options {
            known_head: Some(head),
            ..small()
        },
    )
    .await
    .unwrap();
    assert_eq!(opened.report.repairs, []);
    assert_eq!(
        (
            opened.report.created,
            opened.report.streams,
            opened.report.head
        ),
        (false, 2, head)
    );
    assert_eq!(all(&opened.journal), before);
    assert_eq!(events(&opened.journal, "back").len(), 100);
    append(&opened.journal, "back", vec![Door::Locked]).await;
    assert_eq!(
        opened
            .journal
            .read_all(201)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .event,
        Door::Locked
    );
    assert_eq!(opened.journal.read_all(150).unwrap().count(), 52);
    let verified = opened.journal.verify().unwrap();
    assert_eq!((verified.records, verified.streams), (201, 2));
    let streams = opened.journal.streams().unwrap();
    assert_eq!(
        streams
            .iter()
            .map(|s| (&*s.name, s.version))
            .collect::<Vec<_>>(),
        [("back", 101), ("front", 100)]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_appends_at_one_version_exactly_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    append(&journal, "front", vec![Door::Locked]).await;
    let racers = (0..32).map(|code| {
        let journal = journal.clone();
        tokio::spawn(async move {
            let expected = Expected::Exactly(1);
            journal
                .append(
                    "front",
                    expected,
                    context(1),
                    vec![unlocked(code), Door::Locked],
                )
                .await
        })
    });
    let mut won = 0;
    for racer in racers.collect::<Vec<_>>() {
        match racer.await.unwrap() {
            Ok(appended) => {
                won += 1;
                assert_eq!(appended.stream_version, 3);
            }
            Err(AppendError::Conflict {
                expected,
                actual,
                stream,
            }) => {
                assert_eq!(
                    (expected, actual, &*stream),
                    (Expected::Exactly(1), 3, "front")
                );
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(events(&journal, "front").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_is_readable_when_it_returns_whoever_else_writes() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let writers = (0..16u32).map(|door| {
        let journal = journal.clone();
        tokio::spawn(async move {
            let stream = format!("door-{door}");
            for version in 1..=20 {
                let appended = append(&journal, &stream, vec![unlocked(door)]).await;
                assert_eq!(appended.stream_version, version);
                let last = journal
                    .read(&stream, version)
                    .unwrap()
                    .next()
                    .unwrap()
                    .unwrap();
                assert_eq!(
                    (last.hash, last.sequence),
                    (appended.hash, appended.global_sequence)
                );
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let all = all(&journal);
    assert!(all.iter().map(|e| e.sequence).eq(1..=320));
    assert_eq!(journal.verify().unwrap().records, 320);
}

#[tokio::test]
async fn expectations_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let append = |expected| journal.append("front", expected, context(0), vec![Door::Locked]);
    assert_eq!(
        append(Expected::Exactly(0)).await.unwrap().stream_version,
        1
    );
    for (expected, text) in [
        (
            Expected::NoStream,
            "stream `front` is at version 1, expected none",
        ),
        (
            Expected::Exactly(2),
            "stream `front` is at version 1, expected 2",
        ),
    ] {
        let error = append(expected).await.unwrap_err();
        assert!(matches!(error, AppendError::Conflict { actual: 1, .. }));
        assert!(error.to_string().starts_with(text), "{error}");
    }
    assert_eq!(append(Expected::Any).await.unwrap().stream_version, 2);
}

#[tokio::test]
async fn bad_input_is_refused_by_name_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let try_append = async |stream: &str, context: Context, events: Vec<Door>| {
        journal
            .append(stream, Expected::Any, context, events)
            .await
            .unwrap_err()
            .to_string()
    };
    let one = || vec![Door::Locked];
    assert!(
        try_append("", context(0), one())
            .await
            .contains("stream ``")
    );
    assert!(
        try_append("a\nb", context(0), one())
            .await
            .contains("control characters")
    );
    assert!(
        try_append(&"x".repeat(256), context(0), one())
            .await
            .contains("255 bytes")
    );
    assert!(
        try_append("a", context(0), vec![])
            .await
            .contains("events has 0 entries")
    );
    let many = vec![Door::Locked; MAX_EVENTS + 1];
    assert!(
        try_append("a", context(0), many)
            .await
            .contains("events has 1025 entries")
    );
    let large = vec![Door::Locked, Door::Note("x".repeat(70_000))];
    assert!(
        try_append("a", context(0), large)
            .await
            .contains("events[1] makes a record of 70137 bytes")
    );
    let trace = Context {
        traceparent: Some("00-1-2-3".into()),
        ..context(0)
    };
    assert!(
        try_append("a", trace, one())
            .await
            .contains("context.traceparent `00-1-2-3`")
    );
    let early = std::time::UNIX_EPOCH - std::time::Duration::from_secs(1);
    assert!(
        try_append(
            "a",
            Context {
                at: early,
                ..context(0)
            },
            one()
        )
        .await
        .contains("context.at")
    );
    assert_eq!(
        (journal.head().sequence, journal.streams().unwrap().len()),
        (0, 0)
    );
}

#[tokio::test]
async fn the_largest_record_fits_and_the_clock_may_go_back() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    // 112 + 1 + 4 (variant) + 8 (length) + text + 12
    let largest = Door::Note("x".repeat(journal::MAX_RECORD_BYTES - 137));
    for seconds in [9, 3] {
        let event = vec![largest.clone()];
        journal
            .append("a", Expected::Any, context(seconds), event)
            .await
            .unwrap();
    }
    journal.close().await;
    let journal = open(dir.path()).await.journal;
    assert_eq!(events(&journal, "a"), [largest.clone(), largest]);
    assert_eq!(journal.streams().unwrap()[0].last_at, at(3));
}

#[tokio::test]
async fn a_second_opener_is_told_who_holds_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).await.journal;
    let error = try_open(dir.path(), small()).await.unwrap_err();
    assert!(matches!(&error, OpenError::Locked { holder, .. }
        if holder.starts_with(&format!("pid {} on ", std::process::id()))));
    assert!(error.to_string().contains("stop that process"), "{error}");
    drop(first);
    open(dir.path()).await;
}

#[tokio::test]
async fn after_close_every_clone_is_closed_and_queued_appends_are_in() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    let clone = journal.clone();
    let mut reading = {
        fill(&journal, 3).await;
        journal.read("front", 1).unwrap()
    };
    let (appended, ()) = tokio::join!(append(&journal, "front", vec![Door::Locked]), clone.close());
    assert_eq!(appended.global_sequence, 4);
    let refused = journal
        .append("front", Expected::Any, context(0), vec![Door::Locked])
        .await;
    assert!(matches!(refused, Err(AppendError::Closed)));
    assert!(matches!(journal.read("front", 1), Err(ReadError::Closed)));
    assert!(matches!(reading.next(), Some(Err(ReadError::Closed))));
    assert!(reading.next().is_none());
    journal.close().await;
    assert_eq!(all(&open(dir.path()).await.journal).len(), 4);
}

#[tokio::test]
async fn a_reader_sees_the_journal_as_it_was_when_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    fill(&journal, 40).await;
    let (by_stream, by_order) = (
        journal.read("front", 1).unwrap(),
        journal.read_all(1).unwrap(),
    );
    fill(&journal, 40).await;
    assert_eq!((by_stream.count(), by_order.count()), (20, 40));
}

#[tokio::test]
async fn the_folder_of_another_kind_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).await.journal.close().await;
    let other = journal::EventKind::<Door>::new("bank", 1);
    let error = Journal::open(dir.path(), other, small()).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::WrongKind { found, .. } if found == "door-lock"),
        "{error}"
    );
    let unnamed = journal::EventKind::<Door>::new("", 1);
    let error = Journal::open(dir.path(), unnamed, small())
        .await
        .unwrap_err();
    assert!(matches!(error, OpenError::InvalidKind { .. }), "{error}");
}

/// The type of schema 2: codes have become text.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Entry {
    code: String,
}

fn from_older(schema: u16, payload: &[u8]) -> Result<Entry, journal::PayloadError> {
    assert_eq!(schema, 1);
    match journal::decode_payload::<Door>(payload)? {
        Door::Unlocked { code, .. } => Ok(Entry {
            code: code.to_string(),
        }),
        other => Err(journal::PayloadError::new(format!("no entry: {other:?}"))),
    }
}

#[tokio::test]
async fn older_schemas_are_converted_and_newer_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path()).await.journal;
    append(&journal, "front", vec![unlocked(12)]).await;
    journal.close().await;

    let new = journal::EventKind::<Entry>::new("door-lock", 2);
    let error = Journal::open(dir.path(), new.clone(), small())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("EventKind::with_older"),
        "{error}"
    );
    let journal = Journal::open(dir.path(), new.with_older(from_older), small())
        .await
        .unwrap()
        .journal;
    let second = vec![Entry { code: "b".into() }];
    journal
        .append("front", Expected::Exactly(1), context(1), second)
        .await
        .unwrap();
    let codes: Vec<_> = journal
        .read("front", 1)
        .unwrap()
        .map(|e| e.unwrap().event.code)
        .collect();
    assert_eq!(codes, ["12", "b"]);
    journal.close().await;

    let error = try_open(dir.path(), small()).await.unwrap_err();
    assert!(matches!(
        error,
        OpenError::UnknownSchema {
            found: 2,
            supported: 1,
            ..
        }
    ));
    assert!(error.to_string().contains("newer"), "{error}");
}
