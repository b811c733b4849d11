//! Newline-delimited JSON: one message per line.

use std::io::{self, BufRead, Write};

use serde::{Serialize, de::DeserializeOwned};

/// Writes one message and its line end, and flushes.
///
/// # Errors
/// When the connection is broken.
pub fn send(writer: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}

/// Reads one message; `None` when the other side has hung up.
///
/// # Errors
/// When the connection is broken (its own kind) or a line is no message of this
/// protocol ([`io::ErrorKind::InvalidData`]).
pub fn receive<T: DeserializeOwned>(reader: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&line)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(message))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received_line_by_line() {
        let mut sent = Vec::new();
        send(&mut sent, &("a\nb", 1)).unwrap();
        send(&mut sent, &("c", 2)).unwrap();
        assert_eq!(sent.iter().filter(|byte| **byte == b'\n').count(), 2);
        let mut reader = sent.as_slice();
        assert_eq!(receive(&mut reader).unwrap(), Some(("a\nb".to_owned(), 1)));
        assert_eq!(receive(&mut reader).unwrap(), Some(("c".to_owned(), 2)));
        assert_eq!(receive::<(String, i32)>(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_line_that_is_no_message_is_invalid_data() {
        let error = receive::<u8>(&mut &b"{\"type\":\"Dance\"}\n"[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
