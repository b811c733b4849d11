//! The documentation's manifests become one running exporter, and what an administrator looks for
//! on the host is there.

use super::harness::{Lab, eventually, hosts_are_shared, text};
use super::manifests::Pool;
use kube::ResourceExt;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn one_exporter_comes_up() {
    let _shared = hosts_are_shared().await;
    let (lab, pool) = Pool::in_lab("light", 1, |_| {}).await;
    let mut controller = lab.controller();
    let exporters = lab.running(1).await;
    let name = exporters[0].name_any();

    the_troubleshooting_commands_find_it(&lab, &name);
    the_config_is_right_and_private(&lab, &name).await;
    the_status_says_so(&lab, &pool.set).await;

    assert_eq!(controller.stop().await, Some(0));
    assert_eq!(
        lab.running(1).await[0].name_any(),
        name,
        "it runs on without the controller"
    );
    let _controller = lab.controller();
    lab.remove_all(1).await;
}

fn the_troubleshooting_commands_find_it(lab: &Lab, name: &str) {
    let find = |command: &str| lab.testbed.ssh(1, command);
    let containers =
        find("podman ps -a --filter 'name=-(runtime|exporter)$' --format '{{.Names}} {{.State}}'");
    for part in ["runtime", "exporter"] {
        assert!(
            containers.contains(&format!("{name}-{part} running")),
            "{containers}"
        );
    }
    let units = find("systemctl status --no-pager '*-runtime.service' '*-exporter.service'");
    for part in ["runtime", "exporter"] {
        assert!(units.contains(&format!("{name}-{part}.service")), "{units}");
    }
    let log = find(&format!("journalctl --no-pager -u {name}-exporter"));
    assert!(log.contains("Started"), "{log}");
    let quadlets = find("ls /etc/containers/systemd/*.container");
    for part in ["net", "runtime", "exporter"] {
        assert!(quadlets.contains(&format!("/etc/containers/systemd/{name}-{part}.container")));
    }
    let without_suffix = lab
        .testbed
        .try_ssh(1, "systemctl status '*-runtime' '*-exporter'");
    assert_eq!(
        text(&without_suffix.stdout),
        "",
        "a glob without the suffix finds nothing"
    );
}

async fn the_config_is_right_and_private(lab: &Lab, name: &str) {
    let path = format!("/etc/jumpstarter/exporters/{name}.yaml");
    let config = lab.testbed.ssh(1, &format!("cat {path}"));
    let config: Value = serde_yaml::from_str(&config).unwrap();
    let endpoint = lab.testbed.get("TESTBED_JUMPSTARTER_ENDPOINT");
    assert_eq!(config["endpoint"], endpoint);
    assert_eq!(config["exitOnLeaseEnd"], true);
    assert_eq!(config["metadata"]["name"], name);
    assert_eq!(config["metadata"]["namespace"], lab.namespace.as_str());
    assert_eq!(config["token"], lab.token(name).await);
    let ca = lab.kubectl(
        &[
            "get",
            "configmap",
            "jumpstarter-service-ca-cert",
            "-o",
            "jsonpath={.data.ca\\.crt}",
        ],
        "",
    );
    use base64::Engine;
    let decoded = base64::engine::general_purpose::STANDARD
        .decode(config["tls"]["ca"].as_str().unwrap())
        .unwrap();
    assert_eq!(String::from_utf8(decoded).unwrap(), ca);
    let qemu = &config["export"]["qemu"]["config"];
    assert_eq!(qemu["launcher_socket"], "/shared/launcher.sock");
    assert_eq!(
        (qemu["smp"].clone(), qemu["mem"].clone()),
        (4.into(), "4G".into())
    );
    assert_eq!(
        (qemu["disk_size"].clone(), qemu["arch"].clone()),
        ("16G".into(), "aarch64".into())
    );
    assert_eq!(config["export"]["power"]["ref"], "qemu.power");
    assert_eq!(config["export"]["tcp"]["config"]["port"], 2222);

    let mode = lab.testbed.ssh(1, &format!("stat -c '%a %U:%G' {path}"));
    assert_eq!(mode.trim(), "400 root:root");
    let outsider = lab
        .testbed
        .try_ssh(1, &format!("runuser -u nobody -- cat {path}"));
    assert!(!outsider.status.success(), "nobody can read it");
    let seen = lab.testbed.ssh(
        1,
        &format!("podman exec {name}-exporter ls /etc/jumpstarter/exporters"),
    );
    assert_eq!(
        seen.trim(),
        format!("{name}.yaml"),
        "the container sees its own config only"
    );
}

async fn the_status_says_so(lab: &Lab, set: &str) {
    eventually("the counters", || async {
        let status = lab.set(set).await.status.unwrap_or_default();
        let counts = (
            (
                status.replicas,
                status.ready_replicas,
                status.available_replicas,
            ),
            (status.unavailable_replicas, status.leased_replicas),
            (status.pods_pending, status.pods_running, status.pods_failed),
            (
                status.exporters_active,
                status.exporters_idle,
                status.exporters_offline,
            ),
        );
        let want = ((1, 1, 1), (0, 0), (0, 1, 0), (0, 1, 0));
        if counts == want {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
    let want = [
        (
            "Available",
            "True MinimumReplicasAvailable 1/0 replicas ready",
        ),
        (
            "Progressing",
            "False AllReplicasReady All replicas are ready",
        ),
        ("Degraded", "False AllReplicasHealthy No degraded replicas"),
        (
            "ScalingLimited",
            "False WithinLimits Scaling is not constrained",
        ),
    ];
    for (type_, condition) in want {
        assert_eq!(lab.condition(set, type_).await, condition);
    }
    let reasons: Vec<String> = lab
        .events()
        .await
        .into_iter()
        .filter_map(|e| e.reason)
        .collect();
    for reason in ["ScaleUp", "Deployed", "ExporterSetSettled"] {
        assert!(
            reasons.iter().any(|r| r == reason),
            "no Event {reason} among {reasons:?}"
        );
    }
    assert!(
        !reasons.iter().any(|r| r == "ExporterSetDegraded"),
        "nothing was degraded on the way"
    );
}
