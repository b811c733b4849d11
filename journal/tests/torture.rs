//! Kills, at random moments: no acknowledged event is ever lost. The long run is
//! `cargo run --release -p journal --example torture -- --minutes 60`.
#![allow(clippy::unwrap_used)]

#[path = "support/torture.rs"]
mod torture;

/// Not a test of its own: what the killed processes run.
#[test]
fn child() {
    torture::child_if_asked();
}

#[test]
fn no_acknowledged_event_is_lost_in_500_kills() {
    if std::env::var_os(torture::CHILD).is_some() {
        return;
    }
    // A kill takes nothing from the page cache, so a folder in memory tests the same, sooner.
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let arguments = ["--exact", "child", "--nocapture"];
    let tally = torture::torture(dir.path(), 20_26, &arguments, |tally| tally.kills >= 500);
    assert!(tally.acknowledged > 0, "{tally:?}");
    println!("{tally:?}");
}
