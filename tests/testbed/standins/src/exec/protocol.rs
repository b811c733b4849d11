//! The launcher protocol: one JSON object per line, told apart by `type`.
//!
//! The client's first line is [`Request::Exec`] or [`Request::Shutdown`].
//! When it hangs up, the server ends the command with SIGTERM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Where the launcher listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/shared/launcher.sock";

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Request {
    /// Start a command. Must be the first line.
    Exec {
        /// Program and arguments; the program is looked up on the `PATH`.
        argv: Vec<String>,
        /// Variables added to the server's environment.
        #[serde(default)]
        env: Vec<(String, String)>,
        /// Working directory; the server's if absent.
        #[serde(default)]
        cwd: Option<String>,
    },
    /// End every command and the server. Must be the first line.
    Shutdown,
    /// Bytes for the command's standard input.
    Stdin {
        /// The bytes, base64.
        data: Base64,
    },
    /// The command's standard input ends here.
    StdinClose,
    /// Send the command a signal.
    Signal {
        /// The signal's number, such as 15.
        signal: i32,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Reply {
    /// The command runs.
    Started {
        /// Its process id, as seen in the server's container.
        pid: u32,
    },
    /// Bytes from standard output.
    Stdout {
        /// The bytes, base64.
        data: Base64,
    },
    /// Bytes from standard error.
    Stderr {
        /// The bytes, base64.
        data: Base64,
    },
    /// The command is over; nothing follows.
    Exit {
        /// Its exit code; `null` when a signal ended it.
        code: Option<i32>,
    },
    /// The request was not carried out; nothing follows.
    Error {
        /// Why.
        message: String,
    },
}

/// Bytes that travel as standard base64 text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD
            .decode(text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_shape_that_other_clients_use() {
        let exec = Request::Exec {
            argv: vec!["echo".into(), "hi".into()],
            env: vec![("A".into(), "b".into())],
            cwd: None,
        };
        for (message, line) in [
            (
                serde_json::to_string(&exec),
                r#"{"type":"Exec","argv":["echo","hi"],"env":[["A","b"]],"cwd":null}"#,
            ),
            (
                serde_json::to_string(&Request::Shutdown),
                r#"{"type":"Shutdown"}"#,
            ),
            (
                serde_json::to_string(&Request::Stdin {
                    data: Base64(b"hi".to_vec()),
                }),
                r#"{"type":"Stdin","data":"aGk="}"#,
            ),
            (
                serde_json::to_string(&Reply::Exit { code: None }),
                r#"{"type":"Exit","code":null}"#,
            ),
        ] {
            assert_eq!(message.unwrap(), line);
        }
    }

    #[test]
    fn env_and_cwd_may_be_left_out() {
        let request: Request = serde_json::from_str(r#"{"type":"Exec","argv":["true"]}"#).unwrap();
        let expected = Request::Exec {
            argv: vec!["true".into()],
            env: vec![],
            cwd: None,
        };
        assert_eq!(request, expected);
    }
}
