//! Connections from exporters: bytes in, [`PeerEvent`]s out.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::log::log;
use crate::wire::{FromExporter, ToExporter};

/// What a connection tells the brain.
pub enum PeerEvent {
    /// An exporter introduced itself.
    Hello {
        /// The connection's number.
        connection: u64,
        /// `Register` or `Resume`.
        first: FromExporter,
        /// Messages for the exporter. Dropped, the connection ends.
        outbox: mpsc::UnboundedSender<ToExporter>,
    },
    /// It said something else.
    Said {
        /// The connection's number.
        connection: u64,
        /// What.
        message: FromExporter,
    },
    /// The connection is gone.
    Closed {
        /// The connection's number.
        connection: u64,
    },
}

/// Accepts connections for ever.
///
/// A connection that is silent for `keepalive` counts as gone: a host that lost
/// its power says nothing, and it takes TCP minutes to notice.
pub async fn accept(listener: TcpListener, keepalive: Duration, events: mpsc::Sender<PeerEvent>) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let connection = NEXT.fetch_add(1, Ordering::Relaxed);
                let events = events.clone();
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, connection, keepalive, &events).await {
                        log(&format!("connection {connection} from {address}: {error}"));
                    }
                    // The brain may be gone.
                    let _ = events.send(PeerEvent::Closed { connection }).await;
                });
            }
            Err(error) => {
                log(&format!("can't accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(
    stream: TcpStream,
    connection: u64,
    keepalive: Duration,
    events: &mpsc::Sender<PeerEvent>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let (outbox, messages) = mpsc::unbounded_channel();
    tokio::select! {
        read = read(reader, connection, keepalive, events, outbox) => read,
        written = write(writer, messages) => written,
    }
}

async fn read(
    reader: OwnedReadHalf,
    connection: u64,
    keepalive: Duration,
    events: &mpsc::Sender<PeerEvent>,
    outbox: mpsc::UnboundedSender<ToExporter>,
) -> io::Result<()> {
    let mut lines = BufReader::new(reader).lines();
    // Moved to the brain with the first message, so that the brain can hang up.
    let mut outbox = Some(outbox);
    loop {
        let line = timeout(keepalive, lines.next_line())
            .await
            .map_err(io::Error::other)??;
        let Some(line) = line else { return Ok(()) };
        // Without the line: it may hold a token.
        let message = serde_json::from_str(&line)
            .map_err(|error| io::Error::other(format!("not a message: {:?}", error.classify())))?;
        let event = match outbox.take() {
            Some(outbox) => PeerEvent::Hello {
                connection,
                first: message,
                outbox,
            },
            None => PeerEvent::Said {
                connection,
                message,
            },
        };
        if events.send(event).await.is_err() {
            return Ok(());
        }
    }
}

/// Writes until the brain hangs up.
async fn write(
    mut writer: OwnedWriteHalf,
    mut messages: mpsc::UnboundedReceiver<ToExporter>,
) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        writer.write_all(&line).await?;
    }
    writer.shutdown().await
}
