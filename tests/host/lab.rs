//! What the tests share: the testbed's hosts, and instances on them.

use exporter_set_controller::api::{ImageSpec, Images, Parameters, PullPolicy, RecycleStrategy};
use exporter_set_controller::controller::ports::{Greeting, Hosts as _};
use exporter_set_controller::host::{
    Batch, Fence, HostKeys, Op, Outcome, Owner, PrivateKey, Report, SshHosts, Target,
};
use exporter_set_controller::instance::{Failure, FailureClass, Step};
use exporter_set_controller::render::{HostFile, Inputs, Names, Rendered, render};
use serde_json::json;
use std::collections::HashMap;
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

static ENV: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let path = std::env::var("TESTBED_ENV")
        .unwrap_or_else(|_| "/var/tmp/exporter-set-controller-testbed/env".to_owned());
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{path}: {error}; run make testbed-up"));
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
});

pub fn env(key: &str) -> &'static str {
    ENV.get(key)
        .unwrap_or_else(|| panic!("{key} is not in the testbed's env; run make testbed-up"))
}

pub fn key_file(variable: &str) -> PrivateKey {
    PrivateKey::new(std::fs::read_to_string(env(variable)).expect("key file"))
}

/// Host 1, as it should be reached.
pub fn target() -> Target {
    Target {
        name: env("TESTBED_HOST_1").to_owned(),
        user: "root".to_owned(),
        port: 22,
        key: key_file("TESTBED_SSH_KEY"),
        host_keys: HostKeys::Pinned(env("TESTBED_HOST_1_KEY").to_owned()),
    }
}

/// Runs a command on host 1 by the system's own ssh.
pub fn on_host(command: &str) -> Output {
    Command::new("ssh")
        .args([
            "-i",
            env("TESTBED_SSH_KEY"),
            "-o",
            "StrictHostKeyChecking=no",
        ])
        .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
        .arg(format!("root@{}", env("TESTBED_HOST_1")))
        .arg(command)
        .output()
        .expect("ssh")
}

pub fn stdout(command: &str) -> String {
    let output = on_host(command);
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout)
        .expect("UTF-8")
        .trim()
        .to_owned()
}

pub async fn connect(target: &Target) -> Result<Greeting, Failure> {
    SshHosts::new().connect(target).await
}

/// An instance of ours on host 1; taken down at the end, also when the test fails.
pub struct Instance {
    pub names: Names,
    pub uid: String,
    pub epoch: u64,
    pub limit: Duration,
    pub token: String,
    pub host_network: bool,
    lease_uid: String,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Instance {
    pub fn new() -> Self {
        let id = format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        Self {
            names: Names::of(format!("t-host-{id}")),
            uid: format!("uid-{id}"),
            epoch: 1,
            limit: Duration::from_secs(120),
            token: format!("token-of-{id}"),
            host_network: false,
            lease_uid: format!("lease-{id}"),
        }
    }

    pub fn name(&self) -> &str {
        self.names.exporter()
    }

    fn rendered(&self) -> Rendered {
        let parameters = json!({
            "host": { "name": env("TESTBED_HOST_1") },
            "runtime": { "kvm": true, "host_network": self.host_network },
        });
        let image = |variable| ImageSpec {
            image: Some(env(variable).to_owned()),
            image_pull_policy: Some(PullPolicy::IfNotPresent),
        };
        let drivers = json!([{ "name": "qemu", "type": "jumpstarter_driver_qemu.driver.Qemu" }]);
        let images = Images {
            exporter: Some(image("TESTBED_EXPORTER_IMAGE")),
            runtime: Some(image("TESTBED_RUNTIME_IMAGE")),
        };
        render(&Inputs {
            namespace: "lab",
            exporter: self.name(),
            exporter_uid: &self.uid,
            set: "t-host",
            // Nobody listens there: the exporter tries on, as in an outage of the control plane.
            endpoint: "10.77.1.1:1",
            ca_pem: "",
            token: &self.token,
            drivers: &serde_json::from_value::<Vec<_>>(drivers).expect("drivers"),
            parameters: &Parameters::resolve(None, Some(&parameters)).expect("parameters"),
            images: &images,
            recycle: RecycleStrategy::ExitAndReplace,
        })
        .expect("rendered")
    }

    pub fn config(&self) -> HostFile {
        self.rendered().config
    }

    /// The quadlets, but for the exporter's program: no controller knows our tokens, and an
    /// exporter that is refused ends.
    pub fn quadlets(&self) -> Vec<HostFile> {
        let mut quadlets = self.rendered().quadlets;
        for quadlet in &mut quadlets {
            let program = format!(
                "Exec=jmp run --exporter-config {}",
                self.names.config_path()
            );
            let stays = "Exec=sleep infinity\nRunInit=true";
            quadlet.content = quadlet.content.replace(&program, stays);
        }
        quadlets
    }

    pub fn create_volume(&self, wipe: bool) -> Op {
        Op::CreateVolume {
            exporter_image: env("TESTBED_EXPORTER_IMAGE").to_owned(),
            runtime_image: env("TESTBED_RUNTIME_IMAGE").to_owned(),
            wipe,
        }
    }

    pub fn up(&self) -> Vec<Op> {
        let rendered = self.rendered();
        vec![
            Op::Preflight {
                devices: vec!["/dev/kvm".to_owned()],
                images: vec![rendered.exporter_image, rendered.runtime_image],
            },
            Op::WriteConfig(rendered.config),
            Op::WriteQuadlets(self.quadlets()),
            self.create_volume(false),
            Op::Start { restart: true },
        ]
    }

    pub fn down() -> Vec<Op> {
        vec![Op::Stop, Op::RemoveFiles, Op::RemoveVolume, Op::Reload]
    }

    pub fn batch(&self, ops: Vec<Op>) -> Batch {
        Batch {
            names: self.names.clone(),
            owner: Owner {
                namespace: "lab".to_owned(),
                uid: self.uid.clone(),
            },
            fence: Fence {
                lease_uid: self.lease_uid.clone(),
                epoch: self.epoch,
            },
            ops,
            time_limit: self.limit,
        }
    }

    /// Runs `ops` and gives what was reported; the batch itself must succeed.
    pub async fn run(&self, hosts: &SshHosts, ops: Vec<Op>) -> Vec<Report> {
        let (reports, result) = self.try_run(hosts, ops).await;
        result.unwrap_or_else(|failure| panic!("{failure}; reported: {reports:#?}"));
        reports
    }

    pub async fn try_run(
        &self,
        hosts: &SshHosts,
        ops: Vec<Op>,
    ) -> (Vec<Report>, Result<(), Failure>) {
        self.run_at(hosts, &target(), ops, |_| ()).await
    }

    /// Runs `ops` on `target`; `each` sees every report as it comes.
    pub async fn run_at(
        &self,
        hosts: &SshHosts,
        target: &Target,
        ops: Vec<Op>,
        mut each: impl FnMut(&Report),
    ) -> (Vec<Report>, Result<(), Failure>) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let batch = self.batch(ops);
        let listen = async {
            let mut reports = Vec::new();
            while let Some(report) = receiver.recv().await {
                each(&report);
                reports.push(report);
            }
            reports
        };
        let (result, reports) = tokio::join!(hosts.run(target, &batch, sender), listen);
        (reports, result)
    }

