#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

const CA: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl";

/// Owns what [`Inputs`] borrows.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) namespace: String,
    pub(super) exporter: String,
    pub(super) uid: String,
    pub(super) set: String,
    pub(super) endpoint: String,
    pub(super) ca: String,
    pub(super) token: String,
    pub(super) drivers: Vec<DriverConfig>,
    pub(super) parameters: Parameters,
    pub(super) images: Images,
    pub(super) recycle: RecycleStrategy,
}

impl Given {
    /// The manifests of the documentation, with `set` as the parameters of the set.
    pub(super) fn documented(set: Value) -> Self {
        let class = json!({
            "ssh": { "user": "root", "port": 22 },
            "host": { "name": "lab-host-01.example.com" },
            "runtime": { "kvm": true },
            "arch": "aarch64",
            "resources": { "cpu": 4, "memory": "4Gi" },
            "storage": { "size": "16Gi" },
        });
        Self {
            namespace: "jumpstarter".into(),
            exporter: "aarch64-ssh-pool-x7k2p".into(),
            uid: "0b0f3a52-1c5e-4a37-9c53-5e8a1f4f2d10".into(),
            set: "aarch64-ssh-pool".into(),
            endpoint: "grpc.jumpstarter.example.com:443".into(),
            ca: CA.into(),
            token: TOKEN.into(),
            drivers: serde_json::from_value(json!([
                { "name": "qemu", "type": "jumpstarter_driver_qemu.driver.Qemu" }
            ]))
            .unwrap(),
            parameters: Parameters::resolve(Some(&class), Some(&set)).unwrap(),
            images: Images::default(),
            recycle: RecycleStrategy::ExitAndReplace,
        }
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            namespace: &self.namespace,
            exporter: &self.exporter,
            exporter_uid: &self.uid,
            set: &self.set,
            endpoint: &self.endpoint,
            ca_pem: &self.ca,
            token: &self.token,
            drivers: &self.drivers,
            parameters: &self.parameters,
            images: &self.images,
            recycle: self.recycle,
        }
    }

    fn render(&self) -> Rendered {
        render(&self.inputs()).unwrap()
    }

    fn image(mut self, image: &str) -> Self {
        self.images.exporter = Some(ImageSpec {
            image: Some(image.into()),
            image_pull_policy: None,
        });
        self
    }
}

type Change = fn(&mut Given);

/// All files with their paths and modes, in one text.
fn everything(rendered: &Rendered) -> String {
    let files = rendered.quadlets.iter().chain([&rendered.config]);
    files
        .map(|file| format!("# {} {:o}\n{}\n", file.path, file.mode, file.content))
        .collect()
}

#[test]
fn the_documented_manifests() {
    insta::assert_snapshot!(everything(&Given::documented(json!({})).render()));
}

#[test]
fn devices_go_to_both_containers() {
    let given = Given::documented(
        json!({ "runtime": { "kvm": true, "devices": ["/dev/vhost-vsock", "/dev/kvm", "/dev/net/tun"] } }),
    );
    insta::assert_snapshot!(quadlets(&given.render()));
    let given = Given::documented(json!({ "runtime": { "kvm": false } }));
    assert!(!quadlets(&given.render()).contains("AddDevice"));
}

#[test]
fn the_hosts_network_needs_no_holder() {
    let given = Given::documented(json!({ "runtime": { "host_network": true } }));
    let rendered = given.render();
    assert_eq!(rendered.quadlets.len(), 2);
    insta::assert_snapshot!(quadlets(&rendered));
}

#[test]
fn reuse_in_place_starts_on_a_used_machine_too() {
    let mut given = Given::documented(json!({}));
    given.recycle = RecycleStrategy::InPlaceReuse;
    let rendered = given.render();
    assert!(
        rendered
            .config
            .content
            .contains("\nexitOnLeaseEnd: false\n")
    );
    insta::assert_snapshot!(rendered.quadlets[2].content);
}

fn quadlets(rendered: &Rendered) -> String {
    rendered
        .quadlets
        .iter()
        .map(|file| format!("# {}\n{}\n", file.path, file.content))
        .collect()
}

