//! The program as the Jumpstarter operator starts, probes and stops it.
//!
//! Needs the testbed: `tests/testbed/testbed up`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod lab;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use lab::{Lab, eventually, in_time};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const PROVISIONER: &str = "qemu-ssh.jumpstarter.dev";
const LEASE: &str = "exporter-set-controller-qemu-ssh.jumpstarter.dev";

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_exporter-set-controller"));
    let ours = |name: &str| {
        name.starts_with("OTEL_") || matches!(name, "NAMESPACE" | "JOURNAL_DIR" | "RUST_LOG")
    };
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        program.env_remove(name);
    }
    program.stdin(Stdio::null()).kill_on_drop(true);
    program
}

#[tokio::test]
async fn settings_that_are_missing_or_wrong_end_it_with_1_and_usage_with_2() {
    let table: [(&[&str], i32, &str); 5] = [
        (&[], 1, "--provisioner is required"),
        (&["--provisioner=kubevirt.jumpstarter.dev"], 1, PROVISIONER),
        (&["-provisioner", PROVISIONER], 1, "NAMESPACE is required"),
        (&["--no-such-flag"], 2, "--no-such-flag"),
        (&["no-such-command"], 2, "no-such-command"),
    ];
    for (arguments, code, text) in table {
        let ended = in_time("the end", program().args(arguments).output())
            .await
            .unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(text), "{arguments:?}: {stderr}");
        assert!(ended.stdout.is_empty(), "{arguments:?}");
    }
}

/// A running controller, and the log lines that it has written so far.
struct Controller {
    process: Child,
    log: Arc<Mutex<Vec<Value>>>,
    _journal: tempfile::TempDir,
}

impl Controller {
    fn start(lab: &Lab) -> Self {
        let journal = tempfile::tempdir().unwrap();
        let mut process = program()
            .args([
                "--provisioner",
                PROVISIONER,
                "--leader-elect",
                "--metrics-bind-address=0",
            ])
            .args([
                "--health-probe-bind-address=127.0.0.1:0",
                "--kubeconfig",
                &lab.kubeconfig,
            ])
            .env("NAMESPACE", &lab.name)
            .env("JOURNAL_DIR", journal.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let sink = Arc::clone(&log);
        tokio::spawn(async move {
            while let Some(line) = lines.next_line().await.unwrap() {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                sink.lock().unwrap().push(line);
            }
        });
        Self {
            process,
            log,
            _journal: journal,
        }
    }

    /// Waits for a line whose message contains `text`.
    async fn says(&self, text: &str) -> Value {
        let look = || async {
            let log = self.log.lock().unwrap();
            let found = log
                .iter()
                .find(|line| line["msg"].as_str().unwrap().contains(text));
            found.cloned()
        };
        eventually(text, look).await
    }

    async fn probe(&self, path: &str) -> String {
        let line = self.says("probes on ").await;
        let address = line["msg"]
            .as_str()
            .unwrap()
            .trim_start_matches("probes on ");
        let mut stream = TcpStream::connect(address.parse::<SocketAddr>().unwrap())
            .await
            .unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: probe\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap().to_owned()
    }

    fn terminate(&self) {
        let pid = self.process.id().unwrap().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    async fn ends(&mut self) -> Option<i32> {
        in_time("the end", self.process.wait())
            .await
            .unwrap()
            .code()
    }
}

#[tokio::test]
async fn one_leads_the_next_is_ready_and_takes_over_when_the_first_is_stopped() {
    let lab = Lab::new("run").await;
    let mut first = Controller::start(&lab);
    let leading = first.says("leading").await;
    for (field, value) in [
        ("level", "info"),
        ("component", "exporter-set-controller"),
        ("namespace", &lab.name),
    ] {
        assert_eq!(leading[field], value, "{leading}");
    }
    let mut second = Controller::start(&lab);
    let waiting = second.says("waiting for the Lease").await;
    let leases: Api<Lease> = lab.admin();
    let holder = leases
        .get(LEASE)
        .await
        .unwrap()
        .spec
        .unwrap()
        .holder_identity
        .unwrap();
    assert!(
        waiting["msg"].as_str().unwrap().contains(&holder),
        "{waiting}"
    );
    for controller in [&first, &second] {
        assert_eq!(controller.probe("/readyz").await, "HTTP/1.1 200 OK");
        assert_eq!(controller.probe("/healthz").await, "HTTP/1.1 200 OK");
    }

    first.terminate();
    assert_eq!(first.ends().await, Some(0));
    let leading = second.says("leading").await;
    assert_eq!(leading["epoch"], 1);

    // Somebody takes the Lease away: nothing may be finished.
    leases
        .delete(LEASE, &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(second.ends().await, Some(1));
    second.says("the leadership is lost").await;
}

#[tokio::test]
async fn one_that_never_led_is_stopped_as_well() {
    let lab = Lab::new("stop").await;
    let mut first = Controller::start(&lab);
    first.says("leading").await;
    let mut second = Controller::start(&lab);
    second.says("waiting for the Lease").await;
    second.terminate();
    assert_eq!(second.ends().await, Some(0));
    first.terminate();
    assert_eq!(first.ends().await, Some(0));
}
