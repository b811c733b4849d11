//! Carries out what [`Session`] and [`Patience`] decide.

use std::fs;
use std::io::{self, BufReader};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::patience::{Move, Patience};
use super::session::{Session, Step};
use crate::config::{ConfigError, ExporterConfig};
use crate::exec;
use crate::log::log;
use crate::ndjson::{receive, send};
use crate::report::Report;
use crate::wire::{FromExporter, Identity, ToExporter};

const USAGE: &str = "usage: jmp run --exporter-config PATH";
/// Folder of the machine's disk; the variable `JMP_SHARED` names another one.
const SHARED: &str = "/shared";
/// The variable that names the launcher to shut down at a session's end.
const LAUNCHER_VARIABLE: &str = "JUMPSTARTER_LAUNCHER_SOCKET";
/// Limit on one connection attempt, and on the answer to its first message.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Pause before the first attempt after a broken connection.
const SETTLE: Duration = Duration::from_millis(100);
/// From a lost session to the end of the process.
const UNWINDING: Duration = Duration::from_millis(3500);
/// Refused registrations after which the process ends.
const MAX_REFUSALS: u32 = 5;

/// Why `jmp run` doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command line is wrong.
    #[error("{USAGE}")]
    Usage,
    /// The file can't be read.
    #[error("can't read the exporter config {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is refused.
    #[error("the exporter config {path} is invalid: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// The field and its problem.
        source: ConfigError,
    },
    /// The system refuses signal handlers.
    #[error("can't handle signals: {0}")]
    Signals(io::Error),
}

/// Carries out the command line (without the program's name).
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    match config_path(arguments).and_then(|path| run(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&format!("Error: {error}"));
            ExitCode::from(if matches!(error, RunError::Usage) {
                2
            } else {
                1
            })
        }
    }
}

fn config_path(arguments: impl IntoIterator<Item = String>) -> Result<PathBuf, RunError> {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["run", "--exporter-config", path] => Ok(PathBuf::from(path)),
        ["run", flag] => flag
            .strip_prefix("--exporter-config=")
            .map(PathBuf::from)
            .ok_or(RunError::Usage),
        _ => Err(RunError::Usage),
    }
}

/// Runs the exporter until a lease's end, a signal or a lost controller ends it.
///
/// # Errors
/// [`RunError`] when it doesn't start.
pub fn run(path: &Path) -> Result<(), RunError> {
    let text = fs::read_to_string(path).map_err(|source| RunError::Read {
        path: path.to_owned(),
        source,
    })?;
    let config = ExporterConfig::parse(&text).map_err(|source| RunError::Config {
        path: path.to_owned(),
        source,
    })?;
    let (feed, inputs) = mpsc::channel();
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP]).map_err(RunError::Signals)?;
    let signalled = feed.clone();
    thread::spawn(move || {
        signals
            .forever()
            .try_for_each(|signal| signalled.send(Input::Signal(signal)))
    });
    log(&format!(
        "exporter {}/{} for {}",
        config.namespace, config.name, config.endpoint
    ));
    let exporter = Exporter {
        session: Session::new(config.exit_on_lease_end),
        patience: Patience {
            waits_for_controller: config.waits_for_controller,
            max_backoff: Duration::from_millis(config.max_reconnect_backoff_ms),
            exit_on_lease_end: config.exit_on_lease_end,
        },
        config,
        path: path.to_owned(),
        inputs,
        feed,
        connection: 0,
    };
    exporter.serve();
    log("the exporter ends");
    Ok(())
}

/// What the main thread waits for. Messages carry the number of their connection.
enum Input {
    Message(u64, ToExporter),
    Broken(u64),
    Signal(i32),
}

/// How a connection, or an attempt at one, ended.
enum End {
    /// It could not be made.
    NotConnected(io::Error),
    /// The controller refused the registration.
    Refused(String),
    /// It broke.
    Broken,
    /// The controller ended the session.
    SessionLost,
    /// The process is to end.
    Exit,
}

struct Exporter {
    config: ExporterConfig,
    path: PathBuf,
    session: Session,
    patience: Patience,
    inputs: Receiver<Input>,
    feed: Sender<Input>,
    connection: u64,
}