    /// A property of one of the units, e.g. `InvocationID`.
    pub fn property(&self, unit: &str, property: &str) -> String {
        stdout(&format!(
            "systemctl show --value -p {property} {unit}.service"
        ))
    }

    pub fn assert_active(&self) {
        for unit in [
            self.names.net(),
            self.names.runtime(),
            self.names.exporter_unit(),
        ] {
            assert_eq!(self.property(&unit, "ActiveState"), "active", "{unit}");
        }
    }

    /// What is on the host under the instance's name; nothing after a teardown.
    pub fn left_on_host(&self) -> String {
        let name = self.name();
        stdout(&format!(
            "find /etc /run /var/lib/exporter-set-controller -xdev -name '*{name}*'; podman ps -aq --filter name={name}; podman volume ls -q --filter name={name}; systemctl list-units --all --plain --no-legend '{name}*'"
        ))
    }

    /// Runs `ops`, of which the last must fail; gives that failure.
    pub async fn failure(&self, hosts: &SshHosts, ops: Vec<Op>) -> Failure {
        let reports = self.run(hosts, ops).await;
        match reports.last().map(|report| report.outcome.clone()) {
            Some(Outcome::Failed(failure)) => failure,
            _ => panic!("nothing failed: {reports:#?}"),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let (net, runtime, exporter) = (
            self.names.net(),
            self.names.runtime(),
            self.names.exporter_unit(),
        );
        let volume = self.names.volume();
        // By other means than those under test.
        on_host(&format!(
            "systemctl stop {exporter} {runtime} {net} 2>/dev/null; podman rm -f --ignore {exporter} {runtime} {net}; podman volume rm -f {volume}; rm -f /etc/containers/systemd/{}-* {} /var/lib/exporter-set-controller/staged/{} /var/lib/exporter-set-controller/epoch/{}; systemctl daemon-reload; systemctl reset-failed {exporter} {runtime} {net} 2>/dev/null",
            self.name(),
            self.names.config_path(),
            self.name(),
            self.lease_uid,
        ));
    }
}

/// The steps and whether each changed something.
pub fn changes(reports: &[Report]) -> Vec<(Step, bool)> {
    reports
        .iter()
        .map(|report| match &report.outcome {
            Outcome::Changed => (report.step, true),
            Outcome::Unchanged => (report.step, false),
            Outcome::Failed(failure) => panic!("{failure}"),
        })
        .collect()
}

/// Runs `ops`, of which the last must fail with `class` and say `part`.
pub async fn fails(instance: &Instance, ops: Vec<Op>, class: FailureClass, part: &str) -> Failure {
    let failure = instance.failure(&SshHosts::new(), ops).await;
    assert_eq!(failure.class, class, "{failure}");
    assert!(failure.message.contains(part), "{part}: {failure}");
    failure
}
