//! One SSH connection to one host.

use super::host_key::HostKeyPolicy;
use super::known_hosts::{bare_name, fingerprint};
use super::{Target, key};
use crate::instance::{Failure, FailureClass};
use russh::client::{self, Handle};
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{Channel, Preferred};
use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// A peer that is gone without a word is noticed after four of these.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// sshd's `MaxSessions` is 10, and a closed channel counts until sshd has noticed: half is safe.
const CHANNELS: usize = 5;
/// An open that sshd refuses all the same is tried again this often.
const OPEN_TRIES: u32 = 5;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// A standing, authenticated connection.
pub(super) struct Connection {
    handle: Handle<Guard>,
    channels: Arc<Semaphore>,
    known_hosts_line: String,
    address: String,
}

impl Connection {
    /// Connects and logs in within `limit`, which counts for name lookup, TCP, banner, key exchange
    /// and login together: russh limits none of them itself.
    ///
    /// # Errors
    /// By kind: not reachable, refused, host key, login; each names `user@host:port`.
    pub(super) async fn open(
        target: &Target,
        policy: &HostKeyPolicy,
        key: Arc<PrivateKey>,
        limit: Duration,
    ) -> Result<Self, Failure> {
        timeout(limit, Self::open_unlimited(target, policy, key))
            .await
            .unwrap_or_else(|_| Err(unreachable(target, &format!("no answer within {limit:?}"))))
    }

    async fn open_unlimited(
        target: &Target,
        policy: &HostKeyPolicy,
        key: Arc<PrivateKey>,
    ) -> Result<Self, Failure> {
        let mut last = None;
        for algorithms in policy.algorithms() {
            match handshake(target, policy, algorithms).await {
                Ok((handle, known_hosts_line)) => {
                    return Self::log_in(target, handle, known_hosts_line, key).await;
                }
                // Perhaps the host's key of another algorithm is the pinned one. The mismatch
                // says more than "no common algorithm".
                Err(failure) if failure.class == FailureClass::HostKeyMismatch => {
                    if last.is_none() || failure.message.contains("shows the key") {
                        last = Some(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| unreachable(target, "no host key algorithm to ask for")))
    }

    async fn log_in(
        target: &Target,
        mut handle: Handle<Guard>,
        known_hosts_line: String,
        key: Arc<PrivateKey>,
    ) -> Result<Self, Failure> {
        let failed =
            |error: russh::Error| unreachable(target, &format!("login broke off: {error}"));
        let hash = if key.algorithm().is_rsa() {
            let best = handle.best_supported_rsa_hash().await.map_err(failed)?;
            best.flatten().or(Some(HashAlg::Sha512))
        } else {
            None
        };
        let fingerprint = key::fingerprint(&key);
        let answer = handle
            .authenticate_publickey(&target.user, PrivateKeyWithHashAlg::new(key, hash))
            .await
            .map_err(failed)?;
        if !answer.success() {
            return Err(Failure::new(
                FailureClass::AuthenticationRejected,
                format!("{} does not accept the key {fingerprint}", target.address()),
            ));
        }
        Ok(Self {
            handle,
            channels: Arc::new(Semaphore::new(CHANNELS)),
            known_hosts_line,
            address: target.address(),
        })
    }

    /// The host's key, as a `known_hosts` line.
    pub(super) fn known_hosts_line(&self) -> &str {
        &self.known_hosts_line
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Opens a channel, as soon as one may be opened. Nothing has been asked of the host yet when
    /// this fails.
    ///
    /// # Errors
    /// `OutcomeUnknown` if the connection is gone or the host keeps refusing.
    pub(super) async fn open_session(&self) -> Result<Session, Failure> {
        let lost = |error: &dyn std::fmt::Display| {
            Failure::new(
                FailureClass::OutcomeUnknown,
                format!("{}: can't open a channel: {error}", self.address),
            )
        };
        let permit = Arc::clone(&self.channels)
            .acquire_owned()
            .await
            .map_err(|error| lost(&error))?;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.handle.channel_open_session().await {
                Ok(channel) => return Ok((channel, permit)),
                Err(russh::Error::ChannelOpenFailure(_)) if tries < OPEN_TRIES => {
                    sleep(OPEN_PAUSE * tries).await;
                }
                Err(error) => return Err(lost(&error)),
            }
        }
    }
}

/// An open channel, and the permit that counts it.
pub(super) type Session = (Channel<client::Msg>, OwnedSemaphorePermit);

/// Checks the host's key while the connection is made.
struct Guard {
    policy: HostKeyPolicy,
    shown: Arc<Mutex<Option<String>>>,
}

#[derive(Debug)]
enum HandshakeError {
    Ssh(russh::Error),
    HostKey(Failure),
}

impl From<russh::Error> for HandshakeError {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

impl client::Handler for Guard {
    type Error = HandshakeError;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        // Certificates are never asked for, so a host can't show one.
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        self.policy.check(key).map_err(HandshakeError::HostKey)?;
        tracing::debug!(fingerprint = fingerprint(key), "host key accepted");
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.policy.line(key));
        Ok(true)
    }
}

async fn handshake(
    target: &Target,
    policy: &HostKeyPolicy,
    algorithms: Vec<Algorithm>,
) -> Result<(Handle<Guard>, String), Failure> {
    let stream = TcpStream::connect((bare_name(&target.name), target.port))
        .await
        .map_err(|error| not_connected(target, &error))?;
    stream
        .set_nodelay(true)
        .map_err(|error| not_connected(target, &error))?;
    let config = client::Config {
        nodelay: true,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: 3,
        preferred: Preferred {
            key: Cow::Owned(algorithms),
            ..Preferred::default()
        },
        ..client::Config::default()
    };
    let shown = Arc::new(Mutex::new(None));
    let guard = Guard {
        policy: policy.clone(),
        shown: Arc::clone(&shown),
    };
    let handle = client::connect_stream(Arc::new(config), stream, guard)
        .await
        .map_err(|error| no_handshake(target, error))?;
    let line = shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((handle, line.unwrap_or_default()))
}

fn no_handshake(target: &Target, error: HandshakeError) -> Failure {
    match error {
        HandshakeError::HostKey(failure) => failure,
        HandshakeError::Ssh(russh::Error::NoCommonAlgo {
            kind: russh::AlgorithmKind::Key,
            theirs,
            ..
        }) => Failure::new(
            FailureClass::HostKeyMismatch,
            format!(
                "{} has no host key of the expected algorithm, only {}",
                target.address(),
                theirs.join(", ")
            ),
        ),
        HandshakeError::Ssh(error) => {
            unreachable(target, &format!("the SSH handshake failed: {error}"))
        }
    }
}

/// Tells "nothing listens there" from "can't get there".
fn not_connected(target: &Target, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return Failure::new(
            FailureClass::ConnectionRefused,
            format!("{}: {error}", target.address()),
        );
    }
    unreachable(target, &error.to_string())
}

fn unreachable(target: &Target, what: &str) -> Failure {
    Failure::new(
        FailureClass::HostUnreachable,
        format!("{}: {what}", target.address()),
    )
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
