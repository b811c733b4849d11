//! What the pure parts cost: `cargo bench --bench engine`.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use exporter_set_controller::api::{DriverConfig, Images, Parameters, RecycleStrategy};
use exporter_set_controller::instance::{
    About, AnnotatedAt, Event, Grant, Instance, Reason, RunningUnits, Seen, Site, Step, TornDown,
    Transition, Wanted, WrittenFiles, decide,
};
use exporter_set_controller::render::{Inputs, render};
use std::hint::black_box;

fn site() -> Site {
    Site {
        host: "lab-host-01.example.com".into(),
        user: "root".into(),
        port: 22,
        credentials_secret: "lab-ssh-key".into(),
        host_key: None,
    }
}

/// The events of a whole life, as the controller journals them.
fn life() -> Vec<Event> {
    let done = |step| Event::StepSucceeded {
        step,
        changed: true,
        detail: "done".into(),
    };
    let begun = |steps: &[Step]| Event::StepStarted {
        steps: steps.to_vec(),
        attempt: 1,
        revision: None,
    };
    let grant = Grant {
        endpoint: "jumpstarter:8082".into(),
        credential: "pool-x1-exporter".into(),
        site: site(),
    };
    vec![
        Event::Planned(About {
            namespace: "lab".into(),
            name: "pool-x1".into(),
            uid: None,
            set: "pool".into(),
            set_uid: "uid".into(),
        }),
        begun(&[Step::Create]),
        Event::Created {
            uid: "uid-x1".into(),
        },
        done(Step::Create),
        begun(&[Step::AwaitCredentials]),
        Event::Moved(Transition::Granted(grant)),
        begun(&[Step::Connect]),
        done(Step::Connect),
        begun(&[Step::WriteConfig, Step::WriteQuadlets, Step::CreateVolume]),
        done(Step::WriteConfig),
        done(Step::WriteQuadlets),
        Event::Moved(Transition::Wrote(WrittenFiles {
            revision: "r1".into(),
        })),
        begun(&[Step::Start]),
        Event::Moved(Transition::Started(RunningUnits {
            units: vec!["u".into()],
        })),
        begun(&[Step::Annotate]),
        Event::Moved(Transition::Annotated(AnnotatedAt {
            resource_version: "7".into(),
        })),
        Event::Leased { lease: "l1".into() },
        Event::Unleased,
        Event::Moved(Transition::Drained(Reason::LeaseServed)),
        begun(&[Step::Disable]),
        done(Step::Disable),
        begun(&[
            Step::Stop,
            Step::RemoveFiles,
            Step::RemoveVolume,
            Step::Reload,
        ]),
        done(Step::Stop),
        done(Step::RemoveFiles),
        done(Step::RemoveVolume),
        done(Step::Reload),
        begun(&[Step::Delete]),
        Event::Moved(Transition::TornDown(TornDown)),
    ]
}

fn fold(events: &[Event]) -> Instance {
    let folded = events.iter().fold(None, |instance, event| {
        Some(Instance::fold(instance, event).unwrap())
    });
    folded.unwrap()
}

fn benches(criterion: &mut Criterion) {
    let life = life();
    let mut group = criterion.benchmark_group("instance");
    group.throughput(Throughput::Elements(life.len() as u64));
    group.bench_function("fold a life", |bencher| {
        bencher.iter(|| fold(black_box(&life)));
    });
    group.throughput(Throughput::Elements(1));
    let annotated = fold(life.get(..16).unwrap());
    let seen = Seen {
        uid: "uid-x1".into(),
        enabled: true,
        online: true,
        ..Seen::default()
    };
    let wanted = Wanted::Run {
        site: site(),
        revision: "r1".into(),
        endpoint: "jumpstarter:8082".into(),
        replace_after_lease: true,
    };
    group.bench_function("decide", |bencher| {
        bencher.iter(|| decide(black_box(&annotated), Some(&seen), &wanted));
    });
    group.finish();

    let parameters = serde_json::json!({
        "host": {"name": "lab-host-01.example.com"},
        "runtime": {"kvm": true},
        "arch": "aarch64",
        "resources": {"cpu": 4, "memory": "4Gi"},
        "storage": {"size": "16Gi"},
    });
    let mut group = criterion.benchmark_group("render");
    group.bench_function("parameters", |bencher| {
        bencher.iter_batched(
            || parameters.clone(),
            |parameters| Parameters::resolve(Some(&parameters), None).unwrap(),
            BatchSize::SmallInput,
        );
    });
    let parameters = Parameters::resolve(Some(&parameters), None).unwrap();
    let drivers = [DriverConfig {
        name: "qemu".into(),
        type_: Some("jumpstarter_driver_qemu.driver.Qemu".into()),
        ..DriverConfig::default()
    }];
    let inputs = Inputs {
        namespace: "lab",
        exporter: "pool-x1",
        exporter_uid: "uid-x1",
        set: "pool",
        endpoint: "jumpstarter:8082",
        ca_pem: "",
        token: "",
        drivers: &drivers,
        parameters: &parameters,
        images: &Images::default(),
        recycle: RecycleStrategy::ExitAndReplace,
    };
    group.bench_function("files of an instance", |bencher| {
        bencher.iter(|| render(black_box(&inputs)).unwrap());
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
