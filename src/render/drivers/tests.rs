#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use serde_json::from_value;

fn parameters(value: &Value) -> Parameters {
    let host = json!({ "host": { "name": "lab" } });
    Parameters::resolve(Some(&host), Some(value)).unwrap()
}

fn drivers(value: Value) -> Vec<DriverConfig> {
    from_value(value).unwrap()
}

fn exported(list: Value, with: Value) -> Value {
    Value::Object(export(&drivers(list), &parameters(&with)).unwrap())
}

fn refused(list: Value) -> Vec<String> {
    export(&drivers(list), &parameters(&json!({}))).unwrap_err()
}

fn qemu_driver(config: Value) -> Value {
    json!([{ "name": "qemu", "type": QEMU, "config": config }])
}

#[test]
fn a_bare_driver_gets_everything_that_the_parameters_say() {
    let with = json!({
        "arch": "aarch64",
        "resources": { "cpu": 4, "memory": "4Gi" },
        "storage": { "size": "16Gi" },
    });
    assert_eq!(
        exported(json!([{ "name": "qemu", "type": QEMU }]), with),
        json!({
            "qemu": {
                "type": QEMU,
                "config": {
                    "launcher_socket": "/shared/launcher.sock",
                    "arch": "aarch64",
                    "smp": 4,
                    "mem": "4G",
                    "disk_size": "16G",
                    "default_partitions": {
                        "OVMF_CODE.fd": "/usr/share/AAVMF/AAVMF_CODE.fd",
                        "OVMF_VARS.fd": "/usr/share/AAVMF/AAVMF_VARS.fd",
                    },
                    "hostfwd": { "ssh": { "hostaddr": "127.0.0.1", "hostport": 2222, "guestport": 22 } },
                },
            },
            "power": { "ref": "qemu.power" },
            "tcp": { "type": TCP, "config": { "host": "127.0.0.1", "port": 2222 } },
        })
    );
}

#[test]
fn without_parameters_the_drivers_own_defaults_hold() {
    let export = exported(qemu_driver(json!({})), json!({}));
    let config = export["qemu"]["config"].as_object().unwrap();
    for key in ["arch", "smp", "mem", "disk_size"] {
        assert!(!config.contains_key(key), "{key}");
    }
    assert_eq!(
        config["default_partitions"]["OVMF_CODE.fd"],
        "/usr/share/edk2/ovmf/OVMF_CODE.fd"
    );
}

#[test]
fn what_a_driver_says_wins_but_for_the_launcher() {
    let own = json!({
        "arch": "x86_64", "smp": 1, "mem": "1G", "disk_size": null,
        "default_partitions": { "root": "/images/root.img" },
        "launcher_socket": "/tmp/elsewhere.sock",
        "virtio_transport": "mmio",
        "hostfwd": { "http": { "hostport": 8080, "guestport": 80 } },
    });
    let with = json!({ "arch": "aarch64", "resources": { "cpu": 4, "memory": "4Gi" }, "storage": { "size": "16Gi" } });
    assert_eq!(
        exported(qemu_driver(own), with)["qemu"]["config"],
        json!({
            "arch": "x86_64", "smp": 1, "mem": "1G", "disk_size": null,
            "default_partitions": { "root": "/images/root.img" },
            "launcher_socket": "/shared/launcher.sock",
            "virtio_transport": "mmio",
            "hostfwd": {
                "http": { "hostport": 8080, "guestport": 80 },
                "ssh": { "hostaddr": "127.0.0.1", "hostport": 2222, "guestport": 22 },
            },
        })
    );
}

#[test]
fn firmware_follows_the_drivers_own_architecture() {
    let export = exported(
        qemu_driver(json!({ "arch": "aarch64" })),
        json!({ "arch": "x86_64" }),
    );
    assert_eq!(
        export["qemu"]["config"]["default_partitions"]["OVMF_CODE.fd"],
        "/usr/share/AAVMF/AAVMF_CODE.fd"
    );
}

#[test]
fn numeric_memory_reaches_the_driver_as_text_with_a_unit() {
    let with =
        json!({ "resources": { "memory": 2_147_483_648_u64, "storage": 8_589_934_592_u64 } });
    let config = &exported(qemu_driver(json!({})), with)["qemu"]["config"];
    assert_eq!(
        (&config["mem"], &config["disk_size"]),
        (&json!("2G"), &json!("8G"))
    );
}