impl Exporter {
    /// Connects again and again until the process is to end.
    fn serve(mut self) {
        let (mut since, mut attempt, mut refusals) = (Instant::now(), 0, 0);
        let mut in_session = false;
        loop {
            let (end, pause) = match self.patience.next(since.elapsed(), attempt, in_session) {
                Move::GiveUp => {
                    log("the controller is away for too long");
                    return shutdown_launcher();
                }
                Move::Wait(pause) => {
                    if self.pause(pause) {
                        return;
                    }
                    continue;
                }
                Move::Resume(pause) => (self.connect(true), pause),
                Move::Register(pause) => (self.connect(false), pause),
            };
            let pause = match end {
                End::Exit => return,
                End::Broken => {
                    log("lost the controller");
                    (since, attempt, refusals, in_session) = (Instant::now(), 0, 0, true);
                    SETTLE
                }
                End::SessionLost => {
                    log("the controller lost the session");
                    if self.config.exit_on_lease_end {
                        self.pause(UNWINDING);
                        return shutdown_launcher();
                    }
                    (since, attempt, refusals, in_session) = (Instant::now(), 0, 0, false);
                    SETTLE
                }
                End::NotConnected(error) => {
                    log(&format!(
                        "no connection to {}: {error}",
                        self.config.endpoint
                    ));
                    attempt += 1;
                    pause
                }
                End::Refused(message) => {
                    log(&format!("registration refused: {message}"));
                    refusals += 1;
                    in_session = false;
                    if self.config.exit_on_lease_end || refusals == MAX_REFUSALS {
                        return shutdown_launcher();
                    }
                    pause
                }
            };
            if self.pause(pause) {
                return;
            }
        }
    }

