//! The launcher's server.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use std::{fs, thread};

use rustix::fs::Mode;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::log::Log;
use super::protocol::{Base64, Reply, Request};
use crate::ndjson::{receive, send};

/// How long the output of an ended command may keep the answer waiting: a
/// grandchild that holds the pipe open must not keep the client for ever.
const DRAIN: Duration = Duration::from_millis(500);

/// Why the server didn't start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A live server owns the socket.
    #[error("another server answers on {0}: stop it first or choose another --socket")]
    InUse(PathBuf),
    /// Something that is no socket has the socket's name.
    #[error("{0} exists and is not a socket: remove it or choose another --socket")]
    NotASocket(PathBuf),
    /// The socket can't be made.
    #[error("can't listen on {path}: {source}")]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// A bound launcher socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    socket: PathBuf,
    log: Log,
}

impl Server {
    /// Binds `socket` with mode 0666, so that an exporter of any user may
    /// connect, and takes the place of a socket that nobody answers on.
    ///
    /// From here on the process creates files without a umask: QEMU's own
    /// sockets must be open to the exporter as well.
    ///
    /// # Errors
    /// [`ServeError`] names the path and what to do.
    pub fn bind(socket: &Path, log: Log) -> Result<Self, ServeError> {
        clear_stale(socket)?;
        // Set before the bind: between a bind and a later chmod a client would be refused.
        rustix::process::umask(Mode::from_raw_mode(0o111));
        let bound = UnixListener::bind(socket);
        rustix::process::umask(Mode::empty());
        let listener = bound.map_err(|source| listen_error(socket, source))?;
        log.info(&format!("listening on {}", socket.display()));
        Ok(Self {
            listener,
            socket: socket.to_owned(),
            log,
        })
    }

    /// Serves until a client asks for shutdown; then the socket is gone and
    /// every command has been told to end.
    pub fn run(self) {
        let (shutdown, shut_down) = mpsc::channel();
        let shared = Shared {
            processes: Arc::default(),
            log: self.log.clone(),
        };
        let (listener, accepting) = (self.listener, shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, shutdown) = (accepting.clone(), shutdown.clone());
                thread::spawn(move || shared.connection(&stream, &shutdown));
            }
        });
        // The thread holds a sender for as long as it runs.
        let _ = shut_down.recv();
        self.log.info("shutting down");
        if let Err(error) = fs::remove_file(&self.socket) {
            self.log
                .error(&format!("can't remove {}: {error}", self.socket.display()));
        }
        shared.processes.terminate_all();
    }
}

fn clear_stale(socket: &Path) -> Result<(), ServeError> {
    let metadata = match fs::symlink_metadata(socket) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(listen_error(socket, source)),
    };
    if !metadata.file_type().is_socket() {
        return Err(ServeError::NotASocket(socket.to_owned()));
    }
    if UnixStream::connect(socket).is_ok() {
        return Err(ServeError::InUse(socket.to_owned()));
    }
    fs::remove_file(socket).map_err(|source| listen_error(socket, source))
}

fn listen_error(path: &Path, source: io::Error) -> ServeError {
    ServeError::Listen {
        path: path.to_owned(),
        source,
    }
}

#[derive(Debug, Clone)]
struct Shared {
    processes: Arc<Processes>,
    log: Log,
}

impl Shared {
    fn connection(&self, stream: &UnixStream, shutdown: &mpsc::Sender<()>) {
        // One reader for all requests: it may hold the next ones already.
        let Ok(mut requests) = stream.try_clone().map(BufReader::new) else {
            return;
        };
        let result = match receive(&mut requests) {
            // Somebody looked whether a server answers.
            Ok(None) => Ok(()),
            Ok(Some(Request::Exec { argv, env, cwd })) => {
                self.exec(stream, requests, &argv, env, cwd.as_deref())
            }
            Ok(Some(Request::Shutdown)) => {
                let answered = send(&mut &*stream, &Reply::Exit { code: Some(0) });
                let _ = shutdown.send(());
                answered
            }
            Ok(Some(_)) => refuse(stream, "the first request must be Exec or Shutdown".into()),
            Err(error) => refuse(stream, format!("not a request: {error}")),
        };
        if let Err(error) = result {
            self.log.debug(&format!("connection ended early: {error}"));
        }
    }

