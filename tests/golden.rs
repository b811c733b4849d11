//! What earlier versions wrote into the journal is read as it was meant, and written the same today:
//! the encoding of the controller's records, one of each kind, against files that never change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use exporter_set_controller::controller::ports::{Context, Journal};
use exporter_set_controller::controller::{Record, SetEvent, Store, instance_stream, set_stream};
use exporter_set_controller::instance::{
    About, AnnotatedAt, Drifted, Event, Failure, FailureClass, Grant, Reason, Revised,
    RunningUnits, Site, Step, TornDown, Transition, WrittenFiles,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

fn about() -> About {
    About {
        namespace: "lab".into(),
        name: "pool-x1".into(),
        uid: None,
        set: "pool".into(),
        set_uid: "uid-of-pool".into(),
    }
}

fn site() -> Site {
    Site {
        host: "lab-host-01.example.com".into(),
        user: "root".into(),
        port: 22,
        credentials_secret: "lab-ssh-key".into(),
        host_key: Some("SHA256:abc".into()),
    }
}

/// One record of each kind, in an order that can be told.
fn records() -> Vec<Event> {
    let grant = Grant {
        endpoint: "jumpstarter:8082".into(),
        credential: "pool-x1-exporter".into(),
        site: site(),
    };
    let revised = Revised {
        revision: "r2".into(),
        endpoint: "jumpstarter:8083".into(),
    };
    let failure = Failure::new(
        FailureClass::UnitFailed,
        "pool-x1-runtime.service: exit code 1",
    );
    let moved = Event::Moved;
    vec![
        Event::Planned(about()),
        Event::StepStarted {
            steps: vec![Step::Create],
            attempt: 1,
            revision: None,
        },
        Event::Created {
            uid: "uid-x1".into(),
        },
        Event::StepSucceeded {
            step: Step::Create,
            changed: true,
            detail: "uid uid-x1".into(),
        },
        moved(Transition::Granted(grant)),
        Event::StepStarted {
            steps: vec![Step::WriteConfig, Step::WriteQuadlets, Step::CreateVolume],
            attempt: 2,
            revision: Some("r1".into()),
        },
        moved(Transition::Wrote(WrittenFiles {
            revision: "r1".into(),
        })),
        Event::StepFailed {
            step: Step::Start,
            failure,
            attempt: 4,
            retry_at: 1_800_000_000_000,
        },
        moved(Transition::Started(RunningUnits {
            units: vec!["pool-x1-runtime.service".into()],
        })),
        moved(Transition::Annotated(AnnotatedAt {
            resource_version: "42".into(),
        })),
        Event::Leased { lease: "l1".into() },
        Event::Unleased,
        Event::Rerouted(Site {
            port: 2222,
            host_key: None,
            ..site()
        }),
        moved(Transition::Drifted(Drifted {
            what: "a unit is inactive".into(),
        })),
        moved(Transition::Wrote(WrittenFiles {
            revision: "r1".into(),
        })),
        moved(Transition::Revised(revised)),
        moved(Transition::Drained(Reason::ScaledDown)),
        Event::Waived {
            reason: "the host is scrap".into(),
        },
        moved(Transition::TornDown(TornDown)),
        Event::Adopted {
            about: about(),
            site: Some(site()),
        },
    ]
}

async fn write(dir: &Path) {
    let journal = Store::open(dir, SystemTime::UNIX_EPOCH).await.unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let context = |epoch| Context {
        at,
        epoch,
        traceparent: None,
    };
    let stream = instance_stream("pool-x1");
    for (version, event) in (0..).zip(records()) {
        let record = vec![Record::Instance(Box::new(event))];
        journal
            .append(&stream, Some(version), context(7), record)
            .await
            .unwrap();
    }
    for event in [
        SetEvent::SurplusSince {
            at: 1_800_000_000_000,
        },
        SetEvent::SurplusOver,
    ] {
        let record = vec![Record::Set(event)];
        journal
            .append(&set_stream("uid-of-pool"), None, context(8), record)
            .await
            .unwrap();
    }
    journal.close().await;
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/schema-1")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The segments are the truth of a journal; what else is in its folder is made from them.
fn segments(dir: &Path) -> PathBuf {
    dir.join("segments")
}

#[tokio::test]
async fn what_was_written_is_read_as_it_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("journal");
    copy(&golden(), &home);
    let journal = Store::open(&home, SystemTime::UNIX_EPOCH).await.unwrap();
    let read: Vec<Record> = journal
        .replay()
        .unwrap()
        .map(|entry| entry.unwrap().record)
        .collect();
    let mut expected: Vec<Record> = records()
        .into_iter()
        .map(|event| Record::Instance(Box::new(event)))
        .collect();
    expected.push(Record::Set(SetEvent::SurplusSince {
        at: 1_800_000_000_000,
    }));
    expected.push(Record::Set(SetEvent::SurplusOver));
    assert_eq!(read, expected);
}

#[tokio::test]
async fn what_is_written_today_has_the_same_payloads() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path()).await;
    if std::env::var_os("UPDATE").is_some() {
        assert!(
            !golden().exists(),
            "golden files never change: add those of a new schema"
        );
        copy(&segments(dir.path()), &segments(&golden()));
    }
    let payloads = |dir: &Path| {
        let mut files: Vec<PathBuf> = fs::read_dir(segments(dir))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
            .iter()
            .flat_map(|file| fs::read(file).unwrap())
            .collect::<Vec<u8>>()
    };
    assert_eq!(payloads(dir.path()), payloads(&golden()));
}

#[tokio::test]
async fn a_journal_beyond_repair_is_set_aside_and_a_new_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("journal");
    write(&home).await;
    let segment = fs::read_dir(segments(&home))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let journal = Store::open(&home, SystemTime::UNIX_EPOCH).await.unwrap();
    assert_eq!(journal.replay().unwrap().count(), 0);
    let names = fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    let kept = names.iter().filter(|name| name.contains("1970"));
    assert!(kept.count() >= 1, "the damaged one is kept: {names:?}");
}
