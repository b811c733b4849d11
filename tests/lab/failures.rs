//! What goes wrong is said in the condition, the Event and the log: what, where, and what to do. The
//! other sets go on.

use super::harness::{Lab, eventually, hosts_are_shared};
use super::manifests::Pool;

/// One fault, and the words by which it is told.
struct Fault {
    name: &'static str,
    reason: &'static str,
    /// In condition, Event and log.
    says: Vec<String>,
    pool: Pool,
}

fn fault(lab: &Lab, name: &'static str, reason: &'static str, says: &[&str]) -> Fault {
    let pool = Pool {
        set: lab.unique(name),
        class: format!("class-{name}"),
        ..Pool::on(lab, 1)
    };
    let says = says.iter().map(|&text| text.to_owned()).collect();
    Fault {
        name,
        reason,
        says,
        pool,
    }
}

fn faults(lab: &Lab) -> Vec<Fault> {
    let host = lab.testbed.host(1);
    let bare = lab.testbed.host(9).to_owned();
    let at_host = format!("root@{host}:22");
    let at_port = format!("root@{host}:2");
    let mut faults = vec![
        fault(
            lab,
            "key",
            "AuthenticationRejected",
            &[&at_host, "authorized_keys"],
        ),
        fault(
            lab,
            "sealed",
            "BadPrivateKey",
            &["passphrase", "ssh-privatekey"],
        ),
        fault(
            lab,
            "secret",
            "CredentialsMissing",
            &["Secret no-such-key does not exist"],
        ),
        fault(
            lab,
            "dns",
            "HostUnreachable",
            &["no-such-host.invalid", "parameters.host.name"],
        ),
        fault(
            lab,
            "port",
            "ConnectionRefused",
            &[&at_port, "parameters.host.port"],
        ),
        fault(
            lab,
            "hostkey",
            "HostKeyMismatch",
            &[host, "parameters.host.hostKey"],
        ),
        fault(
            lab,
            "podman",
            "PodmanUnsuitable",
            &[&bare, "install Podman"],
        ),
        fault(lab, "device", "DeviceMissing", &["/dev/no-such-device"]),
        fault(
            lab,
            "image",
            "ImageUnavailable",
            &["localhost/no-such-image:test"],
        ),
    ];
    faults[0].pool.secret = "wrong-key".into();
    faults[1].pool.secret = "sealed-key".into();
    faults[2].pool.secret = "no-such-key".into();
    faults[3].pool.host = "no-such-host.invalid".into();
    faults[4].pool.parameters = "{host: {port: 2}}".into();
    let wrong = format!("SHA256:{}", "A".repeat(43));
    faults[5].pool.parameters = format!("{{host: {{hostKey: \"{wrong}\"}}}}");
    faults[6].pool.host = bare;
    faults[7].pool.parameters = "{runtime: {devices: [/dev/no-such-device]}}".into();
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn each_is_told_and_the_others_go_on() {
    let _shared = hosts_are_shared().await;
    let lab = Lab::new("faults").await;
    lab.secret("lab-ssh-key", "TESTBED_SSH_KEY");
    lab.secret("wrong-key", "TESTBED_SSH_KEY_WRONG");
    lab.secret("sealed-key", "TESTBED_SSH_KEY_ENCRYPTED");
    let good = Pool::on(&lab, 2);
    let faults = faults(&lab);
    for Fault { name, pool, .. } in &faults {
        let images =
            "images: {exporter: {image: \"localhost/no-such-image:test\", imagePullPolicy: Never}}";
        let set = match *name {
            "image" => pool
                .set()
                .replace("  parameters:", &format!("  {images}\n  parameters:")),
            _ => pool.set(),
        };
        lab.apply(&format!("{}---{set}", pool.class(&lab)));
    }
    lab.apply(&good.both(&lab));
    let controller = lab.controller();

    for Fault {
        name,
        reason,
        says,
        pool,
    } in &faults
    {
        let told = eventually(&format!("{name}: {reason}"), || async {
            let degraded = lab.condition(&pool.set, "Degraded").await;
            let right = degraded.starts_with(&format!("True {reason} "));
            if right { Ok(degraded) } else { Err(degraded) }
        })
        .await;
        for text in says {
            assert!(
                told.contains(text),
                "{name}: no '{text}' in the condition: {told}"
            );
        }
        let events = lab.events().await;
        let event = events.iter().find(|event| {
            event.reason.as_deref() == Some(reason)
                && event
                    .involved_object
                    .name
                    .as_ref()
                    .is_some_and(|n| n.starts_with(&pool.set))
        });
        let event = event.unwrap_or_else(|| panic!("{name}: no Event {reason}"));
        let message = event.message.clone().unwrap();
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let log = controller.log();
        let line = log
            .lines()
            .find(|line| line.contains(reason) && line.contains(&pool.set));
        let line = line.unwrap_or_else(|| panic!("{name}: no log line with {reason}"));
        for text in says {
            assert!(
                message.contains(text),
                "{name}: no '{text}' in the Event: {message}"
            );
            assert!(
                line.contains(text),
                "{name}: no '{text}' in the log: {line}"
            );
        }
    }
    eventually("the good set", || async {
        let available = lab
            .set(&good.set)
            .await
            .status
            .unwrap_or_default()
            .available_replicas;
        if available == 1 {
            Ok(())
        } else {
            Err(format!("{available} available"))
        }
    })
    .await;

    // An administrator's way out where nobody can get in.
    lab.kubectl(&["delete", "exportersets", "--all", "--wait=false"], "");
    let waiver = "qemu-ssh.jumpstarter.dev/waive-teardown=never was there";
    let set_of = |pool: &Pool| format!("exporterset.jumpstarter.dev/name={}", pool.set);
    for Fault { pool, .. } in &faults {
        lab.kubectl(&["annotate", "exporters", "-l", &set_of(pool), waiver], "");
    }
    lab.gone().await;
    lab.clean(1).await;
    lab.clean(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_cannot_be_used_are_named_by_their_path() {
    let lab = Lab::new("params").await;
    lab.secret("lab-ssh-key", "TESTBED_SSH_KEY");
    let set = |name: &str, parameters: &str| Pool {
        set: lab.unique(name),
        parameters: parameters.to_owned(),
        ..Pool::on(&lab, 1)
    };
    let cases = [
        (
            set("port", "{host: {port: \"22\"}}"),
            "spec.parameters.host.port",
        ),
        (
            set("kvm", "{runtime: {kvm: \"yes\"}}"),
            "spec.parameters.runtime.kvm",
        ),
        (
            set("typo", "{resources: {cpus: 4}}"),
            "spec.parameters.resources.cpus",
        ),
        (
            set("device", "{runtime: {devices: [sda]}}"),
            "spec.parameters.runtime.devices",
        ),
    ];
    lab.apply(&cases[0].0.class(&lab));
    for (pool, _) in &cases {
        lab.apply(&pool.set());
    }
    let cooldown = Pool {
        cooldown: "5 minutes".into(),
        ..set("cooldown", "{}")
    };
    lab.apply(&cooldown.set());
    let _controller = lab.controller();
    for (pool, path) in cases
        .iter()
        .map(|(pool, path)| (pool, *path))
        .chain([(&cooldown, "spec.scaleDownCooldown")])
    {
        for type_ in ["Available", "Degraded"] {
            eventually(path, || async {
                let condition = lab.condition(&pool.set, type_).await;
                let right = condition.contains(" InvalidParameters ") && condition.contains(path);
                if right { Ok(()) } else { Err(condition) }
            })
            .await;
        }
    }
    assert!(lab.exporters().await.is_empty());
}
