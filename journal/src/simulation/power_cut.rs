//! Power cuts: every prefix of the recorded operations, with what had not been synced dropped, torn
//! or kept at random.
//!
//! The model is harsher than any file system: of what was written to a file since its last sync,
//! each 512-byte sector may be there or not; the length may be the old or the new one, with zeros in
//! between; of the names that were created, renamed or removed since their folder's last sync, any
//! number, from the first on, may have come to the disk.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::recover::segments_only;
use crate::{ChainHash, Expected};

const SECTOR: usize = 512;

/// A small generator of pseudo-random numbers (xorshift), so that runs can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[derive(Debug, Clone, Default)]
struct Inode {
    synced: Vec<u8>,
    /// Writes and truncations since the last sync.
    pending: Vec<Op>,
}

impl Inode {
    fn apply(content: &mut Vec<u8>, op: &Op, mut kept: impl FnMut() -> bool) {
        match op {
            Op::Write { offset, bytes, .. } => {
                let start = usize::try_from(*offset).unwrap();
                let end = start + bytes.len();
                if content.len() < end && kept() {
                    content.resize(end, 0);
                }
                let mut at = start;
                while at < end {
                    let sector_end = ((at / SECTOR + 1) * SECTOR).min(end);
                    if kept() && content.len() >= sector_end {
                        content[at..sector_end]
                            .copy_from_slice(&bytes[at - start..sector_end - start]);
                    }
                    at = sector_end;
                }
            }
            Op::Truncate { length, .. } if kept() => {
                content.resize(usize::try_from(*length).unwrap(), 0);
            }
            _ => {}
        }
    }

    fn sync(&mut self) {
        for op in std::mem::take(&mut self.pending) {
            Self::apply(&mut self.synced, &op, || true);
        }
    }

    /// What a power cut may leave of it.
    fn torn(&self, dice: &mut Dice) -> Vec<u8> {
        let mut content = self.synced.clone();
        let style = dice.roll(4);
        let count = dice.roll(self.pending.len() as u64 + 1);
        for (at, op) in self.pending.iter().enumerate() {
            match style {
                0 => {}
                1 => Self::apply(&mut content, op, || true),
                2 => Self::apply(&mut content, op, || (at as u64) < count),
                _ => Self::apply(&mut content, op, || dice.roll(2) == 0),
            }
        }
        content
    }
}

/// The inodes' numbers by the files' names.
type Names = BTreeMap<PathBuf, usize>;

/// A change of a name, within one folder.
#[derive(Debug, Clone)]
enum Renaming {
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Renaming {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Create(path, inode) => drop(names.insert(path.clone(), *inode)),
            Self::Remove(path) => drop(names.remove(path)),
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }

    fn folder(&self) -> &Path {
        let (Self::Create(path, _) | Self::Rename(path, _) | Self::Remove(path)) = self;
        path.parent().unwrap()
    }
}

/// The files as the process sees them, and what of that is on the disk.
#[derive(Debug, Default)]
struct Machine {
    inodes: Vec<Inode>,
    names: Names,
    durable: Names,
    /// Changes of names since their folder's last sync.
    pending: Vec<Renaming>,
    acknowledged: u64,
}

impl Machine {
    fn step(&mut self, op: &Op) {
        match op {
            Op::Create(path) => {
                self.inodes.push(Inode::default());
                self.renaming(Renaming::Create(path.clone(), self.inodes.len() - 1));
            }
            Op::Rename { from, to } => self.renaming(Renaming::Rename(from.clone(), to.clone())),
            Op::Remove(path) => self.renaming(Renaming::Remove(path.clone())),
            Op::Write { path, .. } | Op::Truncate { path, .. } => {
                self.inodes[self.names[path]].pending.push(op.clone());
            }
            Op::Sync(path) => self.inodes[self.names[path]].sync(),
            Op::SyncDir(folder) => {
                let (now, later) = std::mem::take(&mut self.pending)
                    .into_iter()
                    .partition(|renaming| renaming.folder() == folder);
                self.pending = later;
                let now: Vec<Renaming> = now;
                now.iter()
                    .for_each(|renaming| renaming.apply(&mut self.durable));
            }
            Op::Acknowledged(sequence) => self.acknowledged = *sequence,
        }
    }

    fn renaming(&mut self, renaming: Renaming) {
        renaming.apply(&mut self.names);
        self.pending.push(renaming);
    }

    /// Puts what a power cut now may leave into the folder `to`.
    fn cut(&self, from: &Path, to: &Path, dice: &mut Dice) {
        let mut names = self.durable.clone();
        let kept = usize::try_from(dice.roll(self.pending.len() as u64 + 1)).unwrap();
        self.pending
            .iter()
            .take(kept)
            .for_each(|renaming| renaming.apply(&mut names));
        fs::create_dir_all(to.join("segments")).unwrap();
        for (path, inode) in names {
            let content = self.inodes[inode].torn(dice);
            fs::write(to.join(path.strip_prefix(from).unwrap()), content).unwrap();
        }
    }
}

