#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use super::*;
use proptest::prelude::*;
use serde_json::json;

/// The parameters of the class in the documentation.
fn class() -> Value {
    json!({
        "ssh": { "user": "root", "port": 22 },
        "host": { "name": "lab-host-01.example.com" },
        "runtime": { "kvm": true },
        "arch": "aarch64",
        "resources": { "cpu": 4, "memory": "4Gi" },
        "storage": { "size": "16Gi" }
    })
}

fn resolved(class: Value, set: Value) -> Parameters {
    Parameters::resolve(Some(&class), Some(&set)).unwrap()
}

/// What is said of `parameters` in a set whose class is fine.
fn errors(set: Value) -> Vec<String> {
    Parameters::resolve(Some(&class()), Some(&set))
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_documented_class_is_read() {
    assert_eq!(
        Parameters::resolve(Some(&class()), None).unwrap(),
        Parameters {
            host: HostParameters {
                name: "lab-host-01.example.com".into(),
                user: "root".into(),
                port: 22,
                host_key: None,
            },
            runtime: RuntimeParameters {
                kvm: true,
                devices: vec![],
                host_network: false,
            },
            arch: Some("aarch64".into()),
            resources: Resources {
                cpu: Some(4),
                memory: Some("4G".into()),
            },
            disk_size: Some("16G".into()),
        }
    );
}

#[test]
fn host_wins_over_ssh_and_the_set_over_the_class() {
    let ssh = json!({ "ssh": { "user": "lab", "port": 2222 }, "host": { "name": "a" } });
    let host = resolved(ssh.clone(), json!({})).host;
    assert_eq!((host.user.as_str(), host.port), ("lab", 2222));
    // One key of a map is replaced, its neighbours stay.
    let host = resolved(ssh.clone(), json!({ "host": { "name": "b", "port": 23 } })).host;
    assert_eq!(
        (host.name.as_str(), host.user.as_str(), host.port),
        ("b", "lab", 23)
    );
    // The class's host wins over the set's ssh: the more precise key decides, not the object.
    let host = resolved(
        json!({ "host": { "name": "a", "user": "precise" } }),
        json!({ "ssh": { "user": "general" } }),
    )
    .host;
    assert_eq!(host.user, "precise");
    let host = resolved(json!({ "host": { "name": "a" } }), json!({})).host;
    assert_eq!((host.user.as_str(), host.port), ("root", 22));
}

#[test]
fn lists_replace_and_null_takes_away() {
    let base = json!({ "host": { "name": "a", "user": "lab" }, "runtime": { "devices": ["/dev/a", "/dev/b"] } });
    let merged = resolved(
        base,
        json!({ "host": { "user": null }, "runtime": { "devices": ["/dev/c", "/dev/c"] } }),
    );
    assert_eq!(merged.runtime.devices, ["/dev/c"]);
    assert_eq!(merged.host.user, "root");
}

#[test]
fn the_disk_has_two_keys_of_which_storage_size_wins() {
    let both = json!({ "resources": { "storage": "1Gi" }, "storage": { "size": "2Gi" } });
    assert_eq!(resolved(class(), both).disk_size.as_deref(), Some("2G"));
    let older = json!({ "resources": { "storage": "1Gi" }, "storage": null });
    assert_eq!(resolved(class(), older).disk_size.as_deref(), Some("1G"));
}

#[test]
fn addresses_of_every_kind_name_a_host() {
    for (given, name) in [
        ("lab", "lab"),
        ("lab_1.example.com.", "lab_1.example.com."),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ] {
        let host = resolved(class(), json!({ "host": { "name": given } })).host;
        assert_eq!(host.name, name);
    }
}

#[test]
fn host_keys_are_fingerprints_or_public_keys() {
    for key in [
        "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJhkT",
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY= root@lab",
    ] {
        let host = resolved(class(), json!({ "host": { "hostKey": key } })).host;
        assert_eq!(host.host_key.as_deref(), Some(key));
    }
}

#[test]
fn an_error_names_object_path_value_and_remedy() {
    assert_eq!(
        errors(json!({ "host": { "port": "2222" } })),
        [
            "ExporterSet spec.parameters.host.port is a text, must be a number (got \"2222\"); write 2222 without quotes"
        ]
    );
    let class = json!({ "host": { "name": "lab", "port": 70000 } });
    let found = Parameters::resolve(Some(&class), Some(&json!({ "arch": "x86_64" }))).unwrap_err();
    assert_eq!(
        found[0].path,
        "VirtualTargetClass spec.parameters.host.port"
    );
    let found = Parameters::resolve(None, None).unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "spec.parameters.host.name is required, in the ExporterSet or in its VirtualTargetClass (got nothing); write the DNS name or address of the lab host"
    );
}

