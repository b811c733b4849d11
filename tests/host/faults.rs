//! What is wrong with a host or with what it is given.

use crate::lab::{Instance, env, fails, stdout, target};
use exporter_set_controller::api::{ImageSpec, PullPolicy};
use exporter_set_controller::host::{HostKeys, Op, SshHosts};
use exporter_set_controller::instance::FailureClass;
use exporter_set_controller::render::HostFile;
use std::time::Duration;

#[tokio::test]
async fn what_belongs_to_another_exporter_is_left_alone() {
    let hosts = SshHosts::new();
    let instance = Instance::new();
    let runtime = instance.names.quadlet_path(&instance.names.runtime());
    let foreign = "[Container]\nImage=x\nLabel=jumpstarter.dev/exporter-uid=somebody-else\n";
    stdout(&format!("printf '{foreign}' > {runtime}"));
    for ops in [
        vec![Op::WriteConfig(instance.config())],
        vec![Op::WriteQuadlets(instance.quadlets())],
        vec![Op::Start { restart: true }],
        vec![Op::Stop],
        vec![Op::RemoveFiles],
    ] {
        let failure = instance.failure(&hosts, ops).await;
        assert_eq!(failure.class, FailureClass::NameConflict, "{failure}");
        assert!(failure.message.contains(&runtime), "{failure}");
        assert!(failure.message.contains("somebody-else"), "{failure}");
    }
    let written = stdout(&format!("find /etc -name '*{}*'", instance.name()));
    assert_eq!(written, runtime, "nothing else was written");

    // Without a label it may be taken over.
    stdout(&format!("printf '[Container]\nImage=x\n' > {runtime}"));
    instance
        .run(&hosts, vec![Op::WriteQuadlets(instance.quadlets())])
        .await;
    instance.run(&hosts, vec![Op::RemoveFiles]).await;

    let volume = instance.names.volume();
    stdout(&format!(
        "podman volume create --label jumpstarter.dev/exporter-uid=somebody-else {volume}"
    ));
    for ops in [vec![instance.create_volume(true)], vec![Op::RemoveVolume]] {
        let failure = instance.failure(&hosts, ops).await;
        assert_eq!(failure.class, FailureClass::NameConflict, "{failure}");
        assert!(failure.message.contains(&volume), "{failure}");
    }
}

#[tokio::test]
async fn what_a_host_lacks_is_named() {
    let instance = Instance::new();
    let preflight = |devices: &[&str], image: Option<(&str, PullPolicy)>| {
        vec![Op::Preflight {
            devices: devices.iter().map(|device| (*device).to_owned()).collect(),
            images: image
                .map(|(image, policy)| ImageSpec {
                    image: Some(image.to_owned()),
                    image_pull_policy: Some(policy),
                })
                .into_iter()
                .collect(),
        }]
    };
    let missing = preflight(&["/dev/kvm", "/dev/nope"], None);
    fails(
        &instance,
        missing,
        FailureClass::DeviceMissing,
        "/dev/nope is not on the host",
    )
    .await;
    let no_device = preflight(&["/etc/passwd"], None);
    fails(
        &instance,
        no_device,
        FailureClass::DeviceMissing,
        "is no device",
    )
    .await;
    let never = preflight(&[], Some(("localhost/not-there:1", PullPolicy::Never)));
    fails(
        &instance,
        never,
        FailureClass::ImageUnavailable,
        "must not be pulled",
    )
    .await;
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Always] {
        let pulled = preflight(&[], Some(("localhost:1/not-there:1", policy)));
        let failure = fails(
            &instance,
            pulled,
            FailureClass::ImageUnavailable,
            "localhost:1/not-there:1",
        )
        .await;
        assert!(failure.message.contains("refused"), "{failure}");
    }
}

#[tokio::test]
async fn a_quadlet_that_the_generator_refuses_is_not_installed() {
    let instance = Instance::new();
    let mut quadlets = instance.quadlets();
    quadlets[1].content = quadlets[1]
        .content
        .replace("[Container]", "[Container]\nNoSuchKey=1");
    let ops = vec![Op::WriteQuadlets(quadlets)];
    fails(&instance, ops, FailureClass::QuadletRejected, "NoSuchKey").await;
    let dir = stdout("ls /etc/containers/systemd");
    assert!(!dir.contains(instance.name()), "{dir}");
}

#[tokio::test]
async fn a_unit_that_does_not_start_is_shown_with_its_log() {
    let instance = Instance::new();
    let hosts = SshHosts::new();
    let mut quadlets = instance.quadlets();
    let failing =
        "[Service]\nExecStartPre=/bin/sh -c 'echo boom eyJhbGciOiJFUzI1NiJ9.e30.c2ln; exit 3'";
    quadlets[1].content = quadlets[1].content.replace("[Service]", failing);
    let mut ops = instance.up();
    ops[2] = Op::WriteQuadlets(quadlets);
    let failure = fails(&instance, ops, FailureClass::UnitFailed, "-runtime.service").await;
    assert!(failure.message.contains("boom [redacted]"), "{failure}");
    // The next try, with a quadlet that works, mends it.
    instance.run(&hosts, instance.up()).await;
    instance.assert_active();
}

#[tokio::test]
async fn a_batch_that_takes_too_long_is_ended_on_the_host() {
    let hosts = SshHosts::new();
    let mut instance = Instance::new();
    let mut quadlets: Vec<HostFile> = instance.quadlets();
    quadlets[1].content = quadlets[1]
        .content
        .replace("[Service]", "[Service]\nExecStartPre=/bin/sleep 100");
    let mut ops = instance.up();
    ops[2] = Op::WriteQuadlets(quadlets);
    instance.limit = Duration::from_secs(5);
    let (_, result) = instance.try_run(&hosts, ops).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.class, FailureClass::Timeout, "{failure}");
    assert!(failure.message.contains("longer than 5 s"), "{failure}");
    instance.limit = Duration::from_secs(120);
    instance.run(&hosts, Instance::down()).await;
    assert_eq!(instance.left_on_host(), "");
}

#[tokio::test]
async fn a_host_without_podman_is_told_so() {
    let bare = env("TESTBED_BARE_HOST");
    let mut target = target();
    target.name = env(&format!("TESTBED_HOST_{bare}")).to_owned();
    target.host_keys = HostKeys::Pinned(env(&format!("TESTBED_HOST_{bare}_KEY")).to_owned());
    let instance = Instance::new();
    let (reports, result) = instance
        .run_at(&SshHosts::new(), &target, instance.up(), |_| ())
        .await;
    let failure = result.unwrap_err();
    assert_eq!(failure.class, FailureClass::PodmanUnsuitable, "{failure}");
    assert!(failure.message.contains(&target.name), "{failure}");
    assert!(reports.is_empty());
}
