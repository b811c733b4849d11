//! One exec over a connection: a command line, a script on its stdin, lines from its stdout.

use super::connection::Session;
use super::redact::redact;
use super::report::Lines;
use crate::instance::{Failure, FailureClass};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, client};
use std::collections::VecDeque;

/// How much of stderr is kept: its end says why.
const STDERR_KEPT: usize = 8 * 1024;

/// How an exec ended, as far as we saw it.
#[derive(Debug, Default)]
pub(super) struct End {
    /// The exit code; none if the connection ended first, or a signal ended the command.
    pub(super) code: Option<u32>,
    /// The end of its stderr, without credentials.
    pub(super) stderr: String,
}

/// Runs `command` with `script` on its stdin; `each` gets every line of its stdout as it comes.
/// After `each` has failed, the rest is read and thrown away.
///
/// # Errors
/// That of `each`, or `OutcomeUnknown` if the channel breaks.
pub(super) async fn run(
    session: Session,
    command: String,
    script: &[u8],
    mut each: impl FnMut(&[u8]) -> Result<(), Failure> + Send,
) -> Result<End, Failure> {
    // The permit is given back when the channel is closed.
    let (channel, _permit) = session;
    let (reader, writer) = channel.split();
    let lost = |error: russh::Error| {
        Failure::new(
            FailureClass::OutcomeUnknown,
            format!("the connection broke off: {error}"),
        )
    };
    writer.exec(true, command).await.map_err(lost)?;
    // Both at once: a host that talks before it has read everything must not wait for us. If
    // writing fails, reading tells why.
    let (end, _) = tokio::join!(read(reader, &mut each), write(&writer, script));
    let _ = writer.close().await;
    end
}

async fn write(writer: &ChannelWriteHalf<client::Msg>, script: &[u8]) -> Result<(), russh::Error> {
    writer.data(script).await?;
    writer.eof().await
}

async fn read(
    mut reader: ChannelReadHalf,
    each: &mut (impl FnMut(&[u8]) -> Result<(), Failure> + Send),
) -> Result<End, Failure> {
    let mut lines = Lines::default();
    let mut stderr = Tail::default();
    let mut code = None;
    let mut failed = None;
    // To the very end, whatever comes: an unread channel blocks the whole connection.
    while let Some(message) = reader.wait().await {
        match message {
            ChannelMsg::Data { data } if failed.is_none() => {
                let given = lines
                    .push(&data)
                    .and_then(|lines| lines.iter().try_for_each(|line| each(line)));
                failed = given.err();
            }
            ChannelMsg::ExtendedData { data, ext: 1 } => stderr.push(&data),
            ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
            _ => {}
        }
    }
    if failed.is_none() && !lines.rest().is_empty() {
        failed = each(lines.rest()).err();
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(End {
            code,
            stderr: redact(stderr.text().trim()),
        }),
    }
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail(VecDeque<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let surplus = self.0.len().saturating_sub(STDERR_KEPT);
        self.0.drain(..surplus);
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(self.0.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{STDERR_KEPT, Tail};

    #[test]
    fn of_a_long_stream_the_end_is_kept() {
        let mut tail = Tail::default();
        tail.push(&vec![b'x'; 3 * STDERR_KEPT]);
        tail.push(b"the reason");
        let text = tail.text();
        assert_eq!(text.len(), STDERR_KEPT);
        assert!(text.ends_with("the reason"));
    }
}
