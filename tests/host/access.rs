//! Who is let in, which host it is, and whose word counts.

use crate::lab::{Instance, connect, env, key_file, on_host, stdout, target};
use exporter_set_controller::host::{HostKeys, Op, Report, SshHosts};
use exporter_set_controller::instance::FailureClass;
use std::time::Duration;

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
async fn the_token_shows_in_no_process_list_and_no_log_of_the_host() {
    let hosts = SshHosts::new();
    let instance = Instance::new();
    let flag = format!("/run/{}.over", instance.name());
    // Counts the command lines and environments that hold the token, and those that hold the volume.
    let look = format!(
        "until [ -e {flag} ]; do cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; done | tee >(grep -c '{}' >&2) | grep -c '{}'",
        other_than_itself(&instance.token),
        other_than_itself(&instance.names.volume()),
    );
    let watcher = tokio::task::spawn_blocking(move || on_host(&look));
    instance.run(&hosts, instance.up()).await;
    instance.run(&hosts, Instance::down()).await;
    stdout(&format!("touch {flag}"));
    let seen = watcher.await.unwrap();
    on_host(&format!("rm {flag}"));
    let count = |bytes: &[u8]| -> u32 { String::from_utf8_lossy(bytes).trim().parse().unwrap() };
    assert!(
        count(&seen.stdout) > 0,
        "nothing of the batch was seen: {seen:?}"
    );
    assert_eq!(count(&seen.stderr), 0);
    let logged = stdout("journalctl --quiet --no-pager --since -5min -o cat");
    assert!(!logged.contains(&instance.token));
}

/// A regular expression that matches `text`, but not the command line that it stands in.
fn other_than_itself(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    format!("[{first}]{rest}")
}