/// Parameters of a set, in JSON, and what is said of them.
const BAD: &[(&str, &str)] = &[
    (r#""host""#, "spec.parameters is a text, must be a map"),
    (r#"[1]"#, "spec.parameters is a list, must be a map"),
    (
        r#"{ "host": "lab" }"#,
        "spec.parameters.host is a text, must be a map",
    ),
    (
        r#"{ "host": { "name": 7 } }"#,
        "host.name is a number, must be a text",
    ),
    (r#"{ "host": { "name": "" } }"#, "host.name is empty"),
    (
        r#"{ "host": { "name": "lab:22" } }"#,
        "put a port into host.port",
    ),
    (r#"{ "host": { "name": "root@lab" } }"#, "into host.user"),
    (
        r#"{ "host": { "name": "-oProxyCommand=x" } }"#,
        "host.name is no host name",
    ),
    (
        r#"{ "host": { "name": "a b" } }"#,
        "host.name is no host name",
    ),
    (r#"{ "host": { "name": "a\nb" } }"#, "(got \"a\\nb\")"),
    (
        r#"{ "host": { "name": "[lab]" } }"#,
        "host.name is no host name",
    ),
    (
        r#"{ "host": { "name": "a..b" } }"#,
        "host.name is no host name",
    ),
    (
        r#"{ "host": { "name": "fe80::1%" } }"#,
        "host.name is neither",
    ),
    (
        r#"{ "host": { "name": "bücher.example" } }"#,
        "host.name is no host name",
    ),
    (
        r#"{ "host": { "user": "a b" } }"#,
        "host.user is no login name",
    ),
    (
        r#"{ "host": { "user": "-l" } }"#,
        "host.user is no login name",
    ),
    (
        r#"{ "ssh": { "user": "a@b" } }"#,
        "ssh.user is no login name",
    ),
    (r#"{ "ssh": { "port": 0 } }"#, "ssh.port is no port"),
    (r#"{ "ssh": { "port": 22.5 } }"#, "ssh.port is no port"),
    (r#"{ "ssh": { "port": "ssh" } }"#, "ssh.port is a text"),
    (
        r#"{ "host": { "hostKey": "MD5:aa:bb" } }"#,
        "host.hostKey is no host key",
    ),
    (
        r#"{ "host": { "hostKey": "SHA256:short" } }"#,
        "host.hostKey is no host key",
    ),
    (
        r#"{ "host": { "hostKey": "ssh-rsa xyz" } }"#,
        "host.hostKey is no host key",
    ),
    (
        r#"{ "host": { "hostKey": "ssh-rsa AAAA\nssh-rsa AAAA" } }"#,
        "host.hostKey is no host key",
    ),
    (r#"{ "runtime": { "kvm": "true" } }"#, "without quotes"),
    (r#"{ "runtime": { "kvm": 1 } }"#, "runtime.kvm is a number"),
    (
        r#"{ "runtime": { "devices": "/dev/kvm" } }"#,
        "runtime.devices is a text, must be a list",
    ),
    (
        r#"{ "runtime": { "devices": ["/dev/a", "/etc/shadow"] } }"#,
        "has an entry 1 (/etc/shadow) that is no path",
    ),
    (
        r#"{ "runtime": { "devices": ["/dev/../etc"] } }"#,
        "is no path of a device",
    ),
    (
        r#"{ "runtime": { "devices": ["/dev/a b"] } }"#,
        "is no path of a device",
    ),
    (
        r#"{ "runtime": { "devices": ["/dev/%h"] } }"#,
        "is no path of a device",
    ),
    (
        r#"{ "runtime": { "devices": ["/dev/"] } }"#,
        "is no path of a device",
    ),
    (
        r#"{ "runtime": { "devices": ["/dev/a:/dev/b:rw"] } }"#,
        "has a colon in it",
    ),
    (
        r#"{ "runtime": { "devices": [7] } }"#,
        "has an entry 0 (a number)",
    ),
    (r#"{ "arch": "x86-64" }"#, "arch is no architecture"),
    (r#"{ "arch": "AARCH64" }"#, "arch is no architecture"),
    (
        r#"{ "resources": { "cpu": "500m" } }"#,
        "whole number of CPUs",
    ),
    (
        r#"{ "resources": { "cpu": 0 } }"#,
        "resources.cpu is no number of CPUs",
    ),
    (
        r#"{ "resources": { "cpu": 1.5 } }"#,
        "resources.cpu is no number of CPUs",
    ),
    (
        r#"{ "resources": { "cpu": "" } }"#,
        "resources.cpu is no number of CPUs",
    ),
    (
        r#"{ "resources": { "memory": 4096 } }"#,
        "resources.memory is less than 1 MiB",
    ),
    (
        r#"{ "resources": { "storage": "lots" } }"#,
        "resources.storage is not a size",
    ),
    (
        r#"{ "storage": { "size": "16GB" } }"#,
        "storage.size has a unit",
    ),
    (
        r#"{ "storage": "16Gi" }"#,
        "spec.parameters.storage is a text, must be a map",
    ),
];

#[test]
fn every_bad_value_is_refused_where_it_stands() {
    for (set, expected) in BAD {
        let found = errors(serde_json::from_str(set).unwrap());
        assert_eq!(found.len(), 1, "{set}: {found:?}");
        assert!(
            found[0].starts_with("ExporterSet spec.parameters"),
            "{found:?}"
        );
        assert!(found[0].contains(expected), "{set}: {found:?}");
    }
    assert_eq!(
        resolved(class(), json!({ "resources": { "cpu": "4" } }))
            .resources
            .cpu,
        Some(4)
    );
}

#[test]
fn unknown_keys_are_refused_without_their_value() {
    let found = errors(json!({
        "host": { "password": "hunter2", "hostkey": "x" },
        "hosts": [],
        "runtime": { "hostNetwork": true },
    }));
    assert_eq!(
        found,
        [
            "ExporterSet spec.parameters.host.hostkey is unknown (got a text); did you mean hostKey?",
            "ExporterSet spec.parameters.host.password is unknown (got a text); known keys are name, user, port, hostKey",
            "ExporterSet spec.parameters.hosts is unknown (got a list); did you mean host?",
            "ExporterSet spec.parameters.runtime.hostNetwork is unknown (got true or false); did you mean host_network?",
        ]
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}|[a-z0-9:/.]{0,12}|\\s{1,3}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "ssh|host|runtime|arch|resources|storage",
        "user|port|name|hostKey|kvm|devices|host_network|cpu|memory|size",
        "\\PC{0,6}",
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_parameters_are_read_or_refused_in_words(class in any_json(), set in any_json()) {
        match Parameters::resolve(Some(&class), Some(&set)) {
            Ok(parameters) => prop_assert!(!parameters.host.name.is_empty()),
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                let mut sorted = errors.clone();
                sorted.sort_by(|a, b| a.path.cmp(&b.path));
                prop_assert_eq!(&sorted, &errors);
                for error in errors {
                    let line = error.to_string();
                    prop_assert!(!line.contains(char::is_control), "{:?}", line);
                    prop_assert!(!error.remedy.is_empty() && line.len() < 1000, "{:?}", line);
                }
            }
        }
    }

    #[test]
    fn merging_twice_is_merging_once(class in any_json(), set in any_json()) {
        prop_assert_eq!(deep_merge(&class, &class), class.clone());
        let once = deep_merge(&class, &set);
        prop_assert_eq!(deep_merge(&once, &set), once);
    }

    #[test]
    fn names_that_pass_are_safe_to_show_and_to_dial(name in "\\PC{1,20}|[a-zA-Z0-9._%:\\[\\]@/ -]{1,20}") {
        if let Ok(read) = check::host_name(&json!(name)) {
            prop_assert!(read.is_ascii());
            prop_assert!(!read.starts_with('-') && !read.contains(['[', ']', '@', '/', ' ', '\'', '"']));
        }
    }
}
