//! `jumpstarter-exec`, the program, against the library's client over a real socket.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use testbed_standins::exec::client::{ClientError, exec, shutdown};
use testbed_standins::exec::protocol::{Reply, Request};
use testbed_standins::ndjson::{receive, send};

const PROGRAM: &str = env!("CARGO_BIN_EXE_jumpstarter-exec");
const DEADLINE: Duration = Duration::from_secs(30);

/// A server with a folder of its own.
struct Fixture {
    folder: tempfile::TempDir,
    server: Child,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

impl Fixture {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = serve(&socket).stderr(Stdio::null()).spawn().unwrap();
        wait_for("a server that answers", || {
            UnixStream::connect(&socket).is_ok()
        });
        Self { folder, server }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a shell script: exit code, standard output, standard error.
    fn sh(&self, script: &str, input: &'static [u8]) -> (Option<i32>, Vec<u8>, Vec<u8>) {
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let argv = ["sh", "-c", script].map(String::from).to_vec();
        let code = exec(&self.socket(), argv, input, &mut output, &mut errors).unwrap();
        (code, output, errors)
    }

    /// Sends the first request and returns the open connection.
    fn open(&self, script: &str) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.socket()).unwrap();
        let argv = ["sh", "-c", script].map(String::from).to_vec();
        send(
            &mut &stream,
            &Request::Exec {
                argv,
                env: Vec::new(),
                cwd: None,
            },
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        assert!(matches!(
            receive(&mut reader).unwrap(),
            Some(Reply::Started { .. })
        ));
        reader
    }
}

fn serve(socket: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--socket"]).arg(socket);
    command
}

/// What a server that can't start says.
fn refusal(socket: &Path) -> String {
    let Output { status, stderr, .. } = serve(socket).output().unwrap();
    assert_eq!(status.code(), Some(1));
    String::from_utf8(stderr).unwrap()
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "not seen within {DEADLINE:?}: {what}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn streams_and_exit_code_come_through() {
    let fixture = Fixture::start();
    let (code, output, errors) = fixture.sh("cat; echo err >&2; exit 7", b"from stdin");
    assert_eq!(code, Some(7));
    assert_eq!(String::from_utf8(output).unwrap(), "from stdin");
    assert_eq!(String::from_utf8(errors).unwrap(), "err\n");
}

#[test]
fn a_command_that_a_signal_ended_has_no_code() {
    let (code, ..) = Fixture::start().sh("kill -9 $$", b"");
    assert_eq!(code, None);
}

#[test]
fn environment_and_folder_are_the_clients_choice() {
    let fixture = Fixture::start();
    let stream = UnixStream::connect(fixture.socket()).unwrap();
    let request = Request::Exec {
        argv: ["sh", "-c", "echo $COLOUR; pwd"].map(String::from).to_vec(),
        env: vec![("COLOUR".into(), "green".into())],
        cwd: Some("/".into()),
    };
    send(&mut &stream, &request).unwrap();
    let (mut reader, mut output) = (BufReader::new(stream), Vec::new());
    while let Some(reply) = receive::<Reply>(&mut reader).unwrap() {
        if let Reply::Stdout { data } = reply {
            output.extend(data.0);
        }
    }
    assert_eq!(String::from_utf8(output).unwrap(), "green\n/\n");
}

#[test]
fn a_signal_reaches_the_command() {
    let fixture = Fixture::start();
    let mut reader =
        fixture.open("trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.01; done");
    let mut output = Vec::new();
    let code = loop {
        match receive(&mut reader).unwrap().unwrap() {
            Reply::Stdout { data } => {
                output.extend(data.0);
                if output == b"ready\n" {
                    send(&mut reader.get_mut(), &Request::Signal { signal: 10 }).unwrap();
                }
            }
            Reply::Exit { code } => break code,
            other => assert_eq!(other, Reply::Exit { code: Some(3) }),
        }
    };
    assert_eq!((code, output), (Some(3), b"ready\ngot\n".to_vec()));
}

#[test]
fn a_client_that_goes_takes_its_command_along() {
    let fixture = Fixture::start();
    let (ready, ended) = (fixture.file("ready"), fixture.file("ended"));
    let connection = fixture.open(&format!(
        "trap 'touch {ended}; exit' TERM; touch {ready}; while :; do sleep 0.01; done"
    ));
    wait_for("command ready", || fs::exists(&ready).unwrap());
    drop(connection);
    wait_for("SIGTERM handled", || fs::exists(&ended).unwrap());
}

#[test]
fn shutdown_ends_commands_and_server() {
    let mut fixture = Fixture::start();
    let (ready, ended) = (fixture.file("ready"), fixture.file("ended"));
    let _connection = fixture.open(&format!(
        "trap 'touch {ended}; exit' TERM; touch {ready}; while :; do sleep 0.01; done"
    ));
    wait_for("command ready", || fs::exists(&ready).unwrap());
    shutdown(&fixture.socket()).unwrap();
    assert_eq!(fixture.server.wait().unwrap().code(), Some(0));
    assert!(!fs::exists(fixture.socket()).unwrap());
    wait_for("SIGTERM handled", || fs::exists(&ended).unwrap());
}

#[test]
fn the_socket_is_open_to_every_user() {
    let fixture = Fixture::start();
    let mode = fs::metadata(fixture.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    let created = fixture.file("made-by-command");
    fixture.sh(&format!("touch {created}"), b"");
    assert_eq!(
        fs::metadata(created).unwrap().permissions().mode() & 0o777,
        0o666
    );
}

#[test]
fn a_live_server_keeps_its_socket_and_a_dead_ones_is_replaced() {
    let fixture = Fixture::start();
    let reason = refusal(&fixture.socket());
    assert!(reason.contains("another server answers"), "{reason}");
    shutdown(&fixture.socket()).unwrap();

    // A socket that its server left behind.
    drop(UnixListener::bind(fixture.file("stale")).unwrap());
    let stale = PathBuf::from(fixture.file("stale"));
    let mut server = serve(&stale).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the new server", || shutdown(&stale).is_ok());
    assert_eq!(server.wait().unwrap().code(), Some(0));

    let file = PathBuf::from(fixture.file("file"));
    fs::write(&file, "precious").unwrap();
    let reason = refusal(&file);
    assert!(reason.contains("is not a socket"), "{reason}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn what_can_not_be_done_is_refused_with_a_reason() {
    let fixture = Fixture::start();
    let missing = vec!["/no/such/program".to_owned()];
    let refused = exec(
        &fixture.socket(),
        missing,
        io::empty(),
        &mut io::sink(),
        &mut io::sink(),
    );
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("can't start /no/such/program")
    );

    let mut stream = UnixStream::connect(fixture.socket()).unwrap();
    send(&mut stream, &Request::StdinClose).unwrap();
    let reply = receive(&mut BufReader::new(stream)).unwrap();
    let message = "the first request must be Exec or Shutdown".into();
    assert_eq!(reply, Some(Reply::Error { message }));

    let nowhere = shutdown(Path::new("/no/such/socket"));
    assert!(
        matches!(nowhere, Err(ClientError::Connect { .. })),
        "{nowhere:?}"
    );
}

#[test]
fn the_programs_own_client_passes_the_exit_code_on() {
    let fixture = Fixture::start();
    let Output { status, stdout, .. } = Command::new(PROGRAM)
        .args([
            "exec",
            "--socket",
            &fixture.file("socket"),
            "--",
            "sh",
            "-c",
            "echo out; exit 5",
        ])
        .output()
        .unwrap();
    assert_eq!((status.code(), stdout), (Some(5), b"out\n".to_vec()));
}
