//! What a script says: one line of JSON per step, framed by `begun` and `done` or `stopped`.

use super::redact::redact;
use super::{Outcome, Report};
use crate::instance::{Failure, FailureClass, Step};
use serde::Deserialize;

/// A line of a script's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The shell runs our script.
    Begun,
    /// A step is over.
    Step(Report),
    /// All steps are over, none failed.
    Done,
    /// The batch ended with a failed step, which was reported.
    Stopped,
    /// The batch failed outside any step.
    Failed(Failure),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    step: Option<String>,
    outcome: Option<String>,
    batch: Option<String>,
    class: Option<FailureClass>,
    #[serde(default)]
    detail: String,
}

/// Longest part of a line that is repeated in an error.
const SHOWN: usize = 200;

impl Line {
    /// Reads a line. Bytes that are no UTF-8 (from log lines) are replaced; credentials are hidden.
    ///
    /// # Errors
    /// `HostScriptFailed` with the beginning of a line that is none of ours.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Failure> {
        let text = String::from_utf8_lossy(line);
        let unknown = || {
            let shown: String = redact(&text).chars().take(SHOWN).collect();
            Failure::new(
                FailureClass::HostScriptFailed,
                format!("the host says something that is no report: {shown:?}"),
            )
        };
        let raw: Raw = serde_json::from_str(&text).map_err(|_| unknown())?;
        let detail = redact(&raw.detail);
        match (raw.batch.as_deref(), raw.step.as_deref(), raw.class) {
            (Some("begun"), None, None) => Ok(Self::Begun),
            (Some("done"), None, None) => Ok(Self::Done),
            (Some("stopped"), None, None) => Ok(Self::Stopped),
            (Some("failed"), None, Some(class)) => Ok(Self::Failed(Failure::new(class, detail))),
            (None, Some(step), class) => {
                let step = Step::from_name(step).ok_or_else(unknown)?;
                let outcome = match (raw.outcome.as_deref(), class) {
                    (Some("changed"), None) => Outcome::Changed,
                    (Some("unchanged"), None) => Outcome::Unchanged,
                    (Some("failed"), Some(class)) => {
                        Outcome::Failed(Failure::new(class, detail.clone()))
                    }
                    _ => return Err(unknown()),
                };
                Ok(Self::Step(Report {
                    step,
                    outcome,
                    detail,
                }))
            }
            _ => Err(unknown()),
        }
    }
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
pub(super) struct Lines {
    pending: Vec<u8>,
}

/// Longer than any line of ours.
const LONGEST_LINE: usize = 64 * 1024;

impl Lines {
    /// Takes in `bytes` and gives back the lines that they complete, without their ends.
    ///
    /// # Errors
    /// `HostScriptFailed` if a line is longer than any of ours.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        self.pending.extend_from_slice(bytes);
        let mut parts: Vec<Vec<u8>> = self.pending.split(|b| *b == b'\n').map(Vec::from).collect();
        self.pending = parts.pop().unwrap_or_default();
        if self.pending.len() > LONGEST_LINE {
            return Err(Failure::new(
                FailureClass::HostScriptFailed,
                "the host sends a line without an end",
            ));
        }
        Ok(parts)
    }

    /// What came after the last line end.
    pub(super) fn rest(&self) -> &[u8] {
        &self.pending
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