    fn exec(
        &self,
        stream: &UnixStream,
        requests: BufReader<UnixStream>,
        argv: &[String],
        env: Vec<(String, String)>,
        cwd: Option<&str>,
    ) -> io::Result<()> {
        let Some((program, arguments)) = argv.split_first() else {
            return refuse(stream, "argv is empty: name a program".into());
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(env);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        let writer = Arc::new(Mutex::new(stream.try_clone()?));
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return refuse(stream, format!("can't start {program}: {error}")),
        };
        let pid = child.id();
        let process = self.processes.add(pid);
        self.log.info(&format!("started {program}, pid {pid}"));
        // From here to the reaping nothing may return early, not even without a client.
        let _ = reply(&writer, &Reply::Started { pid });
        let (pumping, drained) = mpsc::channel::<()>();
        if let Some(stdout) = child.stdout.take() {
            pump(stdout, &writer, pumping.clone(), |data| Reply::Stdout {
                data,
            });
        }
        if let Some(stderr) = child.stderr.take() {
            pump(stderr, &writer, pumping.clone(), |data| Reply::Stderr {
                data,
            });
        }
        drop(pumping);
        let (stdin, following) = (child.stdin.take(), Arc::clone(&process));
        thread::spawn(move || follow(requests, stdin, &following));

        process.wait_without_reaping();
        let status = process.reap(|| child.wait());
        self.processes.remove(pid);
        let code = status?.code();
        self.log
            .info(&format!("pid {pid} ended, exit code {code:?}"));
        // Nobody ever sends on it: it reports when the last pump let go.
        let _ = drained.recv_timeout(DRAIN);
        reply(&writer, &Reply::Exit { code })?;
        // Ends the thread that follows the client as well.
        stream.shutdown(std::net::Shutdown::Both)
    }
}

fn refuse(mut stream: &UnixStream, message: String) -> io::Result<()> {
    send(&mut stream, &Reply::Error { message })
}

fn reply(writer: &Mutex<UnixStream>, message: &Reply) -> io::Result<()> {
    send(&mut *lock(writer), message)
}

/// Copies a pipe of the command to the client until either ends.
fn pump(
    mut pipe: impl Read + Send + 'static,
    writer: &Arc<Mutex<UnixStream>>,
    pumping: mpsc::Sender<()>,
    message: fn(Base64) -> Reply,
) {
    let writer = Arc::clone(writer);
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            let data = Base64(buffer.iter().take(length).copied().collect());
            // Go on after a failure: a command whose output nobody reads must not block on it.
            let _ = reply(&writer, &message(data));
        }
        drop(pumping);
    });
}

/// Does what the client asks for while its command runs; ends the command when the client goes.
fn follow(mut requests: impl BufRead, stdin: Option<ChildStdin>, process: &Process) {
    // On a thread of its own: a command that doesn't read must not delay signals.
    let (input, bytes) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        let Some(mut stdin) = stdin else { return };
        for chunk in bytes {
            if stdin.write_all(&chunk).is_err() {
                return;
            }
        }
    });
    let mut input = Some(input);
    while let Ok(Some(request)) = receive(&mut requests) {
        match request {
            Request::Stdin { data } => {
                // A command that closed its input is free to ignore the rest.
                let _ = input.as_ref().map(|input| input.send(data.0));
            }
            Request::StdinClose => input = None,
            Request::Signal { signal } => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    process.signal(signal);
                }
            }
            Request::Exec { .. } | Request::Shutdown => break,
        }
    }
    process.signal(Signal::TERM);
}

/// The running commands.
#[derive(Debug, Default)]
struct Processes(Mutex<BTreeMap<u32, Arc<Process>>>);

impl Processes {
    fn add(&self, pid: u32) -> Arc<Process> {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = Arc::new(Process(Mutex::new(id)));
        lock(&self.0).insert(pid, Arc::clone(&process));
        process
    }

    fn remove(&self, pid: u32) {
        lock(&self.0).remove(&pid);
    }

    fn terminate_all(&self) {
        for process in lock(&self.0).values() {
            process.signal(Signal::TERM);
        }
    }
}

/// A command's process id for as long as it is certain to be that command's.
#[derive(Debug)]
struct Process(Mutex<Option<Pid>>);

impl Process {
    /// Sends a signal, unless the process is gone.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = *lock(&self.0) {
            // It may have ended a moment ago; it isn't reaped, so the id is still its own.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits for the end and leaves the zombie, which keeps the id from being used again.
    fn wait_without_reaping(&self) {
        let Some(pid) = *lock(&self.0) else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // Only a signal handler can interrupt it, and this program has none.
        let _ = rustix::process::waitid(WaitId::Pid(pid), options);
    }

    /// Reaps by `wait`; from then on no signal is sent.
    fn reap<T>(&self, wait: impl FnOnce() -> T) -> T {
        let mut pid = lock(&self.0);
        *pid = None;
        wait()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder panics half-way through a change: what it guards is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
