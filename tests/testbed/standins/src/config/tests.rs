//! What the exporter starts with, and what it refuses.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

const GOOD: &str = r#"{
  "apiVersion": "jumpstarter.dev/v1alpha1", "kind": "ExporterConfig",
  "metadata": {"namespace": "lab", "name": "x1"},
  "endpoint": "grpc.example.com:8082", "token": "header.claims.signature",
  "tls": {"ca": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=", "insecure": false},
  "grpcOptions": {
    "grpc.service_config": "{\"methodConfig\":[{\"name\":[{\"service\":\"jumpstarter.v1.ControllerService\"}],\"waitForReady\":true}]}",
    "grpc.max_reconnect_backoff_ms": 5000
  },
  "export": {
    "qemu": {"type": "jumpstarter_driver_qemu.driver.Qemu", "config": {
      "launcher_socket": "/shared/launcher.sock", "arch": "aarch64", "smp": 4, "mem": "4G", "disk_size": "16G",
      "default_partitions": {"OVMF_CODE.fd": "/a", "OVMF_VARS.fd": "/b"},
      "hostfwd": {"ssh": {"hostaddr": "127.0.0.1", "hostport": 2222, "guestport": 22}},
      "virtio_transport": "mmio"}},
    "power": {"ref": "qemu.power"},
    "tcp": {"type": "jumpstarter_driver_network.driver.TcpNetwork", "config": {"host": "127.0.0.1", "port": 2222}}
  },
  "exitOnLeaseEnd": true, "someday": {"unknown": "keys are ignored"}
}"#;

#[test]
fn a_complete_config_is_understood() {
    let config = ExporterConfig::parse(GOOD).unwrap();
    assert_eq!(
        (config.namespace.as_str(), config.name.as_str()),
        ("lab", "x1")
    );
    assert_eq!(config.endpoint, "grpc.example.com:8082");
    assert_eq!(config.token, "header.claims.signature");
    assert!(config.ca.starts_with(b"-----BEGIN CERTIFICATE-----"));
    assert!(config.exit_on_lease_end && config.waits_for_controller);
    assert_eq!(config.max_reconnect_backoff_ms, 5000);
    assert_eq!(config.drivers.target.as_deref(), Some("127.0.0.1:2222"));
    assert!(
        !format!("{config:?}").contains("claims"),
        "the token shows in Debug output"
    );
}

#[test]
fn the_least_that_is_needed() {
    let text = "apiVersion: jumpstarter.dev/v1alpha1\nkind: ExporterConfig\n\
                metadata: {namespace: lab, name: x1}\nendpoint: localhost:8082\ntoken: abc\n";
    let config = ExporterConfig::parse(text).unwrap();
    assert!(config.ca.is_empty() && !config.exit_on_lease_end && !config.waits_for_controller);
    assert_eq!(
        config.drivers.devices(|| "id".into()).len(),
        1,
        "the root only"
    );
}

#[test]
fn devices_form_the_tree_of_drivers() {
    let mut next = 0;
    let devices = ExporterConfig::parse(GOOD).unwrap().drivers.devices(|| {
        next += 1;
        format!("u{next}")
    });
    let root = &devices.first().unwrap().uuid;
    let named = |name: &str| {
        let is_named = |device: &&Device| device.labels.values().any(|value| value == name);
        devices.iter().filter(is_named).collect::<Vec<_>>()
    };
    let qemu = named("qemu").pop().unwrap();
    assert_eq!(qemu.parent_uuid.as_ref(), Some(root));
    // One below QEMU, and the top-level ref of the same name.
    let parents: Vec<_> = named("power")
        .into_iter()
        .map(|d| d.parent_uuid.clone())
        .collect();
    assert_eq!(parents, [Some(root.clone()), Some(qemu.uuid.clone())]);
}

