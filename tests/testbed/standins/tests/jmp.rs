//! `jmp`, the program, against a controller that the test plays.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use testbed_standins::ndjson::{receive, send};
use testbed_standins::wire::{ExporterStatus, FromExporter, ToExporter};

const DEADLINE: Duration = Duration::from_secs(30);

/// An exporter process and the listener that its config points to.
struct Fixture {
    folder: tempfile::TempDir,
    listener: TcpListener,
    exporter: Child,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.exporter.kill().unwrap();
        self.exporter.wait().unwrap();
    }
}

impl Fixture {
    fn start(extra: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = format!(
            "apiVersion: jumpstarter.dev/v1alpha1\nkind: ExporterConfig\n\
             metadata: {{namespace: lab, name: x1}}\nendpoint: {}\ntoken: secret\n{extra}\n",
            listener.local_addr().unwrap()
        );
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x1.yaml"), config).unwrap();
        let exporter = jmp(&folder).spawn().unwrap();
        Self {
            folder,
            listener,
            exporter,
        }
    }

    /// Takes the next connection and accepts its first message.
    fn accept(&self) -> (Peer, FromExporter) {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut peer = Peer(BufReader::new(stream));
        let first = receive(&mut peer.0).unwrap().unwrap();
        peer.tell(&ToExporter::Accepted { tick_ms: 50 });
        (peer, first)
    }

    /// Waits until a registered exporter is Available.
    fn available(&self) -> Peer {
        let (mut peer, first) = self.accept();
        assert!(matches!(first, FromExporter::Register { .. }));
        assert_eq!(peer.next_status(), Some(ExporterStatus::Available));
        peer
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.exporter.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for a line of the exporter's log.
    fn wait_for_log(&mut self, text: &str) {
        let lines = BufReader::new(self.exporter.stderr.as_mut().unwrap()).lines();
        assert!(
            lines.map(Result::unwrap).any(|line| line.contains(text)),
            "no line {text}"
        );
    }

    fn exit_code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.exporter.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the exporter still runs");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn jmp(folder: &tempfile::TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jmp"));
    command
        .args(["run", "--exporter-config"])
        .arg(folder.path().join("x1.yaml"));
    command
        .env("JMP_SHARED", folder.path())
        .env_remove("JUMPSTARTER_LAUNCHER_SOCKET");
    command.stderr(Stdio::piped());
    command
}

struct Peer(BufReader<TcpStream>);

impl Peer {
    fn tell(&mut self, message: &ToExporter) {
        send(self.0.get_mut(), message).unwrap();
    }

    fn lease(&mut self, lease: &str, touch: bool) {
        self.tell(&ToExporter::LeaseStarted {
            lease: lease.into(),
            touch,
        });
        assert_eq!(self.next_status(), Some(ExporterStatus::LeaseReady));
    }

    /// The next reported state; `None` when the exporter unregisters or hangs up.
    fn next_status(&mut self) -> Option<ExporterStatus> {
        loop {
            match receive(&mut self.0).unwrap()? {
                FromExporter::Status { status, .. } => return Some(status),
                FromExporter::Unregister => return None,
                _ => {}
            }
        }
    }
}

#[test]
fn a_lease_with_exit_on_lease_end_is_the_only_one() {
    let mut fixture = Fixture::start("exitOnLeaseEnd: true");
    let mut peer = fixture.available();
    assert!(!fs::exists(fixture.folder.path().join("root")).unwrap());
    peer.lease("l1", true);
    peer.tell(&ToExporter::LeaseEnded { lease: "l1".into() });
    assert_eq!(peer.next_status(), Some(ExporterStatus::Available));
    assert_eq!(peer.next_status(), Some(ExporterStatus::Offline));
    assert_eq!(peer.next_status(), None);
    assert_eq!(fixture.exit_code(), Some(0));
    assert!(fs::exists(fixture.folder.path().join("root")).unwrap());
}

#[test]
fn without_it_leases_follow_each_other_until_sighup() {
    let mut fixture = Fixture::start("");
    let mut peer = fixture.available();
    for lease in ["l1", "l2"] {
        peer.lease(lease, false);
        if lease == "l2" {
            fixture.signal(Signal::HUP);
            fixture.wait_for_log("signal 1");
        }
        peer.tell(&ToExporter::LeaseEnded {
            lease: lease.into(),
        });
        assert_eq!(peer.next_status(), Some(ExporterStatus::Available));
    }
    assert_eq!(peer.next_status(), Some(ExporterStatus::Offline));
    assert_eq!(fixture.exit_code(), Some(0));
}

#[test]
fn sigterm_unregisters() {
    let mut fixture = Fixture::start("");
    let mut peer = fixture.available();
    peer.lease("l1", false);
    fixture.signal(Signal::TERM);
    assert_eq!(peer.next_status(), Some(ExporterStatus::Offline));
    assert_eq!(peer.next_status(), None);
    assert_eq!(fixture.exit_code(), Some(0));
}

#[test]
fn a_broken_connection_is_resumed_within_the_session() {
    let fixture = Fixture::start("exitOnLeaseEnd: true");
    let mut peer = fixture.available();
    peer.lease("l1", false);
    drop(peer);
    let (_, first) = fixture.accept();
    let FromExporter::Resume { lease, .. } = first else {
        panic!("not resumed")
    };
    assert_eq!(lease.as_deref(), Some("l1"));
}

#[test]
fn a_session_that_the_controller_lost_is_not_resumed() {
    let fixture = Fixture::start("exitOnLeaseEnd: false");
    let mut peer = fixture.available();
    peer.tell(&ToExporter::SessionLost);
    let (_, first) = fixture.accept();
    assert!(matches!(first, FromExporter::Register { .. }));

    let mut fixture = Fixture::start("exitOnLeaseEnd: true");
    let mut peer = fixture.available();
    peer.tell(&ToExporter::SessionLost);
    assert_eq!(fixture.exit_code(), Some(0));
}

#[test]
fn a_refused_registration_ends_it_with_success() {
    let mut fixture = Fixture::start("exitOnLeaseEnd: true");
    let (stream, _) = fixture.listener.accept().unwrap();
    let mut peer = Peer(BufReader::new(stream));
    assert!(receive::<FromExporter>(&mut peer.0).unwrap().is_some());
    peer.tell(&ToExporter::Refused {
        message: "invalid token".into(),
    });
    assert_eq!(fixture.exit_code(), Some(0));
}

#[test]
fn the_report_tells_what_is_seen_but_no_secret() {
    let fixture = Fixture::start("");
    let (_, first) = fixture.accept();
    let FromExporter::Register {
        report,
        devices,
        labels,
        ..
    } = first
    else {
        panic!("not registered")
    };
    assert_eq!(
        report.token_sha256,
        "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
    );
    assert_eq!(report.config_folder, ["x1.yaml"]);
    assert!(
        report.network_namespace.starts_with("net:["),
        "{}",
        report.network_namespace
    );
    assert!(report.devices.iter().any(|device| device == "null"));
    assert_eq!((devices.len(), labels.len()), (1, 1));
    assert!(!serde_json::to_string(&report).unwrap().contains("secret"));
}

#[test]
fn a_wrong_config_is_refused_with_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("x1.yaml"),
        "kind: ExporterConfig\ntoken: secret\n",
    )
    .unwrap();
    let mut exporter = jmp(&folder).spawn().unwrap();
    assert_eq!(exporter.wait().unwrap().code(), Some(1));
    let mut message = String::new();
    exporter
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut message)
        .unwrap();
    assert!(message.contains("apiVersion: is required"), "{message}");
    assert!(!message.contains("secret"), "{message}");
}
