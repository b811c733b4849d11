//! The house keeps its rules: which folder may reach for what, how long a file may be, and that
//! ARCHITECTURE.md speaks of what is there.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice
)]

#[path = "house/document.rs"]
mod document;
#[path = "house/files.rs"]
mod files;
#[path = "house/rules.rs"]
mod rules;
#[path = "house/scan.rs"]
mod scan;
#[path = "house/self_tests.rs"]
mod self_tests;

use files::{dependencies, is_rust, is_test, read, texts};
use rules::{Source, TABLE, broken};
use std::fs;

/// No source is longer; most are much shorter.
const LONGEST: usize = 700;
const LONG: usize = 300;

fn none(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n{}", broken.join("\n"));
}

#[test]
fn every_folder_knows_only_what_it_may() {
    let crates = dependencies();
    let mut found = Vec::new();
    for row in TABLE {
        for (path, text) in texts(&format!("src/{}", row.folder)) {
            if is_rust(&path) && !is_test(&path) {
                let source = Source {
                    path: &path,
                    text: &text,
                };
                found.extend(broken(&source, row, &crates));
            }
        }
    }
    none(
        &found,
        "a folder reaches for what its row in tests/house/rules.rs does not allow",
    );
}

#[test]
fn every_folder_has_a_row() {
    let mut folders: Vec<String> = fs::read_dir(files::root().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    folders.sort();
    let mut rows: Vec<&str> = TABLE.iter().map(|row| row.folder).collect();
    rows.sort_unstable();
    assert_eq!(
        folders, rows,
        "the table in tests/house/rules.rs has the folders of src/"
    );
}

/// The journal is of use to anybody: it knows nothing of what is kept in it.
#[test]
fn the_journal_does_not_know_whose_it_is() {
    const STRANGERS: [&str; 8] = [
        "exporterset",
        "jumpstarter",
        "k8s",
        "kube",
        "podman",
        "qemu",
        "quadlet",
        "ssh",
    ];
    let mut found = Vec::new();
    for (path, text) in texts("journal") {
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            for stranger in STRANGERS
                .iter()
                .filter(|stranger| lower.contains(**stranger))
            {
                found.push(format!("{}:{}: {stranger}", path.display(), number + 1));
            }
        }
    }
    none(&found, "journal/ speaks of what it must not know");
}

#[test]
fn no_file_is_too_long() {
    let mut found = Vec::new();
    for (path, text) in texts("").into_iter().filter(|(path, _)| is_rust(path)) {
        let lines = text.lines().count();
        let of_tests = path.starts_with("tests") || is_test(&path);
        if lines > LONGEST && !of_tests {
            found.push(format!("{}: {lines} lines", path.display()));
        } else if lines > LONG && !of_tests {
            println!("long: {}: {lines} lines", path.display());
        }
    }
    none(&found, "a file is too long to be one thing; take it apart");
}

/// What is committed is the same on every machine.
#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    // Put together here, so that this file has none of them.
    let places = [
        ["/wo", "rk/"],
        ["/ho", "me/"],
        ["/Use", "rs/"],
        ["/tmp/pro", "mpts"],
    ];
    let mut found = Vec::new();
    for (path, text) in texts("") {
        for (number, line) in text.lines().enumerate() {
            for place in places.map(|parts| parts.concat()) {
                // What follows in a script is a variable: no place of anybody's.
                let named = line.split(&place).skip(1).any(|rest| {
                    place.contains("tmp") || rest.starts_with(|c: char| c.is_ascii_alphanumeric())
                });
                let before = line.split(&place).next().unwrap_or_default();
                if named && !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '+') {
                    found.push(format!("{}:{}: {place}", path.display(), number + 1));
                }
            }
        }
    }
    none(&found, "a file names a place that only one machine has");
}

#[test]
fn every_dependency_comes_from_the_public_registry() {
    let lock = read("Cargo.lock");
    let sources = lock
        .lines()
        .filter_map(|line| line.strip_prefix("source = "));
    let mut count = 0;
    for source in sources {
        assert_eq!(
            source,
            "\"registry+https://github.com/rust-lang/crates.io-index\""
        );
        count += 1;
    }
    assert!(count > 100, "only {count} sources in Cargo.lock");
}

#[test]
fn every_invariant_names_tests_that_exist() {
    none(
        &document::broken_guards(&read("ARCHITECTURE.md")),
        "an invariant is not guarded",
    );
}

#[test]
fn the_code_map_names_files_that_exist_and_every_folder() {
    none(
        &document::broken_map(&read("ARCHITECTURE.md")),
        "the code map is out of date",
    );
}
