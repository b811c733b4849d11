//! `cargo run --release -p journal --example torture -- [--minutes N] [--seed N] [--dir PATH]`
//!
//! Starts a process that appends, kills it at a random moment, looks for everything that it had
//! acknowledged, and starts over until the time is up. Stops with a panic at the first loss.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/support/torture.rs"]
mod torture;

use std::time::{Duration, Instant};

fn main() {
    if torture::child_if_asked() {
        return;
    }
    let option = |name: &str| {
        let mut arguments = std::env::args()
            .skip_while(|argument| argument != name)
            .skip(1);
        arguments.next()
    };
    let number = |name, default| option(name).map_or(default, |n| n.parse().expect("a number"));
    let (minutes, seed) = (number("--minutes", 1), number("--seed", 1));
    let temporary = tempfile::tempdir().unwrap();
    let dir = option("--dir").map_or_else(|| temporary.path().to_owned(), Into::into);
    println!("{minutes} minutes with seed {seed} in {}", dir.display());
    let deadline = Instant::now() + Duration::from_secs(60 * minutes);
    let tally = torture::torture(&dir, seed, &[], |tally| {
        if tally.kills.is_multiple_of(100) {
            println!("{tally:?}");
        }
        Instant::now() >= deadline
    });
    println!("no acknowledged event lost: {tally:?}");
}
