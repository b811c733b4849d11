//! Instances come and go, whatever happens in between.

use crate::lab::{Instance, changes, fails, stdout, target};
use crate::proxy::Proxy;
use exporter_set_controller::host::{Op, SshHosts};
use exporter_set_controller::instance::{FailureClass, Step};

#[tokio::test]
async fn an_instance_comes_up_and_goes_and_nothing_is_done_twice() {
    let (hosts, instance) = (SshHosts::new(), Instance::new());
    let first = instance.run(&hosts, instance.up()).await;
    assert_eq!(
        changes(&first),
        [
            (Step::Connect, false),
            (Step::WriteConfig, true),
            (Step::WriteQuadlets, true),
            (Step::CreateVolume, true),
            (Step::Start, true),
        ],
        "{first:#?}"
    );
    let config = instance.names.config_path();
    assert_eq!(
        stdout(&format!("stat -c '%a %U:%G' {config}")),
        "400 root:root"
    );
    assert_eq!(
        stdout(&format!("cat {config}")),
        instance.config().content.trim()
    );
    instance.assert_active();
    assert!(!format!("{first:?}").contains(&instance.token));

    let again = instance.run(&hosts, instance.up()).await;
    assert!(
        changes(&again).iter().all(|(_, changed)| !changed),
        "{again:#?}"
    );

    let gone = instance.run(&hosts, Instance::down()).await;
    assert_eq!(
        changes(&gone),
        [
            (Step::Stop, true),
            (Step::RemoveFiles, true),
            (Step::RemoveVolume, true),
            (Step::Reload, true),
        ],
        "{gone:#?}"
    );
    assert_eq!(instance.left_on_host(), "");
    let again = instance.run(&hosts, Instance::down()).await;
    assert!(
        changes(&again).iter().all(|(_, changed)| !changed),
        "{again:#?}"
    );
}

#[tokio::test]
async fn two_instances_on_one_host_come_up_side_by_side_and_keep_to_themselves() {
    let hosts = SshHosts::new();
    let (one, two) = (Instance::new(), Instance::new());
    let (a, b) = tokio::join!(one.run(&hosts, one.up()), two.run(&hosts, two.up()));
    assert_eq!((a.len(), b.len()), (5, 5));
    for instance in [&one, &two] {
        stdout(&format!(
            "podman exec -d {} sh -c 'while :; do echo {} | nc -l -p 2222; done'",
            instance.names.runtime(),
            instance.name()
        ));
    }
    for instance in [&one, &two] {
        let exporter = instance.names.exporter_unit();
        let heard = stdout(&format!(
            "for i in $(seq 50); do podman exec {exporter} sh -c 'nc 127.0.0.1 2222 </dev/null' && break; sleep 0.1; done"
        ));
        assert_eq!(heard, instance.name());
    }
    let before = two.property(&two.names.exporter_unit(), "InvocationID");
    one.run(&hosts, Instance::down()).await;
    assert_eq!(one.left_on_host(), "");
    two.assert_active();
    assert_eq!(
        two.property(&two.names.exporter_unit(), "InvocationID"),
        before
    );
}

#[tokio::test]
async fn a_connection_cut_after_any_step_leaves_nothing_that_the_next_try_can_not_finish() {
    let instance = Instance::new();
    let hosts = SshHosts::new();
    let proxy = Proxy::to(&format!("{}:22", target().name)).await;
    let mut target = target();
    target.name = "127.0.0.1".to_owned();
    target.port = proxy.port;
    for ops in [instance.up(), Instance::down()] {
        let steps: Vec<_> = ops.iter().map(Op::step).collect();
        // After the last step there is nothing to interrupt.
        for cut_after in &steps[..steps.len() - 1] {
            let (reports, result) = instance
                .run_at(&hosts, &target, ops.clone(), |report| {
                    if report.step == *cut_after {
                        proxy.cut();
                    }
                })
                .await;
            // The host may have been faster than the cut.
            if let Err(failure) = result {
                assert_eq!(failure.class, FailureClass::OutcomeUnknown, "{failure}");
            }
            assert!(changes(&reports).iter().any(|(step, _)| step == cut_after));
        }
        // The dead connection is replaced.
        let (reports, result) = instance.run_at(&hosts, &target, ops.clone(), |_| ()).await;
        assert_eq!(result, Ok(()), "{reports:#?}");
        assert_eq!(changes(&reports).len(), steps.len(), "{reports:#?}");
        if steps.contains(&Step::Start) {
            instance.assert_active();
        }
    }
    assert_eq!(instance.left_on_host(), "");
}

#[tokio::test]
async fn what_is_left_is_not_called_gone() {
    let hosts = SshHosts::new();
    let instance = Instance::new();
    instance.run(&hosts, instance.up()).await;
    let ops = vec![Op::Stop, Op::RemoveVolume, Op::Reload];
    let failure = fails(
        &instance,
        ops,
        FailureClass::HostScriptFailed,
        "still on the host",
    )
    .await;
    for left in [
        instance.names.config_path(),
        instance.names.quadlet_path(&instance.names.net()),
        format!(
            "/run/systemd/generator/{}.service",
            instance.names.runtime()
        ),
    ] {
        assert!(failure.message.contains(&left), "{left}: {failure}");
    }
    instance.run(&hosts, Instance::down()).await;
    assert_eq!(instance.left_on_host(), "");
}