/// Two sessions of appends, rotations, a failed write, a compaction and a close; and the hash of
/// every record.
async fn record(dir: &Path, preallocate_bytes: u64) -> (Vec<Op>, Vec<ChainHash>) {
    let options = Options {
        preallocate_bytes,
        ..options()
    };
    let disk = Arc::new(TestDisk::default());
    let mut hashes = vec![];
    for session in 0..2 {
        let journal = open_with(dir, &disk, &options);
        for round in 0..12usize {
            let sizes = [10, 700, 3, 1500, 40];
            let text = |at: usize| format!("{session}-{round}-{}", "x".repeat(sizes[at % 5]));
            let group = (0..=round % 4).map(|at| {
                let events = (0..=(round + at) % 3).map(|n| text(at + n)).collect();
                let (journal, disk) = (journal.clone(), Arc::clone(&disk));
                async move {
                    let stream = format!("door-{at}");
                    let done = journal
                        .append(&stream, Expected::Any, context(), events)
                        .await;
                    let done = done.unwrap();
                    disk.acknowledge(done.global_sequence);
                    done
                }
            });
            futures_join(group.collect()).await;
            if round == 8 {
                let finished = format!("door-{session}");
                journal.compact(|info| info.name == finished).await.unwrap();
            }
            if round == 5 {
                disk.fail("write", ".seg", io::ErrorKind::StorageFull);
                let text = vec![text(1)];
                journal
                    .append("door", Expected::Any, context(), text)
                    .await
                    .unwrap_err();
                disk.heal();
            }
        }
        hashes = journal
            .read_all(1)
            .unwrap()
            .map(|item| item.unwrap().hash)
            .collect();
        journal.close().await;
    }
    (disk.ops(), hashes)
}

/// Waits for all of them side by side.
async fn futures_join<F>(futures: Vec<F>)
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let mut set = tokio::task::JoinSet::new();
    futures
        .into_iter()
        .for_each(|future| drop(set.spawn(async move { drop(future.await) })));
    while let Some(done) = set.join_next().await {
        done.unwrap();
    }
}

/// Checks a crash state with the segment layer alone: every acknowledged record is there. What comes
/// behind them may be an append that was refused, if the power went before it could be undone.
fn check(dir: &Path, acknowledged: u64, hashes: &[ChainHash]) -> Result<(), String> {
    let found = segments_only(dir, "door-lock")?;
    let acknowledged = usize::try_from(acknowledged).unwrap();
    match found.get(..acknowledged) {
        None => Err(format!(
            "{} of {acknowledged} acknowledged records",
            found.len()
        )),
        Some(kept) if kept != &hashes[..acknowledged] => Err("a record is another one".into()),
        Some(_) => Ok(()),
    }
}

/// Opens a crash state in full, appends to it, and opens it again.
async fn live_on(dir: &Path) {
    let journal = open(dir, &Arc::default());
    let before = contents(&journal).len();
    journal
        .append("door", Expected::Any, context(), vec!["after".into()])
        .await
        .unwrap();
    journal.verify().unwrap();
    journal.close().await;
    let journal = open(dir, &Arc::default());
    assert_eq!(contents(&journal).len(), before + 1);
    journal.close().await;
}

/// The crash states after each operation: how many there were, and which were not all right.
async fn cut_everywhere(
    ops: &[Op],
    hashes: &[ChainHash],
    dir: &Path,
    states_per_operation: u64,
) -> (u64, Vec<String>) {
    let mut dice = Dice(0x5eed_1234_5678_9abc);
    let mut machine = Machine::default();
    let (mut states, mut losses) = (0, Vec::new());
    for (at, op) in ops.iter().enumerate() {
        machine.step(op);
        for round in 0..states_per_operation {
            let state = scratch();
            machine.cut(dir, state.path(), &mut dice);
            states += 1;
            let mut checked = check(state.path(), machine.acknowledged, hashes);
            if states % 8 == 0 {
                // What a repair leaves behind must be in order itself.
                checked = checked.and(check(state.path(), machine.acknowledged, hashes));
            }
            match checked {
                Ok(()) if states % 1000 == 0 => live_on(state.path()).await,
                Ok(()) => {}
                Err(what) => losses.push(format!("op {at} {}, round {round}: {what}", op.name())),
            }
        }
    }
    (states, losses)
}

async fn no_state_loses_anything(preallocate_bytes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (ops, hashes) = record(dir.path(), preallocate_bytes).await;
    let each = 5000 / ops.len() as u64 + 1;
    let (states, losses) = cut_everywhere(&ops, &hashes, dir.path(), each).await;
    assert_eq!(losses, [""; 0]);
    assert!(states >= 5000, "only {states} crash states");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_record_is_lost_in_a_power_cut() {
    no_state_loses_anything(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_when_segments_are_filled_with_zeros_ahead() {
    no_state_loses_anything(1300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_test_shows_what_each_kind_of_sync_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let (ops, hashes) = record(dir.path(), 1300).await;
    for left_out in ["sync", "sync_dir"] {
        let without: Vec<Op> = ops
            .iter()
            .filter(|op| op.name() != left_out)
            .cloned()
            .collect();
        let (states, losses) = cut_everywhere(&without, &hashes, dir.path(), 2).await;
        let lost = losses.len() as u64;
        assert!(
            lost * 10 > states,
            "without {left_out}: only {lost} of {states} states lost anything"
        );
    }
}