    /// Lets time pass without a connection; whether a signal ends the process.
    fn pause(&mut self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            match self
                .inputs
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(Input::Signal(signal)) if !self.signal(signal).is_empty() => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    fn signal(&mut self, signal: i32) -> Vec<Step> {
        log(&format!("signal {signal}"));
        if signal == SIGHUP {
            self.session.hung_up()
        } else {
            self.session.terminated()
        }
    }

    /// One connection from its beginning to its end.
    fn connect(&mut self, resume: bool) -> End {
        let (stream, tick) = match self.introduce(resume) {
            Ok(connected) => connected,
            Err(end) => return end,
        };
        log(if resume { "resumed" } else { "registered" });
        if !resume {
            let steps = self.session.registered();
            if self.perform(&stream, steps) {
                return End::Exit;
            }
        }
        let mut next_tick = Instant::now() + tick;
        loop {
            let steps = match self.inputs.recv_timeout(next_tick - Instant::now()) {
                Ok(Input::Signal(signal)) => self.signal(signal),
                Ok(Input::Message(connection, ToExporter::SessionLost))
                    if connection == self.connection =>
                {
                    return End::SessionLost;
                }
                Ok(Input::Message(connection, message)) if connection == self.connection => {
                    self.message(&stream, message)
                }
                Ok(Input::Broken(connection)) if connection == self.connection => {
                    return End::Broken;
                }
                Ok(Input::Message(..) | Input::Broken(_)) => Vec::new(),
                Err(RecvTimeoutError::Timeout) => {
                    next_tick = Instant::now() + tick;
                    let _ = send(&mut &stream, &FromExporter::Tick);
                    Vec::new()
                }
                // Can't happen while `feed` is here.
                Err(RecvTimeoutError::Disconnected) => return End::Exit,
            };
            if self.perform(&stream, steps) {
                return End::Exit;
            }
        }
    }

    /// Connects, says who we are, and starts reading.
    fn introduce(&mut self, resume: bool) -> Result<(TcpStream, Duration), End> {
        let stream = dial(&self.config.endpoint).map_err(End::NotConnected)?;
        send(&mut &stream, &self.first_message(resume)).map_err(End::NotConnected)?;
        let mut reader = BufReader::new(stream.try_clone().map_err(End::NotConnected)?);
        let tick = match receive(&mut reader).map_err(End::NotConnected)? {
            Some(ToExporter::Accepted { tick_ms }) => Duration::from_millis(tick_ms.max(1)),
            Some(ToExporter::Refused { message }) => return Err(End::Refused(message)),
            Some(_) | None => {
                return Err(End::NotConnected(io::ErrorKind::ConnectionAborted.into()));
            }
        };
        stream.set_read_timeout(None).map_err(End::NotConnected)?;
        self.connection += 1;
        let (feed, connection) = (self.feed.clone(), self.connection);
        thread::spawn(move || {
            while let Ok(Some(message)) = receive(&mut reader) {
                if feed.send(Input::Message(connection, message)).is_err() {
                    return;
                }
            }
            // The main thread may be gone.
            let _ = feed.send(Input::Broken(connection));
        });
        Ok((stream, tick))
    }

    fn first_message(&self, resume: bool) -> FromExporter {
        let identity = Identity {
            token: self.config.token.clone(),
            kind: "Exporter".into(),
            namespace: self.config.namespace.clone(),
            name: self.config.name.clone(),
        };
        let report = Box::new(self.report());
        if resume {
            let lease = self.session.lease().map(str::to_owned);
            return FromExporter::Resume {
                identity,
                lease,
                report,
            };
        }
        let name = ("jumpstarter.dev/name".to_owned(), self.config.name.clone());
        let devices = self.config.drivers.devices(fresh_uuid);
        FromExporter::Register {
            identity,
            labels: [name].into(),
            devices,
            report,
        }
    }

    fn report(&self) -> Report {
        Report::take(&self.config, &self.path)
    }

    fn message(&mut self, stream: &TcpStream, message: ToExporter) -> Vec<Step> {
        match message {
            ToExporter::LeaseStarted { lease, touch } => {
                log(&format!("lease {lease} started"));
                self.session.lease_started(lease, touch)
            }
            ToExporter::LeaseEnded { lease } => {
                log(&format!("lease {lease} ended"));
                self.session.lease_ended(&lease)
            }
            ToExporter::Report { id } => {
                let report = Box::new(self.report());
                // A broken connection shows at its reader.
                let _ = send(&mut &*stream, &FromExporter::Report { id, report });
                Vec::new()
            }
            ToExporter::Accepted { .. } | ToExporter::Refused { .. } | ToExporter::SessionLost => {
                Vec::new()
            }
        }
    }

    /// Does the steps; whether the process is to end. A broken connection stops
    /// no step: it shows at its reader, and an end must not be missed.
    fn perform(&self, mut stream: &TcpStream, steps: Vec<Step>) -> bool {
        for step in steps {
            match step {
                Step::Pause(pause) => thread::sleep(pause),
                Step::Status(status, message) => {
                    log(&format!("status {}", status.as_str()));
                    let message = message.to_owned();
                    let _ = send(&mut stream, &FromExporter::Status { status, message });
                }
                Step::Touch => touch(),
                Step::ShutdownLauncher => shutdown_launcher(),
                Step::Unregister => {
                    let _ = send(&mut stream, &FromExporter::Unregister);
                }
                Step::Exit => return true,
            }
        }
        false
    }
}

fn dial(endpoint: &str) -> io::Result<TcpStream> {
    let address = endpoint
        .to_socket_addrs()?
        .next()
        .ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CONNECT_LIMIT))?;
    Ok(stream)
}

/// A random UUID.
pub(crate) fn fresh_uuid() -> String {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    uuid.trim_end().to_owned()
}

/// Writes a disk image, as flashing does.
fn touch() {
    let folder = std::env::var("JMP_SHARED").unwrap_or_else(|_| SHARED.into());
    let image = Path::new(&folder).join("root");
    match fs::write(&image, "written by a lease's user\n") {
        Ok(()) => log(&format!("wrote {}", image.display())),
        Err(error) => log(&format!("can't write {}: {error}", image.display())),
    }
}

fn shutdown_launcher() {
    let Ok(socket) = std::env::var(LAUNCHER_VARIABLE) else {
        return;
    };
    if let Err(error) = exec::client::shutdown(Path::new(&socket)) {
        log(&format!("can't shut the launcher down: {error}"));
    }
}
