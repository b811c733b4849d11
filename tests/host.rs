//! Batches on a real lab host of the testbed.
#![allow(missing_docs, unreachable_pub, dead_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "host/lab.rs"]
mod lab;

#[path = "host/proxy.rs"]
mod proxy;

use exporter_set_controller::api::{ImageSpec, PullPolicy};
use exporter_set_controller::host::{HostKeys, Op, Report, SshHosts};
use exporter_set_controller::instance::{Failure, FailureClass, Step};
use exporter_set_controller::render::HostFile;
use lab::{Instance, changes, connect, env, key_file, on_host, stdout, target};
use proxy::Proxy;
use std::time::Duration;

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
async fn who_is_not_let_in_or_not_the_right_host_is_told_apart() {
    let address = format!("root@{}", target().name);
    let failure = |mut change: Box<dyn FnMut(&mut exporter_set_controller::host::Target)>| {
        let mut target = target();
        change(&mut target);
        async move { connect(&target).await.expect_err("connected") }
    };
    let rejected = failure(Box::new(|t| t.key = key_file("TESTBED_SSH_KEY_WRONG"))).await;
    assert_eq!(
        rejected.class,
        FailureClass::AuthenticationRejected,
        "{rejected}"
    );
    assert!(
        rejected.message.contains(&format!("{address}:22")),
        "{rejected}"
    );
    assert!(rejected.message.contains("SHA256:"), "{rejected}");

    let encrypted = failure(Box::new(|t| t.key = key_file("TESTBED_SSH_KEY_ENCRYPTED"))).await;
    assert_eq!(encrypted.class, FailureClass::BadPrivateKey, "{encrypted}");

    let other = env("TESTBED_HOST_2_KEY");
    let mismatch = failure(Box::new(|t| {
        t.host_keys = HostKeys::Pinned(other.to_owned())
    }))
    .await;
    assert_eq!(mismatch.class, FailureClass::HostKeyMismatch, "{mismatch}");
    assert!(
        mismatch.message.contains(env("TESTBED_HOST_1_KEY")),
        "{mismatch}"
    );

    let refused = failure(Box::new(|t| t.port = 1)).await;
    assert_eq!(refused.class, FailureClass::ConnectionRefused, "{refused}");
    assert!(
        refused.message.contains(&format!("{address}:1")),
        "{refused}"
    );
}

#[tokio::test]
async fn what_was_shown_at_first_use_is_what_pins_the_host() {
    let mut target = target();
    target.host_keys = HostKeys::FirstUse;
    let line = connect(&target).await.unwrap().known_hosts_line;
    assert_eq!(
        line,
        format!("{} {}", target.name, env("TESTBED_HOST_1_KEY"))
    );
    target.host_keys = HostKeys::KnownHosts(line);
    connect(&target).await.unwrap();
}

#[tokio::test]
async fn a_pinned_key_is_asked_for_even_if_the_host_would_show_another() {
    let unit = format!("t-host-sshd-{}", std::process::id());
    let port = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let keys = format!("/run/{unit}");
    let shown = stdout(&format!(
        "mkdir {keys} && for t in rsa ed25519; do ssh-keygen -q -t $t -N '' -f {keys}/$t; done && systemd-run --quiet --unit={unit} /usr/sbin/sshd -D -p {port} -h {keys}/rsa -h {keys}/ed25519 && cut -d' ' -f1,2 {keys}/rsa.pub && ssh-keygen -lf {keys}/rsa.pub"
    ));
    let (line, fingerprint) = shown.split_once('\n').unwrap();
    let mut target = target();
    target.port = port;
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let mut greetings = Vec::new();
    for pin in [line, fingerprint.split(' ').nth(1).unwrap()] {
        target.host_keys = HostKeys::Pinned(pin.to_owned());
        let mut greeting = connect(&target).await;
        while greeting.is_err() && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
            greeting = connect(&target).await;
        }
        greetings.push(greeting);
    }
    on_host(&format!("systemctl stop {unit}; rm -r {keys}"));
    for greeting in greetings {
        let expected = format!("[{}]:{port} {line}", target.name);
        assert_eq!(greeting.unwrap().known_hosts_line, expected);
    }
}

#[tokio::test]
async fn a_login_that_can_not_become_root_is_told_so() {
    let instance = Instance::new();
    let mut target = target();
    target.user = format!("u{}", std::process::id());
    let (user, home) = (&target.user, format!("/home/{}", target.user));
    stdout(&format!(
        "useradd -m -s /bin/sh {user} && mkdir -m 700 {home}/.ssh && cp /root/.ssh/authorized_keys {home}/.ssh/ && chown -R {user} {home}/.ssh"
    ));
    let (reports, result) = instance
        .run_at(&SshHosts::new(), &target, vec![Op::Stop], |_| ())
        .await;
    on_host(&format!("userdel -r {user}"));
    let failure = result.unwrap_err();
    assert_eq!(failure.class, FailureClass::PermissionDenied, "{failure}");
    assert!(reports.is_empty());
}

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
async fn a_leader_that_was_followed_by_another_is_refused() {
    let hosts = SshHosts::new();
    let mut instance = Instance::new();
    instance.epoch = 5;
    instance.run(&hosts, vec![Op::Stop]).await;
    instance.epoch = 4;
    let (reports, result) = instance
        .try_run(&hosts, vec![Op::WriteConfig(instance.config())])
        .await;
    let failure = result.unwrap_err();
    assert_eq!(failure.class, FailureClass::Fenced, "{failure}");
    assert!(failure.message.contains("epoch 4"), "{failure}");
    assert_eq!(reports, [] as [Report; 0]);
    instance.epoch = 5;
    instance.run(&hosts, vec![Op::Stop]).await;
}

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

async fn fails(instance: &Instance, ops: Vec<Op>, class: FailureClass, part: &str) -> Failure {
    let failure = instance.failure(&SshHosts::new(), ops).await;
    assert_eq!(failure.class, class, "{failure}");
    assert!(failure.message.contains(part), "{part}: {failure}");
    failure
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
