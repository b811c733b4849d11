#![allow(clippy::unwrap_used)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::*;
use crate::controller::exporter_rules::{registered, reported};
use crate::controller::objects::is_true;
use crate::wire::ExporterStatus::{Available, LeaseReady, Offline};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A registered exporter with the label `board=a`, in the given state.
fn exporter(name: &str, state: crate::wire::ExporterStatus) -> Exporter {
    let mut exporter = Exporter::default();
    exporter.metadata.name = Some(name.into());
    exporter.metadata.labels = Some([("board".to_owned(), "a".to_owned())].into());
    exporter.status = registered(&exporter, Vec::new(), at(0));
    exporter.status = reported(&exporter, state, "", at(0));
    exporter
}

fn disabled(mut exporter: Exporter) -> Exporter {
    exporter.spec.enabled = Some(false);
    exporter
}

/// A lease for `board=<board>`, for a minute.
fn lease(board: &str) -> Lease {
    let mut lease = Lease::default();
    lease.spec.selector = LabelSelector {
        match_labels: Some([("board".to_owned(), board.to_owned())].into()),
        ..LabelSelector::default()
    };
    lease.spec.duration = Some("1m".into());
    lease
}

fn named(exporter: &str, allow_disabled: bool) -> Lease {
    let mut lease = Lease::default();
    lease.spec.exporter_ref = Some(NameRef {
        name: exporter.into(),
    });
    lease.spec.allow_disabled = allow_disabled;
    lease
}

/// The decision in short: its kind and its reason, or the exporter.
fn outcome(lease: &Lease, exporters: &[Exporter], leased: &[&str]) -> String {
    let exporters: Vec<_> = exporters.iter().collect();
    let leased = leased.iter().map(ToString::to_string).collect();
    match decide(lease, &exporters, &leased, at(100)) {
        Decision::Keep(_) => "Keep".into(),
        Decision::Pending((reason, _)) => format!("Pending/{reason}"),
        Decision::Assign(exporter) => exporter,
        Decision::Unsatisfiable((reason, _)) => format!("Unsatisfiable/{reason}"),
        Decision::End((reason, _)) => format!("End/{reason}"),
    }
}

#[test]
fn the_first_that_is_free_and_ready_is_taken() {
    let both = [exporter("x1", Available), exporter("x2", Available)];
    assert_eq!(outcome(&lease("a"), &both, &[]), "x1");
    assert_eq!(outcome(&lease("a"), &both, &["x1"]), "x2");
    assert_eq!(
        outcome(&lease("a"), &both, &["x1", "x2"]),
        "Pending/NotAvailable"
    );
}

#[test]
fn exporters_that_are_away_or_busy_are_waited_for() {
    let one = |exporter: Exporter| outcome(&lease("a"), &[exporter], &[]);
    assert_eq!(one(never_seen()), "Pending/Offline");
    assert_eq!(one(exporter("x1", Offline)), "Pending/Offline");
    assert_eq!(one(exporter("x1", LeaseReady)), "Pending/NotReady");
    let away_and_disabled = [exporter("x1", Offline), disabled(exporter("x2", Available))];
    assert_eq!(
        outcome(&lease("a"), &away_and_disabled, &[]),
        "Pending/Offline"
    );
}

#[test]
fn no_state_counts_as_ready_and_so_does_a_deletion() {
    let mut silent = exporter("x1", Available);
    silent.status.exporter_status = None;
    assert_eq!(outcome(&lease("a"), &[silent], &[]), "x1");
    let mut terminating = exporter("x1", Available);
    terminating.metadata.deletion_timestamp = Some(Time(at(50)));
    assert_eq!(outcome(&lease("a"), &[terminating], &[]), "x1");
}

#[test]
fn nothing_to_wait_for_ends_the_lease() {
    let x1 = exporter("x1", Available);
    assert_eq!(outcome(&lease("a"), &[], &[]), "Unsatisfiable/NoAccess");
    assert_eq!(
        outcome(&lease("b"), std::slice::from_ref(&x1), &[]),
        "Unsatisfiable/NoAccess"
    );
    assert_eq!(
        outcome(&lease("a"), &[disabled(x1)], &[]),
        "Unsatisfiable/AllDisabled"
    );
}

#[test]
fn an_exporter_can_be_asked_for_by_name() {
    let x1 = exporter("x1", Available);
    let both = [x1.clone(), exporter("x2", Available)];
    assert_eq!(outcome(&named("x2", false), &both, &[]), "x2");
    assert_eq!(
        outcome(&named("x9", false), &both, &[]),
        "Unsatisfiable/ExporterNotFound"
    );
    let off = [disabled(x1)];
    assert_eq!(
        outcome(&named("x1", false), &off, &[]),
        "Unsatisfiable/ExporterDisabled"
    );
    assert_eq!(outcome(&named("x1", true), &off, &[]), "x1");
}

fn never_seen() -> Exporter {
    let mut exporter = exporter("x1", Available);
    exporter.status = crate::controller::objects::ExporterStatus::default();
    exporter
}

#[test]
fn a_lease_for_later_waits_without_a_condition() {
    let mut later = lease("a");
    later.spec.begin_time = Some(Time(at(101)));
    let decision = decide(&later, &[], &BTreeSet::new(), at(100));
    assert_eq!(decision, Decision::Keep(Some(at(101))));
    assert_eq!(decided(&later, &decision, at(100)), later.status);
    assert_eq!(outcome(&later, &[], &[]), "Keep");
    later.spec.begin_time = Some(Time(at(100)));
    assert_eq!(outcome(&later, &[], &[]), "Unsatisfiable/NoAccess");
}

#[test]
fn a_lease_ends_by_release_duration_or_end_time() {
    let waiting = lease("a");
    let pending = Decision::Pending(("Offline", String::new()));
    let waiting = Lease {
        status: decided(&waiting, &pending, at(30)),
        ..waiting
    };
    let held = decided(&waiting, &Decision::Assign("x1".into()), at(41));
    assert!(is_true(&held.conditions, "Ready") && is_true(&held.conditions, "Pending"));
    let held = Lease {
        status: held,
        ..waiting
    };
    let none = BTreeSet::new();
    assert_eq!(
        decide(&held, &[], &none, at(100)),
        Decision::Keep(Some(at(101)))
    );

    let (mut released, mut by_duration, mut by_time) = (held.clone(), held.clone(), held);
    released.spec.release = true;
    by_duration.spec.duration = Some("59s".into());
    by_time.spec.end_time = Some(Time(at(100)));
    for (expected, changed) in [
        ("End/Released", released),
        ("End/Expired", by_duration),
        ("End/Expired", by_time),
    ] {
        assert_eq!(outcome(&changed, &[], &[]), expected);
        let decision = decide(&changed, &[], &none, at(100));
        let status = decided(&changed, &decision, at(100));
        assert!(status.ended && !is_true(&status.conditions, "Ready"));
        assert_eq!(status.end_time, Some(Time(at(100))));
        let over = Lease { status, ..changed };
        assert_eq!(decide(&over, &[], &none, at(999)), Decision::Keep(None));
    }
}
