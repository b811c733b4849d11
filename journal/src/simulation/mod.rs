//! A disk for tests: it records every operation, and can be told to fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod corruption;
mod faults;
mod power_cut;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, DiskFile, RealDisk};
use crate::{Context, EventKind, Journal, Options};

/// One thing that the segment layer did to the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Create(PathBuf),
    Write {
        path: PathBuf,
        offset: u64,
        bytes: Vec<u8>,
    },
    Sync(PathBuf),
    Truncate {
        path: PathBuf,
        length: u64,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove(PathBuf),
    SyncDir(PathBuf),
    /// The test was told that the record with this global sequence is on the disk.
    Acknowledged(u64),
}

impl Op {
    fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Write { .. } => "write",
            Self::Sync(_) => "sync",
            Self::Truncate { .. } => "truncate",
            Self::Rename { .. } => "rename",
            Self::Remove(_) => "remove",
            Self::SyncDir(_) => "sync_dir",
            Self::Acknowledged(_) => "acknowledged",
        }
    }
}

/// Operations of this name fail with this error, on paths that end with this text.
#[derive(Debug, Clone, Copy)]
struct Fault {
    name: &'static str,
    path: &'static str,
    error: io::ErrorKind,
}

/// Carries operations out on the real disk, records them, and lets some fail.
#[derive(Debug, Default)]
pub(crate) struct TestDisk {
    ops: Mutex<Vec<Op>>,
    faults: Mutex<Vec<Fault>>,
}

impl TestDisk {
    fn acknowledge(&self, sequence: u64) {
        self.ops.lock().unwrap().push(Op::Acknowledged(sequence));
    }

    fn ops(&self) -> Vec<Op> {
        self.ops.lock().unwrap().clone()
    }

    fn fail(&self, name: &'static str, path: &'static str, error: io::ErrorKind) {
        self.faults
            .lock()
            .unwrap()
            .push(Fault { name, path, error });
    }

    fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    /// Records the operation, unless it has to fail.
    fn record(&self, path: &Path, op: Op) -> io::Result<()> {
        let faults = self.faults.lock().unwrap();
        let fault = faults
            .iter()
            .find(|f| f.name == op.name() && path.to_string_lossy().ends_with(f.path));
        match fault {
            Some(fault) => Err(fault.error.into()),
            None => {
                self.ops.lock().unwrap().push(op);
                Ok(())
            }
        }
    }
}

impl Disk for TestDisk {
    fn create(&self, path: &Path) -> io::Result<DiskFile> {
        self.record(path, Op::Create(path.into()))?;
        RealDisk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        RealDisk.open(path)
    }

    fn write_at(&self, file: &DiskFile, bytes: &[u8], offset: u64) -> io::Result<()> {
        let write = |bytes: &[u8]| Op::Write {
            path: file.path.clone(),
            offset,
            bytes: bytes.into(),
        };
        if let Err(error) = self.record(&file.path, write(bytes)) {
            // As on a full disk: a part of it is written.
            let part = &bytes[..bytes.len() / 2];
            self.ops.lock().unwrap().push(write(part));
            RealDisk.write_at(file, part, offset)?;
            return Err(error);
        }
        RealDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &DiskFile) -> io::Result<()> {
        self.record(&file.path, Op::Sync(file.path.clone()))
    }

    fn truncate(&self, file: &DiskFile, length: u64) -> io::Result<()> {
        self.record(
            &file.path,
            Op::Truncate {
                path: file.path.clone(),
                length,
            },
        )?;
        RealDisk.truncate(file, length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.record(
            from,
            Op::Rename {
                from: from.into(),
                to: to.into(),
            },
        )?;
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.record(path, Op::Remove(path.into()))?;
        RealDisk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.record(path, Op::SyncDir(path.into()))
    }
}

fn kind() -> EventKind<String> {
    EventKind::new("door-lock", 1)
}

fn options() -> Options {
    Options {
        segment_bytes: 2000,
        preallocate_bytes: 0,
        cache_bytes: 4 << 20,
        ..Options::default()
    }
}

fn context() -> Context {
    Context {
        epoch: 1,
        traceparent: None,
        at: std::time::UNIX_EPOCH,
    }
}

fn open(dir: &Path, disk: &Arc<TestDisk>) -> Journal<String> {
    open_with(dir, disk, &options())
}

fn open_with(dir: &Path, disk: &Arc<TestDisk>, options: &Options) -> Journal<String> {
    let disk = Arc::clone(disk);
    Journal::open_on(dir.into(), kind(), options, disk)
        .unwrap()
        .journal
}

fn contents(journal: &Journal<String>) -> Vec<String> {
    journal
        .read_all(1)
        .unwrap()
        .map(|item| item.unwrap().event)
        .collect()
}

/// Where many stores are laid out: in memory if there is such a place.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}