#[test]
fn the_config_is_what_the_exporter_reads() {
    let given = Given::documented(json!({}));
    let config: Value = serde_yaml::from_str(&given.render().config.content).unwrap();
    assert_eq!(config["apiVersion"], "jumpstarter.dev/v1alpha1");
    assert_eq!(config["kind"], "ExporterConfig");
    assert_eq!(
        config["metadata"],
        json!({ "namespace": "jumpstarter", "name": "aarch64-ssh-pool-x7k2p" })
    );
    assert_eq!(config["endpoint"], "grpc.jumpstarter.example.com:443");
    assert_eq!(config["token"], TOKEN);
    assert_eq!(config["exitOnLeaseEnd"], true);
    assert!(config.get("hooks").is_none());
    let ca = config["tls"]["ca"].as_str().unwrap();
    let decoded = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, ca).unwrap();
    assert_eq!(decoded, CA.as_bytes());
    let options: Value = serde_json::from_str(
        config["grpcOptions"]["grpc.service_config"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(options["methodConfig"][0]["waitForReady"], true);
    assert_eq!(config["export"]["power"]["ref"], "qemu.power");
}

#[test]
fn the_token_is_in_the_config_only_and_never_shown() {
    let rendered = Given::documented(json!({})).render();
    assert!(!quadlets(&rendered).contains(TOKEN));
    assert!(!format!("{rendered:?}").contains(TOKEN));
    assert_eq!(rendered.config.mode, 0o400);
}

#[test]
fn a_revision_is_the_same_until_something_needs_a_restart() {
    let given = Given::documented(json!({}));
    let revision = given.render().revision;
    assert_eq!(revision.len(), 64);
    assert_eq!(given.render().revision, revision);
    let mut other = given.clone();
    other.token = "another".into();
    other.images.exporter = Some(ImageSpec {
        image: None,
        image_pull_policy: Some(crate::api::PullPolicy::Always),
    });
    assert_eq!(
        other.render().revision,
        revision,
        "token and pull policy need none"
    );
    let changes: [(&str, Change); 7] = [
        ("ca", |given| given.ca.push('x')),
        ("endpoint", |given| given.endpoint.push('1')),
        ("image", |given| *given = given.clone().image("lab/other")),
        ("device", |given| {
            given.parameters.runtime.devices.push("/dev/x".into())
        }),
        ("memory", |given| {
            given.parameters.resources.memory = Some("8G".into())
        }),
        ("drivers", |given| given.drivers[0].name.push('2')),
        ("recycling", |given| {
            given.recycle = RecycleStrategy::InPlaceReuse
        }),
    ];
    for (what, change) in changes {
        let mut other = given.clone();
        change(&mut other);
        assert_ne!(other.render().revision, revision, "{what}");
    }
}

#[test]
fn what_cannot_be_rendered_is_refused_by_name() {
    let good = Given::documented(json!({}));
    let cases: [(Change, FailureClass, &str); 9] = [
        (
            |g| g.exporter = "a".repeat(64),
            FailureClass::InvalidParameters,
            "the Exporter's name",
        ),
        (
            |g| g.exporter = "../../etc/x".into(),
            FailureClass::InvalidParameters,
            "the Exporter's name",
        ),
        (
            |g| g.exporter = "-x".into(),
            FailureClass::InvalidParameters,
            "the Exporter's name",
        ),
        (
            |g| g.namespace = "a\nExec=reboot".into(),
            FailureClass::InvalidParameters,
            "namespace",
        ),
        (
            |g| g.set = "$(reboot)".into(),
            FailureClass::InvalidParameters,
            "the ExporterSet's name",
        ),
        (
            |g| g.uid = "%h".into(),
            FailureClass::InvalidParameters,
            "the Exporter's UID",
        ),
        (
            |g| *g = g.clone().image("x\nPodmanArgs=--privileged"),
            FailureClass::InvalidParameters,
            "images.exporter.image",
        ),
        (
            |g| {
                g.images.runtime = Some(ImageSpec {
                    image: Some("--privileged".into()),
                    image_pull_policy: None,
                })
            },
            FailureClass::InvalidParameters,
            "images.runtime.image",
        ),
        (
            |g| g.drivers[0].type_ = None,
            FailureClass::InvalidDrivers,
            "driver \"qemu\"",
        ),
    ];
    for (change, class, part) in cases {
        let mut given = good.clone();
        change(&mut given);
        let failure = render(&given.inputs()).unwrap_err();
        assert_eq!(failure.class, class);
        assert!(failure.message.contains(part), "{failure}");
        assert!(!failure.message.contains(char::is_control), "{failure}");
    }
}

/// What somebody who tries to get at the host is told.
#[test]
fn attempts_to_write_more_than_a_value() {
    let value = "a\nExecStartPre=/bin/sh -c \"reboot %h\" \\";
    let attempts: [(&str, Change); 6] = [
        ("Exporter's name", |g| {
            g.exporter.push_str("\n[Service]\nExecStart=reboot")
        }),
        ("namespace", |g| g.namespace = "x;reboot".into()),
        ("exporter image", |g| {
            *g = g.clone().image("x\nPodmanArgs=--privileged")
        }),
        ("image as an option", |g| {
            *g = g.clone().image("--volume=/:/host")
        }),
        ("image as a quadlet", |g| *g = g.clone().image("evil.build")),
        ("driver", |g| g.drivers[0].ref_ = Some("both\n".into())),
    ];
    let mut told = String::new();
    for (what, change) in attempts {
        let mut given = Given::documented(json!({}));
        change(&mut given);
        let failure = render(&given.inputs()).unwrap_err();
        told.push_str(&format!("{what}: {}: {}\n", failure.class, failure.message));
    }
    let set = json!({
        "host": { "name": value, "user": value, "hostKey": value },
        "runtime": { "devices": [format!("/dev/{value}")] },
        "arch": value,
        "resources": { "cpu": value, "memory": value },
        value: value,
    });
    for error in Parameters::resolve(None, Some(&set)).unwrap_err() {
        told.push_str(&format!("{error}\n"));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn many_errors_make_no_endless_message() {
    let mut given = Given::documented(json!({}));
    given.drivers = vec![DriverConfig::default(); 1000];
    let failure = render(&given.inputs()).unwrap_err();
    assert!(failure.message.len() < 2048 && failure.message.ends_with('…'));
}

/// Section and key of each line.
fn keys(text: &str) -> Vec<String> {
    let mut section = "";
    let mut keys = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('[') {
            section = line;
        } else {
            let (key, _) = line
                .split_once('=')
                .unwrap_or_else(|| panic!("no entry: {line}"));
            keys.push(format!("{section}{key}"));
        }
    }
    keys
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?",
        "[a-z]{1,4}[\r\n\\\\%\"' =;$`\u{85}\u{2028}\\[\\]#]{1,3}(Exec|PodmanArgs|\\[Service\\])?=?[a-z-]{0,8}",
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn no_input_adds_a_line_or_a_key_to_a_quadlet(
        exporter in hostile(), namespace in hostile(), set in hostile(), uid in hostile(),
        image in hostile(), device in hostile(), arch in hostile(), driver in hostile(),
    ) {
        let expected: Vec<_> = Given::documented(json!({ "runtime": { "devices": ["/dev/x"] } }))
            .render().quadlets.iter().map(|file| keys(&file.content)).collect();
        let mut given = Given::documented(json!({ "runtime": { "devices": ["/dev/x"] } })).image(&image);
        given.drivers[0].name.clone_from(&driver);
        // One hostile value at a time gets past the others' checks.
        let good = given.clone();
        let single: [fn(&mut Given, &[String; 6]); 6] = [
            |g, v| g.exporter.clone_from(&v[0]),
            |g, v| g.namespace.clone_from(&v[1]),
            |g, v| g.set.clone_from(&v[2]),
            |g, v| g.uid.clone_from(&v[3]),
            // Past their own checks, which are tested where they stand.
            |g, v| g.parameters.runtime.devices = vec![v[4].clone()],
            |g, v| g.parameters.arch = Some(v[5].clone()),
        ];
        let values = [exporter, namespace, set, uid, format!("/dev/{device}"), arch];
        for change in single {
            let mut given = good.clone();
            change(&mut given, &values);
            if let Ok(rendered) = render(&given.inputs()) {
                let found: Vec<_> = rendered.quadlets.iter().map(|file| keys(&file.content)).collect();
                prop_assert_eq!(&found, &expected);
                for file in rendered.quadlets.iter().chain([&rendered.config]) {
                    prop_assert!(!file.path.contains("..") && !file.path.contains(char::is_whitespace));
                }
            }
        }
    }

    #[test]
    fn the_config_says_what_was_given(driver in hostile(), text in any::<String>(), endpoint in any::<String>()) {
        let mut given = Given::documented(json!({}));
        given.endpoint.clone_from(&endpoint);
        given.drivers = vec![DriverConfig {
            name: driver.clone(),
            type_: Some("example.Driver".into()),
            ref_: None,
            config: Some([("text".to_owned(), json!(text))].into_iter().collect()),
        }];
        if let Ok(rendered) = render(&given.inputs()) {
            let config: Value = serde_yaml::from_str(&rendered.config.content).unwrap();
            prop_assert_eq!(&config["endpoint"], &json!(endpoint));
            prop_assert_eq!(&config["export"][&driver]["config"]["text"], &json!(text));
        }
    }
}
