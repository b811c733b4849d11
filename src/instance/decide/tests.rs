//! Each rule of the decision, and what holds whatever is seen.

use super::*;
use crate::instance::fixtures::{events_to, fold, grant, in_state, site};
use crate::instance::{FailureClass, State};
use proptest::prelude::*;

fn seen() -> Seen {
    Seen {
        uid: "uid-x1".into(),
        enabled: true,
        credential: Some("pool-x1-exporter".into()),
        endpoint: Some("jumpstarter:8082".into()),
        ..Seen::default()
    }
}

fn run() -> Wanted {
    wanted("r1")
}

fn wanted(revision: &str) -> Wanted {
    Wanted::Run {
        site: site(),
        revision: revision.into(),
        endpoint: grant().endpoint,
        replace_after_lease: true,
    }
}

fn drained(reason: Reason) -> Next {
    Next::Record(Event::Moved(Transition::Drained(reason)))
}

fn step_done(state: State, steps: &[Step]) -> Instance {
    let mut events = events_to(state);
    events.extend(steps.iter().map(|step| Event::StepSucceeded {
        step: *step,
        changed: true,
        detail: String::new(),
    }));
    fold(&events)
}

#[test]
fn each_state_has_its_step() {
    let cases = [
        (State::Pending, Next::Grant(grant())),
        (State::Credentialed, Next::Write),
        (State::Written, Next::Start),
        (State::Started, Next::Annotate),
        (State::Annotated, Next::Wait(Waiting::Steady)),
        (State::Draining, Next::Disable),
        (State::Deleted, Next::Forget),
    ];
    for (state, next) in cases {
        assert_eq!(
            decide(&in_state(state), Some(&seen()), &run()),
            next,
            "{state}"
        );
    }
}

#[test]
fn a_name_that_was_journaled_is_created_under_that_name() {
    let planned = fold(&events_to(State::Pending)[..1]);
    assert_eq!(decide(&planned, None, &run()), Next::Create);
    // If the create went through and its answer was lost, it is found by what is seen.
    let found = Next::Record(Event::Created {
        uid: "uid-x1".into(),
    });
    assert_eq!(decide(&planned, Some(&seen()), &run()), found);
}

#[test]
fn nothing_is_created_for_a_set_that_cannot_be_served() {
    let planned = fold(&events_to(State::Pending)[..1]);
    let failure = Failure::new(FailureClass::ClassMissing, "no class");
    let next = decide(&planned, None, &Wanted::Blocked(failure.clone()));
    assert_eq!(next, Next::Wait(Waiting::Blocked(failure)));
}

#[test]
fn a_lease_that_came_and_went_unseen_counts_as_served() {
    let unseen = Seen {
        served: true,
        ..seen()
    };
    let next = decide(&in_state(State::Annotated), Some(&unseen), &run());
    assert_eq!(next, drained(Reason::LeaseServed));
}

#[test]
fn corrected_ways_in_hold_at_once_also_for_a_teardown() {
    let corrected = Site {
        user: "lab".into(),
        port: 2222,
        credentials_secret: "rotated".into(),
        ..site()
    };
    let run = Wanted::Run {
        site: corrected.clone(),
        revision: "r1".into(),
        endpoint: grant().endpoint,
        replace_after_lease: true,
    };
    for state in [State::Credentialed, State::Annotated, State::Draining] {
        let event = Event::Rerouted(corrected.clone());
        let instance = in_state(state);
        let next = decide(&instance, Some(&seen()), &run);
        assert_eq!(next, Next::Record(event.clone()), "{state}");
        let rerouted = Instance::fold(Some(instance), &event).unwrap();
        assert_eq!(rerouted.site(), Some(&corrected));
    }
}

#[test]
fn a_host_that_was_never_written_to_needs_no_teardown() {
    let mut events = events_to(State::Credentialed);
    events.push(Event::Moved(Transition::Drained(Reason::HostChanged)));
    let disabled = Seen {
        enabled: false,
        ..seen()
    };
    assert_eq!(
        decide(&fold(&events), Some(&disabled), &run()),
        Next::Delete
    );
    let started = Event::StepStarted {
        steps: vec![Step::WriteConfig],
        attempt: 1,
        revision: Some("r1".into()),
    };
    events.insert(3, started);
    assert_eq!(decide(&fold(&events), Some(&disabled), &run()), Next::Undo);
}