/// Each row: a text of the good config, what stands there instead, and the refusal.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "jumpstarter.dev/v1alpha1",
        "jumpstarter.dev/v1",
        "apiVersion: must be jumpstarter.dev/v1alpha1",
    ),
    (
        "\"ExporterConfig\"",
        "\"ClientConfig\"",
        "kind: must be ExporterConfig",
    ),
    ("\"metadata\"", "\"meta\"", "metadata: is required"),
    (
        "\"name\": \"x1\"",
        "\"name\": 17",
        "metadata.name: must be a string, is an integer",
    ),
    (
        "\"x1\"",
        "no",
        "metadata.name: must be a string, is a boolean",
    ),
    (
        "\"lab\"",
        "2001-01-01",
        "metadata.namespace: must be a string, is a date",
    ),
    (
        "\"lab\"",
        "12:30",
        "metadata.namespace: must be a string, is an integer",
    ),
    (":8082", "", "endpoint: must be HOST:PORT"),
    ("\"token\"", "\"tokens\"", "token: is required"),
    (
        "\"header.claims.signature\"",
        "null",
        "token: must be a string, is null",
    ),
    (
        "LS0tLS1C",
        "LS0tLS1*",
        "tls.ca: must be base64 of a PEM bundle",
    ),
    (
        "LS0tLS1CRUdJTiB",
        "AAAtLS1CRUdJTiB",
        "tls.ca: must be base64 of a PEM bundle: no certificate inside",
    ),
    (
        "\"insecure\": false",
        "\"insecure\": \"false\"",
        "tls.insecure: must be a boolean, is a string",
    ),
    (
        "5000",
        "5.5",
        "grpcOptions.grpc.max_reconnect_backoff_ms: must be a string or an integer",
    ),
    (
        "{\\\"methodConfig",
        "\\\"methodConfig",
        "grpcOptions.grpc.service_config: must be JSON",
    ),
    (
        "\"mem\": \"4G\"",
        "\"mem\": 4294967296",
        "export.qemu.config.mem: must be a string, is an integer",
    ),
    (
        "\"mem\": \"4G\"",
        "\"mem\": \"4Gi\"",
        "export.qemu.config.mem: must be a size such as 512M or 4G",
    ),
    (
        "\"smp\": 4",
        "\"smp\": \"4\"",
        "export.qemu.config.smp: must be an integer, is a string",
    ),
    (
        "OVMF_CODE.fd",
        "kernel",
        "export.qemu.config.default_partitions.kernel: no such partition",
    ),
    (
        "\"hostport\": 2222",
        "\"hostport\": 70000",
        "export.qemu.config.hostfwd.ssh.hostport: must be a decimal",
    ),
    (
        "{\"host\": \"127.0.0.1\", \"port\": 2222}",
        "null",
        "export.tcp.config: must be a map, is null",
    ),
    (
        "{\"host\": \"127.0.0.1\", \"port\": 2222}",
        "{}",
        "export.tcp.config.host: is required",
    ),
    (
        "\"qemu.power\"",
        "\"vm.power\"",
        "export.power.ref: there is no driver vm in export",
    ),
    (
        "\"qemu.power\"",
        "\"qemu.fan\"",
        "export.power.ref: the driver qemu has no child fan",
    ),
    (
        "\"qemu.power\"",
        "\"power\"",
        "export.power.ref: points to itself",
    ),
    (
        "\"qemu.power\"",
        "\"qemu..power\"",
        "export.power.ref: must be names joined by dots",
    ),
    (
        "{\"ref\": \"qemu.power\"}",
        "{\"ref\": \"qemu.power\", \"config\": {}}",
        "export.power: a ref has no config",
    ),
    (
        "{\"ref\": \"qemu.power\"}",
        "{}",
        "export.power: needs a type, a ref or children",
    ),
    (
        "{\"ref\": \"qemu.power\"}",
        "{\"type\": \"Power\"}",
        "export.power.type: must be a class's path",
    ),
    (
        "{\"ref\": \"qemu.power\"}",
        "{\"type\": \"jumpstarter_driver_power.driver.QemuPower\"}",
        "export.power.type: can't be loaded: no such class",
    ),
    (
        "{\"ref\": \"qemu.power\"}",
        "{\"type\": \"jumpstarter_driver_qemu.driver.QemuPower\"}",
        "export.power.type: can't be loaded: needs a parent",
    ),
    (
        "\"exitOnLeaseEnd\": true",
        "\"exitOnLeaseEnd\": \"yes\"",
        "exitOnLeaseEnd: must be a boolean",
    ),
    ("\"power\": {", "\"qemu\": {", "the key qemu a second time"),
];

#[test]
fn a_wrong_config_is_refused_by_field() {
    for (old, new, reason) in REFUSED {
        assert!(GOOD.contains(old), "the good config has no {old}");
        let error = ExporterConfig::parse(&GOOD.replacen(old, new, 1));
        let error = error.expect_err(new).to_string();
        assert!(
            error.contains(reason),
            "expected: {reason}\n  actual: {error}"
        );
        assert!(!error.contains("claims"), "the token shows in {error}");
    }
}
