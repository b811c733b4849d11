//! New revisions, used machines, wiped machines.

use crate::lab::{Instance, changes, fails, stdout};
use exporter_set_controller::host::{Op, SshHosts};
use exporter_set_controller::instance::{FailureClass, Step};

#[tokio::test]
async fn a_revision_is_in_effect_only_after_a_restart_and_only_where_it_counts() {
    let hosts = SshHosts::new();
    let mut instance = Instance::new();
    instance.run(&hosts, instance.up()).await;
    let (net, runtime, exporter) = (
        instance.names.net(),
        instance.names.runtime(),
        instance.names.exporter_unit(),
    );
    let invocations = |instance: &Instance| {
        [&net, &runtime, &exporter].map(|unit| instance.property(unit, "InvocationID"))
    };
    let first = invocations(&instance);
    instance.token = "another-token".to_owned();
    let write = vec![
        Op::WriteConfig(instance.config()),
        Op::Start { restart: false },
    ];
    let reports = instance.run(&hosts, write).await;
    assert_eq!(
        changes(&reports),
        [(Step::WriteConfig, true), (Step::Start, false)]
    );
    assert_eq!(invocations(&instance), first);

    let reports = instance
        .run(&hosts, vec![Op::Start { restart: true }])
        .await;
    assert_eq!(changes(&reports), [(Step::Start, true)]);
    let second = invocations(&instance);
    assert_eq!(second[..2], first[..2]);
    assert_ne!(second[2], first[2]);

    let mut quadlets = instance.quadlets();
    quadlets[1].content.push_str("# another revision\n");
    let write = vec![
        Op::WriteQuadlets(quadlets.clone()),
        Op::Start { restart: false },
    ];
    instance.run(&hosts, write).await;
    assert_eq!(invocations(&instance), second);
    let reports = instance
        .run(&hosts, vec![Op::Start { restart: true }])
        .await;
    assert_eq!(changes(&reports), [(Step::Start, true)]);
    let third = invocations(&instance);
    assert_eq!(third[0], second[0]);
    assert_ne!(third[1], second[1]);
    assert_ne!(
        third[2], second[2],
        "its driver would take the guest to be still on"
    );
    let reports = instance
        .run(&hosts, vec![Op::Start { restart: true }])
        .await;
    assert_eq!(changes(&reports), [(Step::Start, false)]);
}

#[tokio::test]
async fn an_instance_moves_to_the_hosts_network_and_back() {
    let hosts = SshHosts::new();
    let mut instance = Instance::new();
    instance.run(&hosts, instance.up()).await;
    let net = instance.names.net();
    for (host_network, holder) in [(true, "inactive"), (false, "active")] {
        instance.host_network = host_network;
        instance.run(&hosts, instance.up()).await;
        assert_eq!(instance.property(&net, "ActiveState"), holder);
        for unit in [instance.names.runtime(), instance.names.exporter_unit()] {
            assert_eq!(instance.property(&unit, "ActiveState"), "active");
            let network = stdout(&format!(
                "podman inspect --format '{{{{.HostConfig.NetworkMode}}}}' {unit}"
            ));
            assert_eq!(network == "host", host_network, "{network}");
        }
        let again = instance.run(&hosts, instance.up()).await;
        assert!(
            changes(&again).iter().all(|(_, changed)| !changed),
            "{again:#?}"
        );
    }
    instance.host_network = true;
    instance.run(&hosts, instance.up()).await;
    instance.run(&hosts, Instance::down()).await;
    assert_eq!(instance.left_on_host(), "");
}

#[tokio::test]
async fn a_used_machine_is_started_again_only_after_it_was_wiped() {
    let hosts = SshHosts::new();
    let instance = Instance::new();
    instance.run(&hosts, instance.up()).await;
    let exporter = instance.names.exporter_unit();
    stdout(&format!(
        "touch {}/root; systemctl stop {exporter}",
        instance.names.volume_data()
    ));
    let start = vec![Op::Start { restart: false }];
    let failure = fails(
        &instance,
        start.clone(),
        FailureClass::UnitFailed,
        &exporter,
    )
    .await;
    assert!(
        failure.message.contains("the machine has been used"),
        "{failure}"
    );
    let mut wiped = vec![instance.create_volume(true)];
    wiped.extend(start);
    instance.run(&hosts, wiped).await;
    instance.assert_active();
}

#[tokio::test]
async fn a_wiped_machine_has_nothing_of_its_last_user() {
    let hosts = SshHosts::new();
    let instance = Instance::new();
    instance.run(&hosts, instance.up()).await;
    let data = instance.names.volume_data();
    stdout(&format!(
        "mkdir {data}/.tmp && echo secret > {data}/.tmp/root && ln -s /etc {data}/link"
    ));
    let again = vec![instance.create_volume(true), Op::Start { restart: false }];
    let reports = instance.run(&hosts, again).await;
    assert_eq!(
        changes(&reports),
        [(Step::CreateVolume, true), (Step::Start, true)]
    );
    instance.assert_active();
    let left = stdout(&format!("ls -A {data}"));
    let staged = [
        "jumpstarter-exec",
        "launcher.sock",
        "OVMF_CODE.fd",
        "OVMF_VARS.fd",
    ];
    assert!(left.lines().all(|name| staged.contains(&name)), "{left}");
    assert!(left.contains("jumpstarter-exec"), "{left}");
    assert_eq!(stdout("ls -d /etc/passwd"), "/etc/passwd");

    // A forged program is replaced.
    stdout(&format!(
        "rm {data}/jumpstarter-exec && echo forged > {data}/jumpstarter-exec && chmod 755 {data}/jumpstarter-exec"
    ));
    let reports = instance
        .run(&hosts, vec![instance.create_volume(false)])
        .await;
    assert_eq!(changes(&reports), [(Step::CreateVolume, true)]);
}
