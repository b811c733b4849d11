//! The launcher's client.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use super::protocol::{Base64, Reply, Request};
use crate::ndjson::{receive, send};

/// Why a request to the launcher failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers on the socket.
    #[error("no launcher answers on {socket}: {source}")]
    Connect {
        /// The socket's path.
        socket: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The server refused; its own words.
    #[error("the launcher refused: {0}")]
    Refused(String),
    /// The server went away before it reported the end.
    #[error("the launcher hung up before the command ended")]
    HungUp,
    /// The connection broke or carried something else than the protocol.
    #[error("lost the launcher: {0}")]
    Lost(#[from] io::Error),
}

/// Runs `argv` in the launcher's container with the given streams and waits for
/// its end: the exit code, `None` when a signal ended it.
///
/// # Errors
/// [`ClientError`] when the command didn't run or its end isn't known.
pub fn exec(
    socket: &Path,
    argv: Vec<String>,
    mut input: impl Read + Send + 'static,
    output: &mut impl Write,
    errors: &mut impl Write,
) -> Result<Option<i32>, ClientError> {
    let stream = connect(socket)?;
    send(
        &mut &stream,
        &Request::Exec {
            argv,
            env: Vec::new(),
            cwd: None,
        },
    )?;
    let mut writer = stream.try_clone()?;
    // Left behind when the command ends first: it may be waiting for a terminal.
    thread::spawn(move || -> io::Result<()> {
        let mut buffer = vec![0; 16 * 1024];
        while let length @ 1.. = input.read(&mut buffer)? {
            let data = Base64(buffer.iter().take(length).copied().collect());
            send(&mut writer, &Request::Stdin { data })?;
        }
        send(&mut writer, &Request::StdinClose)
    });
    let mut reader = BufReader::new(stream);
    while let Some(reply) = receive(&mut reader)? {
        match reply {
            Reply::Started { .. } => {}
            Reply::Stdout { data } => write_through(output, &data)?,
            Reply::Stderr { data } => write_through(errors, &data)?,
            Reply::Exit { code } => return Ok(code),
            Reply::Error { message } => return Err(ClientError::Refused(message)),
        }
    }
    Err(ClientError::HungUp)
}

/// Ends the launcher and everything that it started.
///
/// # Errors
/// [`ClientError`] when nobody answers or the launcher doesn't confirm.
pub fn shutdown(socket: &Path) -> Result<(), ClientError> {
    let stream = connect(socket)?;
    send(&mut &stream, &Request::Shutdown)?;
    match receive(&mut BufReader::new(stream))? {
        Some(Reply::Exit { .. }) => Ok(()),
        Some(Reply::Error { message }) => Err(ClientError::Refused(message)),
        Some(_) | None => Err(ClientError::HungUp),
    }
}

fn connect(socket: &Path) -> Result<UnixStream, ClientError> {
    UnixStream::connect(socket).map_err(|source| ClientError::Connect {
        socket: socket.to_owned(),
        source,
    })
}

fn write_through(stream: &mut impl Write, data: &Base64) -> io::Result<()> {
    stream.write_all(&data.0)?;
    stream.flush()
}