#[test]
fn units_are_not_restarted_under_a_lease() {
    let revised = Event::Moved(Transition::Revised(Revised {
        revision: "r2".into(),
        endpoint: grant().endpoint,
    }));
    let wrote = Event::Moved(Transition::Wrote(crate::instance::WrittenFiles {
        revision: "r2".into(),
    }));
    let leased = Event::Leased { lease: "l1".into() };
    let mut events = events_to(State::Annotated);
    events.extend([revised, wrote, leased]);
    let held = Seen {
        lease: Some("l1".into()),
        ..seen()
    };
    let next = decide(&fold(&events), Some(&held), &wanted("r2"));
    assert_eq!(next, Next::Wait(Waiting::Lease("l1".into())));
}

#[test]
fn an_adopted_exporter_keeps_its_noted_host_until_its_lease_is_over() {
    let noted = Site {
        host: "old-host".into(),
        ..site()
    };
    let adopted = Event::Adopted {
        about: crate::instance::fixtures::about(),
        site: Some(noted.clone()),
    };
    let held = Seen {
        lease: Some("l1".into()),
        ..seen()
    };
    let leased = fold(&[adopted.clone(), Event::Leased { lease: "l1".into() }]);
    let next = decide(&leased, Some(&held), &run());
    assert!(matches!(next, Next::Grant(Grant { site, .. }) if site == noted));
    let free = fold(&[adopted]);
    let next = decide(&free, Some(&seen()), &run());
    assert_eq!(next, drained(Reason::HostChanged));
}

#[test]
fn without_credentials_or_endpoint_it_waits() {
    for part in [
        Seen {
            credential: None,
            ..seen()
        },
        Seen {
            endpoint: None,
            ..seen()
        },
    ] {
        let next = decide(&in_state(State::Pending), Some(&part), &run());
        assert_eq!(next, Next::Wait(Waiting::Credentials));
    }
}

#[test]
fn an_exporter_that_is_gone_or_going_is_drained() {
    for state in [
        State::Pending,
        State::Credentialed,
        State::Written,
        State::Annotated,
    ] {
        let going = Seen {
            deleting: true,
            ..seen()
        };
        let next = decide(&in_state(state), Some(&going), &run());
        assert_eq!(next, drained(Reason::ExporterDeleted));
        assert_eq!(
            decide(&in_state(state), None, &run()),
            drained(Reason::ExporterDeleted)
        );
    }
}

#[test]
fn a_drain_disables_waits_for_the_lease_undoes_and_deletes() {
    let leased = Seen {
        lease: Some("l1".into()),
        ..seen()
    };
    let mut events = events_to(State::Draining);
    events.push(Event::Leased { lease: "l1".into() });
    assert_eq!(decide(&fold(&events), Some(&leased), &run()), Next::Disable);

    events.push(Event::StepSucceeded {
        step: Step::Disable,
        changed: true,
        detail: String::new(),
    });
    let disabled = Seen {
        enabled: false,
        ..leased
    };
    assert_eq!(
        decide(&fold(&events), Some(&disabled), &run()),
        Next::Wait(Waiting::Lease("l1".into()))
    );

    let over = Seen {
        lease: None,
        ..disabled
    };
    events.push(Event::Unleased);
    assert_eq!(decide(&fold(&events), Some(&over), &run()), Next::Undo);
    let undone = step_done(State::Draining, &[Step::Disable, Step::Stop, Step::Reload]);
    assert_eq!(decide(&undone, Some(&over), &run()), Next::Delete);
}

#[test]
fn a_waived_teardown_deletes_without_undoing() {
    let waived = Seen {
        enabled: false,
        waived: Some("the host burned down".into()),
        ..seen()
    };
    let draining = in_state(State::Draining);
    let event = Event::Waived {
        reason: "the host burned down".into(),
    };
    assert_eq!(
        decide(&draining, Some(&waived), &run()),
        Next::Record(event.clone())
    );
    let draining = Instance::fold(Some(draining), &event).unwrap();
    assert_eq!(decide(&draining, Some(&waived), &run()), Next::Delete);
}

