//! A child appends and acknowledges over a pipe; the parent kills it at a random moment, opens the
//! journal twice and looks for every acknowledged event.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use journal::{ChainHash, Context, EventKind, Expected, Journal, Options, Repair};
use serde::{Deserialize, Serialize};

/// The folder that a child is to work in.
pub const CHILD: &str = "JOURNAL_TORTURE_DIR";
/// The child's seed.
const SEED: &str = "JOURNAL_TORTURE_SEED";
/// A journal that has grown to this is given up for a new one, so that opening stays quick.
const LARGE: u64 = 1_500;

/// One part of an append.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    of: u32,
    part: u32,
    filler: String,
}

/// A small generator of pseudo-random numbers (splitmix).
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % sides
    }
}

fn kind() -> EventKind<Part> {
    EventKind::new("torture", 1)
}

fn options() -> Options {
    Options {
        segment_bytes: 40_000,
        preallocate_bytes: 9_000,
        cache_bytes: 8 << 20,
        ..Options::default()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Appends until it is killed, if this process is a child.
pub fn child_if_asked() -> bool {
    let Some(dir) = std::env::var_os(CHILD) else {
        return false;
    };
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    runtime().block_on(child(dir.into(), seed));
    true
}

async fn child(dir: PathBuf, seed: u64) {
    let journal = Journal::open(dir, kind(), options()).await.unwrap().journal;
    let mut dice = Dice(seed);
    let appenders = [1, 1, 3, 8, 24][usize::try_from(dice.roll(5)).unwrap()];
    let mut set = tokio::task::JoinSet::new();
    for number in 0..appenders {
        let (journal, mut dice) = (journal.clone(), Dice(seed ^ (number << 32)));
        set.spawn(async move {
            loop {
                let of = u32::try_from(1 + dice.roll(4)).unwrap();
                let length = usize::try_from(dice.roll(400)).unwrap();
                let part = |part| Part {
                    of,
                    part,
                    filler: "f".repeat(length),
                };
                let events = (1..=of).map(part).collect();
                let context = Context {
                    epoch: seed,
                    traceparent: None,
                    at: UNIX_EPOCH,
                };
                let stream = format!("stream-{number}");
                let done = journal
                    .append(&stream, Expected::Any, context, events)
                    .await
                    .unwrap();
                // One write, so that a line is there as a whole or not at all.
                let line = format!("ack {} {}\n", done.global_sequence, done.hash);
                std::io::stdout().write_all(line.as_bytes()).unwrap();
            }
        });
    }
    if dice.roll(3) == 0 {
        set.spawn(async move {
            loop {
                let finished = format!("stream-{}", dice.roll(appenders));
                journal.compact(|info| info.name == finished).await.unwrap();
            }
        });
    }
    while set.join_next().await.is_some() {}
}

/// What a torture has come to.
#[derive(Debug, Default)]
pub struct Tally {
    pub kills: u64,
    /// Kills before the child had acknowledged anything: most of them inside `open`.
    pub early: u64,
    pub acknowledged: u64,
    pub torn_tails: u64,
    pub journals: u64,
}

/// Kills children until `enough` says so.
pub fn torture(
    base: &Path,
    seed: u64,
    arguments: &[&str],
    enough: impl Fn(&Tally) -> bool,
) -> Tally {
    let mut dice = Dice(seed);
    let mut tally = Tally::default();
    let runtime = runtime();
    let mut known = BTreeMap::new();
    let mut opening = Duration::from_millis(20);
    let mut dir = base.join("journal-0");
    while !enough(&tally) {
        let acknowledged = one_life(&dir, &mut dice, arguments, &mut opening);
        tally.kills += 1;
        tally.early += u64::from(acknowledged.is_empty());
        tally.acknowledged += acknowledged.len() as u64;
        known.extend(acknowledged);
        for _ in 0..2 {
            tally.torn_tails += runtime.block_on(check(&dir, &known));
        }
        if known
            .last_key_value()
            .is_some_and(|(sequence, _)| *sequence > LARGE)
        {
            std::fs::remove_dir_all(&dir).unwrap();
            known.clear();
            tally.journals += 1;
            dir = base.join(format!("journal-{}", tally.journals));
        }
    }
    tally
}

/// Starts a child, kills it, and returns what it had acknowledged.
///
/// Two thirds of the kills come after some acknowledgements, the others while the child is starting
/// and opening: within the time that the child before it needed for that.
fn one_life(
    dir: &Path,
    dice: &mut Dice,
    arguments: &[&str],
    opening: &mut Duration,
) -> Vec<(u64, ChainHash)> {
    let started = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .env(CHILD, dir)
        .env(SEED, dice.roll(u64::MAX).to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let mut words = line
                .split(' ')
                .skip_while(|word| !word.ends_with("ack"))
                .skip(1);
            let ack = (|| Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?)))();
            ack.into_iter()
                .for_each(|ack: (u64, ChainHash)| sender.send(ack).unwrap());
        }
    });
    let mut acks = Vec::new();
    if dice.roll(3) == 0 {
        let micros = u64::try_from(opening.as_micros()).unwrap() + 1;
        std::thread::sleep(Duration::from_micros(dice.roll(micros)));
    } else {
        let wanted = 1 + usize::try_from(dice.roll(20)).unwrap();
        while acks.len() < wanted {
            acks.push(
                receiver
                    .recv_timeout(Duration::from_secs(60))
                    .expect("the child appends"),
            );
            if acks.len() == 1 {
                *opening = started.elapsed();
            }
        }
        std::thread::sleep(Duration::from_micros(dice.roll(3000)));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    acks.extend(receiver);
    acks
}

/// Opens the journal and looks for everything that is known to be in it. Returns how many torn
/// tails there were.
async fn check(dir: &Path, known: &BTreeMap<u64, ChainHash>) -> u64 {
    let opened = Journal::open(dir, kind(), options()).await.unwrap();
    let journal = opened.journal;
    let mut looked_for = known.iter().peekable();
    let mut part = 0;
    let mut sequence = 0;
    for item in journal.read_all(1).unwrap() {
        let envelope = item.unwrap();
        sequence += 1;
        assert_eq!(envelope.sequence, sequence);
        if let Some((known, hash)) = looked_for.next_if(|(known, _)| **known == sequence) {
            assert_eq!(envelope.hash, *hash, "record {known} is another one");
        }
        part += 1;
        assert_eq!(envelope.event.part, part, "an append is not whole");
        part = if part == envelope.event.of { 0 } else { part };
    }
    assert_eq!(part, 0, "the last append is not whole");
    assert_eq!(looked_for.next(), None, "an acknowledged record is lost");
    for info in journal.streams().unwrap() {
        let versions = journal
            .read(&info.name, 1)
            .unwrap()
            .map(|item| item.unwrap().version);
        assert!(versions.eq(1..=info.version), "{}", info.name);
    }
    journal.verify().unwrap();
    journal.close().await;
    let torn = |repair: &&Repair| matches!(repair, Repair::TornTail { .. });
    opened.report.repairs.iter().filter(torn).count() as u64
}
