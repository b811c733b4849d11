//! Anything, in any order, against a model that is a list.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod support;

use std::fs;
use std::path::Path;

use journal::{AppendError, Expected, Journal, Options, ReadOnly, Retention, import};
use proptest::prelude::*;
use support::{Door, context, kind};
use tempfile::TempDir;

const STREAMS: [&str; 4] = ["front", "back", "fro", "Küche"];

#[derive(Debug, Clone)]
enum Step {
    Append {
        stream: usize,
        expected: u8,
        sizes: Vec<usize>,
    },
    Read {
        stream: usize,
        from: u64,
    },
    ReadAll {
        from: u64,
    },
    Tail {
        from: u64,
    },
    Compact {
        streams: Vec<bool>,
    },
    RetainNothing,
    Reopen,
    Crash,
    ExportAndImport,
    ReadOnly,
    Verify,
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = prop::collection::vec(0usize..700, 1..4);
    prop_oneof![
        12 => (0..STREAMS.len(), 0u8..4, sizes)
            .prop_map(|(stream, expected, sizes)| Step::Append { stream, expected, sizes }),
        3 => (0..STREAMS.len(), 0u64..40).prop_map(|(stream, from)| Step::Read { stream, from }),
        2 => (0u64..60).prop_map(|from| Step::ReadAll { from }),
        1 => (0u64..60).prop_map(|from| Step::Tail { from }),
        2 => prop::collection::vec(any::<bool>(), STREAMS.len())
            .prop_map(|streams| Step::Compact { streams }),
        1 => Just(Step::RetainNothing),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
        1 => Just(Step::ExportAndImport),
        1 => Just(Step::ReadOnly),
        1 => Just(Step::Verify),
    ]
}

/// A journal and what should be in it.
struct World {
    dir: TempDir,
    journal: Journal<Door>,
    records: Vec<(usize, Door)>,
}

fn new_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

async fn open(dir: &Path) -> Journal<Door> {
    let options = Options {
        segment_bytes: 3000,
        preallocate_bytes: 1000,
        cache_bytes: 4 << 20,
        ..Options::default()
    };
    Journal::open(dir, kind(), options).await.unwrap().journal
}

impl World {
    fn of(&self, stream: usize) -> Vec<Door> {
        let own = self.records.iter().filter(|(of, _)| *of == stream);
        own.map(|(_, door)| door.clone()).collect()
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Append {
                stream,
                expected,
                sizes,
            } => self.append(*stream, *expected, sizes).await,
            Step::Read { stream, from } => {
                let read = self.journal.read(STREAMS[*stream], *from).unwrap();
                let read: Vec<_> = read.map(|item| item.unwrap().event).collect();
                let skip = usize::try_from(from.saturating_sub(1)).unwrap();
                assert!(self.of(*stream).into_iter().skip(skip).eq(read));
            }
            Step::ReadAll { from } => {
                let read = self.journal.read_all(*from).unwrap().map(Result::unwrap);
                self.compare(
                    *from,
                    read.map(|e| (e.sequence, e.stream, e.event)).collect(),
                );
            }
            Step::Tail { from } => {
                let mut tail = self.journal.tail(*from).unwrap();
                let mut read = vec![];
                for _ in (*from).max(1)..=self.records.len() as u64 {
                    let envelope = tail.next().await.unwrap().unwrap();
                    read.push((envelope.sequence, envelope.stream, envelope.event));
                }
                self.compare(*from, read);
            }
            Step::Compact { streams } => {
                let chosen =
                    |name: &str| STREAMS.iter().zip(streams).any(|(n, s)| *n == name && *s);
                self.journal
                    .compact(|info| chosen(&info.name))
                    .await
                    .unwrap();
            }
            Step::RetainNothing => {
                self.journal.retain(Retention::default()).await.unwrap();
            }
            Step::Reopen => {
                self.journal.clone().close().await;
                self.journal = open(self.dir.path()).await;
            }
            Step::Crash => self.crash().await,
            Step::ExportAndImport => {
                let mut output = vec![];
                self.journal.export(&mut output).unwrap();
                let head = self.journal.head();
                self.dir = new_dir();
                assert_eq!(
                    import(self.dir.path(), output.as_slice()).unwrap().head,
                    head
                );
                self.journal = open(self.dir.path()).await;
            }
            Step::ReadOnly => {
                let reader = ReadOnly::open(self.dir.path(), kind()).unwrap();
                let read = reader.read_all(1).map(Result::unwrap);
                self.compare(1, read.map(|e| (e.sequence, e.stream, e.event)).collect());
                assert_eq!(reader.streams(), self.journal.streams().unwrap());
            }
            Step::Verify => {
                let verified = self.journal.verify().unwrap();
                assert_eq!(verified.records, self.records.len() as u64);
            }
        }
    }

    async fn append(&mut self, stream: usize, expected: u8, sizes: &[usize]) {
        let actual = self.of(stream).len() as u64;
        let expected = match expected {
            0 | 1 => Expected::Any,
            2 => Expected::Exactly(actual),
            _ => Expected::NoStream,
        };
        let events: Vec<_> = sizes
            .iter()
            .map(|size| Door::Note("n".repeat(*size)))
            .collect();
        let done = self
            .journal
            .append(STREAMS[stream], expected, context(1), events.clone())
            .await;
        match done {
            Ok(done) => {
                self.records
                    .extend(events.into_iter().map(|event| (stream, event)));
                assert_eq!(done.global_sequence, self.records.len() as u64);
                assert_eq!(done.stream_version, self.of(stream).len() as u64);
            }
            Err(AppendError::Conflict { actual: found, .. }) => {
                assert!(expected == Expected::NoStream && actual > 0 && found == actual);
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Goes on with the files as they are, without a close; the index is sometimes old, sometimes not
    /// there at all.
    async fn crash(&mut self) {
        let copy = new_dir();
        copy_folder(self.dir.path(), copy.path());
        if self.records.len().is_multiple_of(2) {
            fs::remove_dir_all(copy.path().join("index")).unwrap();
        }
        self.dir = copy;
        self.journal = open(self.dir.path()).await;
    }

    fn compare(&self, from: u64, read: Vec<(u64, String, Door)>) {
        let numbered = (1..)
            .zip(&self.records)
            .skip_while(|(sequence, _)| *sequence < from);
        let expected = numbered.map(|(sequence, (stream, door))| {
            (sequence, STREAMS[*stream].to_owned(), door.clone())
        });
        assert_eq!(read, expected.collect::<Vec<_>>());
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else if let Err(error) = fs::copy(entry.path(), target) {
            // The index's files come and go.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_is_a_list_whatever_happens(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = new_dir();
            let journal = open(dir.path()).await;
            let mut world = World { dir, journal, records: vec![] };
            for step in &steps {
                world.take(step).await;
            }
            world.take(&Step::ReadAll { from: 1 }).await;
            world.take(&Step::Verify).await;
        });
    }
}
