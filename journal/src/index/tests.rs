#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

/// Some sequence that the version of a test stream has.
fn sequence(version: u64) -> u64 {
    version * 3
}

fn line(stream: &str, version: u64) -> Line {
    Line {
        stream: stream.into(),
        version,
        sequence: sequence(version),
    }
}

fn open(path: &Path) -> (Arc<Index>, Census) {
    Index::open(path, 1 << 20, Duration::from_secs(60)).unwrap()
}

fn versions(index: &Index, stream: &str, from: u64, upto: u64, limit: usize) -> Vec<u64> {
    let lines = index.lookup(stream, from, upto, limit).unwrap();
    lines
        .iter()
        .for_each(|(version, found)| assert_eq!(*found, sequence(*version)));
    lines.into_iter().map(|(version, _)| version).collect()
}

#[test]
fn lines_are_found_wherever_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = open(dir.path());
    index.add((1..=1300).map(|v| line("a", v)));
    index.settle().unwrap();
    index.add((1301..=1310).map(|v| line("a", v)));
    index.recent.take(); // as if they were being moved
    index.add((1311..=1320).map(|v| line("a", v)));
    let all = |from: u64| {
        let mut found = Vec::new();
        while let Some(next) = versions(&index, "a", found.last().map_or(from, |v| v + 1), 1320, 7)
            .into_iter()
            .next_back()
        {
            found.extend(found.last().map_or(from, |v| v + 1)..=next);
        }
        found
    };
    for from in [1, 2, 511, 512, 513, 514, 1025, 1300, 1301, 1310, 1311, 1320] {
        assert!(all(from).into_iter().eq(from..=1320), "{from}");
    }
    assert_eq!(versions(&index, "a", 1299, 1300, 10), [1299, 1300]);
    assert_eq!(
        versions(&index, "a", 1309, 1312, 10),
        [1309, 1310, 1311, 1312]
    );
    assert!(versions(&index, "a", 1321, u64::MAX, 10).is_empty());
}

#[test]
fn streams_with_a_common_prefix_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = open(dir.path());
    for _ in 0..2 {
        index.add(["a", "ab", "a/b"].into_iter().map(|stream| line(stream, 1)));
        index.add([line("a", 2)].into_iter());
        assert_eq!(versions(&index, "a", 1, 9, 9), [1, 2]);
        assert_eq!(versions(&index, "ab", 1, 9, 9), [1]);
        assert!(versions(&index, "ab", 2, 9, 9).is_empty());
        assert!(versions(&index, "b", 1, 9, 9).is_empty());
        index.settle().unwrap();
    }
}

#[test]
fn a_hole_is_not_bridged() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = open(dir.path());
    for version in [1, 2, 4] {
        index.add([line("a", version)].into_iter());
        index.settle().unwrap();
    }
    assert_eq!(versions(&index, "a", 1, 9, 9), [1, 2]);
    assert!(versions(&index, "a", 3, 9, 9).is_empty());
}

#[test]
fn the_census_survives_reopening_and_ignores_order() {
    let dir = tempfile::tempdir().unwrap();
    let (index, empty) = open(dir.path());
    assert_eq!(empty, Census::default());
    index.add((1..=200).map(|v| line("s", v)));
    index.close();
    let (_, found) = open(dir.path());
    let mut expected = Census::default();
    (1..=200)
        .rev()
        .for_each(|v| expected.count(b"s", v, sequence(v)));
    assert_eq!(found, expected);
    expected.count(b"t", 1, sequence(1));
    assert_ne!(found, expected);
}

#[test]
fn the_mover_brings_lines_to_sled() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = open(dir.path());
    index.start_mover().unwrap();
    index.add((1..=9).map(|v| line("s", v)));
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !index.recent.lookup("s", 1, 1).is_empty() {
        assert!(
            std::time::Instant::now() < deadline,
            "the mover doesn't move"
        );
        thread::yield_now();
    }
    assert_eq!(versions(&index, "s", 1, 9, 99).len(), 9);
    index.close();
}

#[test]
fn a_leftover_generating_file_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = open(dir.path());
    index.add([line("s", 1)].into_iter());
    index.close();
    fs::write(dir.path().join("snap.00000000000000FF.generating"), b"junk").unwrap();
    assert_eq!(open(dir.path()).1.lines, 1);
}

#[test]
fn faults_and_panics_break_the_index_only() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = open(dir.path());
    let panicked: Result<(), _> = index.with(|_| panic!("in {}", "sled"));
    assert_eq!(panicked, Err(IndexFault::Panic("in sled".into())));
    assert_eq!(index.lookup("s", 1, 2, 1), Err(IndexFault::Broken));
    index.close();
}

#[test]
fn what_is_forgotten_is_gone_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (index, _) = open(dir.path());
    for part in [1..=700, 701..=702, 703..=1500] {
        index.add(part.map(|v| line("a", v)));
        index.settle().unwrap();
    }
    index.add((1..=9).map(|v| line("ab", v)));
    index.forget("a", 701).unwrap();
    assert!(versions(&index, "a", 1, 9999, 9).is_empty());
    assert!(versions(&index, "a", 701, 9999, 9).is_empty());
    assert_eq!(versions(&index, "a", 702, 9999, 9999).len(), 799);
    assert_eq!(versions(&index, "ab", 1, 9, 99).len(), 9);
    index.forget("a", 9999).unwrap();
    assert_eq!(index.census_upto(u64::MAX).unwrap().lines, 9);
}
