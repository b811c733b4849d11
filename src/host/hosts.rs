//! The lab hosts, as the controller sees them.

use super::connection::Session;
use super::connections::Connections;
use super::exec::{self, End};
use super::report::Line;
use super::{Batch, Outcome, Report, Target, script};
use crate::controller::ports::{Greeting, Hosts};
use crate::instance::{Failure, FailureClass};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A connection stands within this time, or its host is unreachable.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// How much longer we wait for a batch than the host lets it run.
const GRACE: Duration = Duration::from_secs(20);
/// Longest stretch of stderr in a message.
const STDERR_SHOWN: usize = 1000;

/// The lab hosts, reached by SSH.
///
/// # Guarantees
/// * A host whose key is not the expected one is asked nothing.
/// * A batch is read by the host whole or not at all; it acts only after that.
/// * Without the host's word that a batch is over the answer is an error, never success.
///
/// # Assumptions
/// The host has a POSIX shell, coreutils, util-linux, and sudo unless the login is root.
pub struct SshHosts {
    connections: Connections,
}

impl SshHosts {
    /// No connection stands yet; they are made when they are needed. Needs a running tokio.
    #[must_use]
    pub fn new() -> Self {
        Self {
            connections: Connections::new(CONNECT_LIMIT),
        }
    }

    /// Opens a channel on the standing connection. One that turns out to be dead (nothing was
    /// asked over it yet) is replaced once.
    async fn open_session(&self, target: &Target) -> Result<Session, Failure> {
        let connection = self.connections.get(target).await?;
        match connection.open_session().await {
            Err(_) if connection.is_closed() => {
                self.connections.get(target).await?.open_session().await
            }
            answer => answer,
        }
    }
}

impl Default for SshHosts {
    fn default() -> Self {
        Self::new()
    }
}

impl Hosts for SshHosts {
    async fn connect(&self, target: &Target) -> Result<Greeting, Failure> {
        let connection = self.connections.get(target).await?;
        Ok(Greeting {
            known_hosts_line: connection.known_hosts_line().to_owned(),
        })
    }

    async fn run(
        &self,
        target: &Target,
        batch: &Batch,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Result<(), Failure> {
        let script = script::compose(batch)?;
        let session = self.open_session(target).await?;
        let mut dialogue = Dialogue::new(target, batch, reports);
        let limit = batch.time_limit + GRACE;
        let ran = timeout(
            limit,
            exec::run(
                session,
                script::bootstrap(batch.time_limit),
                script.as_bytes(),
                |line| dialogue.hear(line),
            ),
        )
        .await;
        match ran {
            Ok(Ok(end)) => dialogue.conclude(&end),
            Ok(Err(failure)) => Err(dialogue.about(failure)),
            Err(_) => Err(dialogue.late(limit)),
        }
    }
}

/// Follows what a host says about a batch.
struct Dialogue<'a> {
    target: &'a Target,
    batch: &'a Batch,
    reports: mpsc::UnboundedSender<Report>,
    begun: bool,
    /// Steps that were reported.
    reported: usize,
    /// How the batch ended, once the host has said so.
    verdict: Option<Result<(), Failure>>,
}

impl<'a> Dialogue<'a> {
    fn new(target: &'a Target, batch: &'a Batch, reports: mpsc::UnboundedSender<Report>) -> Self {
        Self {
            target,
            batch,
            reports,
            begun: false,
            reported: 0,
            verdict: None,
        }
    }

    fn hear(&mut self, line: &[u8]) -> Result<(), Failure> {
        let line = match Line::parse(line) {
            Ok(line) => line,
            // Login shells may greet before our script starts.
            Err(_) if !self.begun => return Ok(()),
            Err(failure) => return Err(failure),
        };
        match line {
            Line::Begun => self.begun = true,
            Line::Step(report) => self.pass_on(report)?,
            Line::Done if self.reported < self.batch.ops.len() => {
                return Err(self.nonsense("it says that the batch is done before all steps are"));
            }
            Line::Done | Line::Stopped => self.verdict = Some(Ok(())),
            Line::Failed(failure) => self.verdict = Some(Err(self.about(failure))),
        }
        Ok(())
    }

    fn pass_on(&mut self, mut report: Report) -> Result<(), Failure> {
        let expected = self.batch.ops.get(self.reported).map(super::Op::step);
        if expected != Some(report.step) {
            return Err(self.nonsense(&format!(
                "it reports the step {} out of turn",
                report.step.name()
            )));
        }
        self.reported += 1;
        if let Outcome::Failed(failure) = report.outcome {
            report.outcome = Outcome::Failed(self.about(failure));
        }
        // Nobody may listen any more; the host goes on all the same.
        let _ = self.reports.send(report);
        Ok(())
    }

    /// What the end of the exec means.
    fn conclude(mut self, end: &End) -> Result<(), Failure> {
        if let Some(verdict) = self.verdict.take() {
            return verdict;
        }
        let class = match end.code {
            // timeout(1) says 124; killed by it after the grace time, the shell's parent says 137.
            Some(124 | 137) if self.begun => FailureClass::Timeout,
            Some(_) if self.begun => FailureClass::OutcomeUnknown,
            Some(_) if end.stderr.contains("sudo") => FailureClass::PermissionDenied,
            Some(_) => FailureClass::HostScriptFailed,
            None => FailureClass::OutcomeUnknown,
        };
        let what = match (class, end.code) {
            (FailureClass::Timeout, _) => format!(
                "the batch took longer than {} s",
                self.batch.time_limit.as_secs()
            ),
            (FailureClass::PermissionDenied, _) => {
                "the login is not root, and sudo does not let it in".to_owned()
            }
            (_, Some(code)) => format!("the script ended early, with code {code}"),
            (_, None) => "the connection ended before the script".to_owned(),
        };
        let stderr = tail(&end.stderr, STDERR_SHOWN);
        let separator = if stderr.is_empty() { "" } else { ": " };
        Err(self.about(Failure::new(
            class,
            format!("{what}{}{separator}{stderr}", self.position()),
        )))
    }

    fn late(&self, limit: Duration) -> Failure {
        self.about(Failure::new(
            FailureClass::Timeout,
            format!("no answer within {} s{}", limit.as_secs(), self.position()),
        ))
    }

    /// The step that was under way, for messages.
    fn position(&self) -> String {
        match self.batch.ops.get(self.reported) {
            Some(op) => format!(" (in the step {})", op.step().name()),
            None => String::new(),
        }
    }

    fn nonsense(&self, what: &str) -> Failure {
        Failure::new(FailureClass::HostScriptFailed, what)
    }

    /// Names the host in a failure.
    fn about(&self, failure: Failure) -> Failure {
        let address = self.target.address();
        if failure.message.contains(&address) {
            return failure;
        }
        Failure::new(failure.class, format!("{address}: {}", failure.message))
    }
}

/// The last `length` characters.
fn tail(text: &str, length: usize) -> String {
    let skipped = text.chars().count().saturating_sub(length);
    text.chars().skip(skipped).collect()
}

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
