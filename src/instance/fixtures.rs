//! Instances and events for the tests of this folder and of those that build on it.

use super::*;

pub(crate) fn about() -> About {
    About {
        namespace: "lab".into(),
        name: "pool-x1".into(),
        uid: Some("uid-x1".into()),
        set: "pool".into(),
        set_uid: "uid-pool".into(),
    }
}

pub(crate) fn site() -> Site {
    Site {
        host: "lab-host-01.example.com".into(),
        user: "root".into(),
        port: 22,
        credentials_secret: "lab-ssh-key".into(),
        host_key: None,
    }
}

pub(crate) fn grant() -> Grant {
    Grant {
        endpoint: "jumpstarter:8082".into(),
        credential: "pool-x1-exporter".into(),
        site: site(),
    }
}

/// One transition of each kind, in the order of [`TransitionKind::ALL`].
pub(crate) fn transitions() -> Vec<Transition> {
    vec![
        Transition::Granted(grant()),
        Transition::Wrote(WrittenFiles {
            revision: "r1".into(),
        }),
        Transition::Started(RunningUnits {
            units: vec!["pool-x1-runtime.service".into()],
        }),
        Transition::Annotated(AnnotatedAt {
            resource_version: "7".into(),
        }),
        Transition::Drifted(Drifted {
            what: "a unit is inactive".into(),
        }),
        Transition::Revised(Revised {
            revision: "r2".into(),
            endpoint: grant().endpoint,
        }),
        Transition::Drained(Reason::ScaledDown),
        Transition::TornDown(TornDown),
    ]
}

/// The events that lead to `state` by the shortest way.
pub(crate) fn events_to(state: State) -> Vec<Event> {
    let forward = transitions();
    let moves: &[usize] = match state {
        State::Pending => &[],
        State::Credentialed => &[0],
        State::Written => &[0, 1],
        State::Started => &[0, 1, 2],
        State::Annotated => &[0, 1, 2, 3],
        State::Draining => &[0, 1, 2, 3, 6],
        State::Deleted => &[0, 1, 2, 3, 6, 7],
    };
    let mut events = vec![
        Event::Planned(About {
            uid: None,
            ..about()
        }),
        Event::Created {
            uid: "uid-x1".into(),
        },
    ];
    for index in moves {
        if *index == 1 {
            events.push(Event::StepStarted {
                steps: vec![Step::WriteConfig],
                attempt: 1,
                revision: Some("r1".into()),
            });
        }
        events.push(Event::Moved(forward[*index].clone()));
    }
    events
}

pub(crate) fn fold(events: &[Event]) -> Instance {
    events
        .iter()
        .fold(None, |instance, event| {
            Some(Instance::fold(instance, event).unwrap())
        })
        .unwrap()
}

pub(crate) fn in_state(state: State) -> Instance {
    fold(&events_to(state))
}
