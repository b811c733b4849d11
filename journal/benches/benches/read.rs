//! Reading and opening: `cargo bench --bench read` in this folder. `-- --records N` says how large the
//! journal is; a million is the default of `-- --table`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::time::Instant;

use criterion::{Criterion, Throughput};
use journal::{Expected, Journal, Options};
use journal_benches::{Event, context, disk_bytes, event, kind, open_journal, runtime};

async fn fill(dir: &Path, records: u64) {
    let journal = open_journal(dir).await;
    for batch in 0..records / 1000 {
        let events = (0..1000).map(event).collect();
        let stream = format!("stream-{}", batch % 100);
        journal
            .append(&stream, Expected::Any, context(), events)
            .await
            .unwrap();
    }
    journal.close().await;
}

async fn open(dir: &Path) -> Journal<Event> {
    Journal::open(dir.join("journal"), kind(), Options::default())
        .await
        .unwrap()
        .journal
}

/// Drops the page cache, if we may.
fn forget_pages() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "1").is_ok()
}

async fn table(records: u64) {
    let dir = tempfile::tempdir().unwrap();
    let started = Instant::now();
    fill(dir.path(), records).await;
    let rate = |started: Instant, count: u64| count as f64 / started.elapsed().as_secs_f64() / 1e3;
    println!("load in appends of 1000: {:.0} k/s", rate(started, records));
    println!("disk: {} bytes/event", disk_bytes(dir.path()) / records);
    for _ in 0..3 {
        let cold = forget_pages();
        let started = Instant::now();
        let journal = open(dir.path()).await;
        println!(
            "open ({}): {:.2?}",
            if cold { "cold" } else { "warm" },
            started.elapsed()
        );
        let started = Instant::now();
        let count = journal
            .read_all(1)
            .unwrap()
            .inspect(|item| assert!(item.is_ok()))
            .count();
        println!(
            "replay in global order: {:.0} k/s",
            rate(started, count as u64)
        );
        let started = Instant::now();
        let mut count = 0;
        for stream in journal.streams().unwrap() {
            let events = journal.read(&stream.name, 1).unwrap();
            count += events.inspect(|item| assert!(item.is_ok())).count() as u64;
        }
        println!("replay stream by stream: {:.0} k/s", rate(started, count));
        let started = Instant::now();
        journal.verify().unwrap();
        println!("verify: {:.0} k/s", rate(started, records));
        journal.close().await;
        let started = Instant::now();
        open(dir.path()).await.close().await;
        println!("open and close (warm): {:.2?}", started.elapsed());
    }
    std::fs::remove_dir_all(dir.path().join("journal/index")).unwrap();
    let started = Instant::now();
    open(dir.path()).await.close().await;
    println!("open without an index: {:.2?}", started.elapsed());
}

fn main() {
    let runtime = runtime();
    let given = std::env::args()
        .skip_while(|argument| argument != "--records")
        .nth(1);
    let records = |default| given.map_or(default, |n| n.parse().unwrap());
    if std::env::args().any(|argument| argument == "--table") {
        runtime.block_on(table(records(1_000_000)));
        return;
    }
    let records = records(100_000);
    let dir = tempfile::tempdir().unwrap();
    runtime.block_on(fill(dir.path(), records));
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(records));
    group.bench_function("open", |bencher| {
        bencher.iter(|| runtime.block_on(async { open(dir.path()).await.close().await }));
    });
    let journal = runtime.block_on(open(dir.path()));
    group.bench_function("replay in global order", |bencher| {
        bencher.iter(|| {
            journal
                .read_all(1)
                .unwrap()
                .map(|item| item.unwrap().event.number)
                .sum::<u64>()
        });
    });
    group.bench_function("verify", |bencher| {
        bencher.iter(|| journal.verify().unwrap())
    });
    group.finish();
    runtime.block_on(journal.close());
    criterion.final_summary();
}
