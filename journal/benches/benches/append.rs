//! Durable appends: `cargo bench --bench append` in this folder.
//!
//! Criterion measures each store in turn; `-- --table` prints instead one table with all of them,
//! taken in turns within each round, so that a busy moment of the machine hits all alike.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput};
use journal_benches::{
    Fjall, Grouped, Peer, Raw, Redb, Run, Sled, Sqlite, append_all, disk_bytes, open_journal,
    raw_batches, runtime,
};

const APPENDERS: [usize; 4] = [1, 8, 32, 64];
const NAMES: [&str; 7] = [
    "raw batches",
    "raw, grouped",
    "journal",
    "sled + fdatasync",
    "redb",
    "fjall",
    "SQLite WAL/FULL",
];

fn run(name: &str, dir: &Path, appenders: usize, events: u64) -> Run {
    let grouped = |grouped: Grouped| runtime().block_on(append_all(&grouped, appenders, events));
    fn of<P: Peer>(dir: &Path) -> Grouped {
        Grouped::open::<P>(dir)
    }
    match name {
        "raw batches" => raw_batches(dir, appenders, events.div_ceil(appenders as u64)),
        "raw, grouped" => grouped(of::<Raw>(dir)),
        "sled + fdatasync" => grouped(of::<Sled>(dir)),
        "redb" => grouped(of::<Redb>(dir)),
        "fjall" => grouped(of::<Fjall>(dir)),
        "SQLite WAL/FULL" => grouped(of::<Sqlite>(dir)),
        _ => runtime().block_on(async {
            let journal = open_journal(dir).await;
            let run = append_all(&journal, appenders, events).await;
            journal.close().await;
            run
        }),
    }
}

/// The medians of some rounds in which every store has its turn.
fn table(rounds: usize, base: u64) {
    println!(
        "| store | appenders | appends/s | of raw batches | p50 µs | p99 µs | disk bytes/event |"
    );
    println!("|---|---|---|---|---|---|---|");
    let number = std::env::args()
        .skip_while(|argument| argument != "--appenders")
        .nth(1);
    let chosen: Option<usize> = number.map(|n| n.parse().unwrap());
    for appenders in APPENDERS
        .into_iter()
        .filter(|n| chosen.is_none_or(|chosen| chosen == *n))
    {
        let events = base * (appenders as u64).min(16);
        let mut rows: Vec<(&str, Vec<(f64, u128, u128, u64)>)> =
            NAMES.map(|name| (name, Vec::new())).into();
        for _ in 0..rounds {
            for (name, results) in &mut rows {
                let dir = tempfile::tempdir().unwrap();
                let run = run(name, dir.path(), appenders, events);
                let disk = disk_bytes(dir.path()) / run.latencies.len() as u64;
                let (p50, p99) = (
                    run.percentile(50).as_micros(),
                    run.percentile(99).as_micros(),
                );
                results.push((run.per_second(), p50, p99, disk));
            }
        }
        let median = |results: &[(f64, u128, u128, u64)]| {
            let mut sorted = results.to_vec();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            sorted[sorted.len() / 2]
        };
        let raw = median(&rows[0].1).0;
        for (name, results) in &rows {
            let (rate, p50, p99, disk) = median(results);
            let share = rate / raw * 100.0;
            println!(
                "| {name} | {appenders} | {rate:.0} | {share:.0} % | {p50} | {p99} | {disk} |"
            );
        }
    }
}

fn main() {
    let number = |name: &str, default| {
        let mut arguments = std::env::args()
            .skip_while(|argument| argument != name)
            .skip(1);
        arguments.next().map_or(default, |n| n.parse().unwrap())
    };
    if std::env::args().any(|argument| argument == "--table") {
        table(number("--rounds", 5), number("--events", 1000) as u64);
        return;
    }
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    for appenders in APPENDERS {
        let mut group = criterion.benchmark_group(format!("{appenders} appenders"));
        group.throughput(Throughput::Elements(1));
        for name in NAMES {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter_custom(|events| {
                    let dir = tempfile::tempdir().unwrap();
                    let run = run(name, dir.path(), appenders, events);
                    run.took.mul_f64(events as f64 / run.latencies.len() as f64)
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
