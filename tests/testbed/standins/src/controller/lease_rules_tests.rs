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
fn assignment_follows_the_rules() {
    let (x1, x2) = (exporter("x1", Available), exporter("x2", Available));
    let offline = exporter("x1", Offline);
    let busy = exporter("x1", LeaseReady);
    let silent = {
        let mut exporter = x1.clone();
        exporter.status.exporter_status = None;
        exporter
    };
    let terminating = {
        let mut exporter = x1.clone();
        exporter.metadata.deletion_timestamp = Some(Time(at(50)));
        exporter
    };
    let table: &[(&str, Lease, Vec<Exporter>, &[&str], &str)] = &[
        (
            "free and ready",
            lease("a"),
            vec![x1.clone(), x2.clone()],
            &[],
            "x1",
        ),
        (
            "the other one is free",
            lease("a"),
            vec![x1.clone(), x2.clone()],
            &["x1"],
            "x2",
        ),
        (
            "no exporters",
            lease("a"),
            vec![],
            &[],
            "Unsatisfiable/NoAccess",
        ),
        (
            "no match",
            lease("b"),
            vec![x1.clone()],
            &[],
            "Unsatisfiable/NoAccess",
        ),
        (
            "disabled",
            lease("a"),
            vec![disabled(x1.clone())],
            &[],
            "Unsatisfiable/AllDisabled",
        ),
        (
            "never seen",
            lease("a"),
            vec![never_seen()],
            &[],
            "Pending/Offline",
        ),
        (
            "offline",
            lease("a"),
            vec![offline.clone()],
            &[],
            "Pending/Offline",
        ),
        (
            "one offline, one disabled",
            lease("a"),
            vec![offline, disabled(x2.clone())],
            &[],
            "Pending/Offline",
        ),
        (
            "leased",
            lease("a"),
            vec![x1.clone()],
            &["x1"],
            "Pending/NotAvailable",
        ),
        (
            "between two leases",
            lease("a"),
            vec![busy],
            &[],
            "Pending/NotReady",
        ),
        (
            "an old exporter without state",
            lease("a"),
            vec![silent],
            &[],
            "x1",
        ),
        ("being deleted", lease("a"), vec![terminating], &[], "x1"),
        (
            "by name",
            named("x2", false),
            vec![x1.clone(), x2],
            &[],
            "x2",
        ),
        (
            "by an unknown name",
            named("x9", false),
            vec![x1.clone()],
            &[],
            "Unsatisfiable/ExporterNotFound",
        ),
        (
            "by a disabled name",
            named("x1", false),
            vec![disabled(x1.clone())],
            &[],
            "Unsatisfiable/ExporterDisabled",
        ),
        (
            "by a disabled name, allowed",
            named("x1", true),
            vec![disabled(x1)],
            &[],
            "x1",
        ),
    ];
    for (case, lease, exporters, leased, expected) in table {
        assert_eq!(outcome(lease, exporters, leased), *expected, "{case}");
    }
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

    let cases: [(&str, &dyn Fn(&mut Lease)); 3] = [
        ("End/Released", &|lease| lease.spec.release = true),
        ("End/Expired", &|lease| {
            lease.spec.duration = Some("59s".into())
        }),
        ("End/Expired", &|lease| {
            lease.spec.end_time = Some(Time(at(100)))
        }),
    ];
    for (expected, change) in cases {
        let mut changed = held.clone();
        change(&mut changed);
        assert_eq!(outcome(&changed, &[], &[]), expected);
        let decision = decide(&changed, &[], &none, at(100));
        let status = decided(&changed, &decision, at(100));
        assert!(status.ended && !is_true(&status.conditions, "Ready"));
        assert_eq!(status.end_time, Some(Time(at(100))));
        let over = Lease { status, ..changed };
        assert_eq!(decide(&over, &[], &none, at(999)), Decision::Keep(None));
    }
}