#[test]
fn tcp_follows_the_forwarded_port() {
    let own = json!({ "hostfwd": { "ssh": { "hostport": 2200, "guestport": 22 } } });
    let export = exported(qemu_driver(own.clone()), json!({}));
    assert_eq!(export["tcp"]["config"]["port"], 2200);
    // What the user wrote stays as it is.
    assert_eq!(export["qemu"]["config"]["hostfwd"], own["hostfwd"]);
}

#[test]
fn drivers_that_are_there_are_not_added() {
    let list = json!([
        { "name": "vm", "type": QEMU },
        { "name": "power", "ref": "vm.power" },
        { "name": "shell", "type": TCP, "config": { "host": "127.0.0.1", "port": 1 } },
    ]);
    let export = exported(list, json!({}));
    let names: Vec<_> = export.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, ["power", "shell", "vm"]);
}

#[test]
fn power_refers_to_the_driver_by_its_name() {
    let export = exported(json!([{ "name": "vm", "type": QEMU }]), json!({}));
    assert_eq!(export["power"], json!({ "ref": "vm.power" }));
}

#[test]
fn a_tcp_of_another_type_keeps_its_name() {
    let list = json!([{ "name": "qemu", "type": QEMU }, { "name": "tcp", "ref": "qemu.ssh" }]);
    assert_eq!(
        exported(list, json!({}))["tcp"],
        json!({ "ref": "qemu.ssh" })
    );
    let list = json!([{ "name": "tcp", "type": "example.Other" }]);
    assert_eq!(
        exported(list, json!({})),
        json!({ "tcp": { "type": "example.Other" } })
    );
}

#[test]
fn machines_have_ports_of_their_own_and_the_last_is_the_one_meant() {
    let list = json!([
        { "name": "a", "type": QEMU },
        { "name": "b", "type": QEMU },
        { "name": "c", "type": QEMU, "config": { "hostfwd": { "ssh": { "hostport": 2223, "guestport": 22 } } } },
    ]);
    let export = exported(list, json!({}));
    let port = |name: &str| export[name]["config"]["hostfwd"]["ssh"]["hostport"].clone();
    assert_eq!(
        [port("a"), port("b"), port("c")],
        [json!(2222), json!(2224), json!(2223)]
    );
    assert_eq!(export["power"], json!({ "ref": "c.power" }));
    assert_eq!(export["tcp"]["config"]["port"], 2223);
}

#[test]
fn without_a_machine_there_is_no_power() {
    let export = exported(
        json!([{ "name": "x", "type": "example.Driver", "config": { "a": [1] } }]),
        json!({}),
    );
    assert_eq!(
        export,
        json!({
            "x": { "type": "example.Driver", "config": { "a": [1] } },
            "tcp": { "type": TCP, "config": { "host": "127.0.0.1", "port": 2222 } },
        })
    );
}

#[test]
fn what_cannot_be_exported_is_named_all_at_once() {
    let found = refused(json!([
        { "name": "twice", "type": "example.A" },
        { "name": "twice", "type": "example.B" },
        { "name": "my-power", "type": "jumpstarter_driver_qemu.driver.QemuPower" },
        { "name": "my-flasher", "type": "jumpstarter_driver_qemu.driver.QemuFlasher" },
        { "name": "neither" },
        { "name": "both", "type": "example.A", "ref": "qemu.power" },
        { "name": "", "type": "example.A" },
        { "name": "a\nb" },
    ]));
    let expected = [
        "two drivers are named \"twice\"",
        "write {name: my-power, ref: qemu.power}",
        "write {name: my-flasher, ref: qemu.flasher}",
        "driver \"neither\" must have either",
        "driver \"both\" must have either",
        "a driver has no name",
        "driver \"a\\u{a}b\" must have either",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (line, part) in found.iter().zip(expected) {
        assert!(line.contains(part), "{line} lacks {part}");
    }
}

#[test]
fn forwards_that_are_no_forwards_are_refused() {
    for own in [
        json!({ "hostfwd": "2222:22" }),
        json!({ "hostfwd": null }),
        json!({ "hostfwd": { "ssh": 2222 } }),
        json!({ "hostfwd": { "ssh": { "guestport": 22 } } }),
        json!({ "hostfwd": { "ssh": { "hostport": 0 } } }),
        json!({ "hostfwd": { "ssh": { "hostport": 65536 } } }),
        json!({ "hostfwd": { "ssh": { "hostport": "2222" } } }),
    ] {
        let found = refused(qemu_driver(own.clone()));
        assert_eq!(found.len(), 1, "{own}");
        assert!(
            found[0].starts_with("driver \"qemu\": config.hostfwd"),
            "{found:?}"
        );
    }
}