#[test]
fn a_new_revision_waits_for_the_lease() {
    let newer = wanted("r2");
    let revised = Event::Moved(Transition::Revised(Revised {
        revision: "r2".into(),
        endpoint: grant().endpoint,
    }));
    let online = Seen {
        online: true,
        ..seen()
    };
    let annotated = in_state(State::Annotated);
    assert_eq!(
        decide(&annotated, Some(&online), &newer),
        Next::Record(revised)
    );

    let leased = Seen {
        lease: Some("l1".into()),
        ..online
    };
    let held = Instance::fold(Some(annotated), &Event::Leased { lease: "l1".into() }).unwrap();
    assert_eq!(
        decide(&held, Some(&leased), &newer),
        Next::Wait(Waiting::Steady)
    );
}

#[test]
fn a_served_exporter_is_replaced_once_it_is_offline() {
    let mut events = events_to(State::Annotated);
    events.extend([Event::Leased { lease: "l1".into() }, Event::Unleased]);
    let served = fold(&events);
    let online = Seen {
        online: true,
        ..seen()
    };
    assert_eq!(
        decide(&served, Some(&online), &run()),
        Next::Wait(Waiting::Steady)
    );
    assert_eq!(
        decide(&served, Some(&seen()), &run()),
        drained(Reason::LeaseServed)
    );
    let reuse = Wanted::Run {
        endpoint: grant().endpoint,
        site: site(),
        revision: "r1".into(),
        replace_after_lease: false,
    };
    assert_eq!(
        decide(&served, Some(&seen()), &reuse),
        Next::Wait(Waiting::Steady)
    );
}

#[test]
fn what_is_missing_blocks_what_is_to_come_and_leaves_what_runs() {
    let failure = Failure::new(FailureClass::CaBundleMissing, "no ConfigMap");
    let blocked = Wanted::Blocked(failure.clone());
    for state in [State::Pending, State::Credentialed, State::Annotated] {
        let next = decide(&in_state(state), Some(&seen()), &blocked);
        assert_eq!(
            next,
            Next::Wait(Waiting::Blocked(failure.clone())),
            "{state}"
        );
    }
}

fn any_seen() -> impl Strategy<Value = Option<Seen>> {
    let one = (
        any::<(bool, bool, bool, bool)>(),
        any::<(bool, bool, bool)>(),
    )
        .prop_map(|(a, b)| Seen {
            uid: "uid-x1".into(),
            owned: a.1 != b.2,
            deleting: a.0,
            enabled: a.1,
            credential: a.2.then(|| "pool-x1-exporter".into()),
            endpoint: a.3.then(|| "jumpstarter:8082".into()),
            lease: b.0.then(|| "l1".into()),
            served: a.0 != b.1,
            online: b.1,
            waived: b.2.then(|| "gone".into()),
        });
    prop::option::of(one)
}

fn any_wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        Just(run()),
        Just(Wanted::Blocked(Failure::new(
            FailureClass::ClassMissing,
            "none"
        ))),
        Just(Wanted::Gone(Reason::ScaledDown)),
    ]
}

proptest! {
    /// Whatever is seen and wanted, what is recorded can be folded, and recording comes to an end.
    #[test]
    fn recording_settles(state in prop::sample::select(State::ALL), seen in any_seen(), wanted in any_wanted()) {
        let mut instance = in_state(state);
        for _ in 0..5 {
            match decide(&instance, seen.as_ref(), &wanted) {
                Next::Record(event) => instance = Instance::fold(Some(instance), &event).unwrap(),
                _ => return Ok(()),
            }
        }
        prop_assert!(false, "still recording in {}", instance.state());
    }

    /// The host of a leased exporter is never touched, unless its teardown was waived.
    #[test]
    fn nothing_is_undone_under_a_lease(state in prop::sample::select(State::ALL), seen in any_seen(), wanted in any_wanted()) {
        let leased = seen.as_ref().is_some_and(|seen| seen.lease.is_some());
        let next = decide(&in_state(state), seen.as_ref(), &wanted);
        prop_assert!(!(leased && next == Next::Undo));
    }
}
