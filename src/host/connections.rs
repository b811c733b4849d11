//! The connections that stand, one per way to get into a host.

use super::connection::Connection;
use super::host_key::HostKeyPolicy;
use super::{HostKeys, Target, key};
use crate::instance::{Failure, FailureClass};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Connections that are being made at one time, to all hosts together.
const STARTS: usize = 30;

/// Finds or makes connections. Nobody waits for a host but those who asked for it.
pub(super) struct Connections {
    attempts: Mutex<HashMap<Way, Attempt>>,
    starts: Arc<Semaphore>,
    limit: Duration,
}

/// Everything that decides whether two callers may share a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Way {
    user: String,
    name: String,
    port: u16,
    key: String,
    host_keys: HostKeys,
}

/// An attempt to connect, under way or over; everybody who waits for it gets its result.
type Attempt = Shared<BoxFuture<'static, Result<Arc<Connection>, Failure>>>;

impl Connections {
    /// None yet; each may take `limit` to be made.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            attempts: Mutex::new(HashMap::new()),
            starts: Arc::new(Semaphore::new(STARTS)),
            limit,
        }
    }

    /// The standing connection, or a new one.
    ///
    /// # Errors
    /// The private key or the host-key policy can't be used, or the connection can't be made.
    pub(super) async fn get(&self, target: &Target) -> Result<Arc<Connection>, Failure> {
        let key = key::read(target)?;
        let policy = HostKeyPolicy::new(&target.name, target.port, &target.host_keys)?;
        let way = Way {
            user: target.user.clone(),
            name: target.name.to_ascii_lowercase(),
            port: target.port,
            key: key::fingerprint(&key),
            host_keys: target.host_keys.clone(),
        };
        let attempt = {
            let mut attempts = self.lock();
            match attempts.get(&way) {
                Some(attempt) if may_be_joined(attempt) => attempt.clone(),
                _ => {
                    attempts.retain(|_, attempt| may_be_joined(attempt));
                    let attempt = self.start(target.clone(), policy, Arc::new(key));
                    attempts.insert(way, attempt.clone());
                    attempt
                }
            }
        };
        attempt.await
    }

    /// Starts an attempt that goes on even if everybody who waits for it gives up.
    fn start(
        &self,
        target: Target,
        policy: HostKeyPolicy,
        key: Arc<russh::keys::PrivateKey>,
    ) -> Attempt {
        let (starts, limit) = (Arc::clone(&self.starts), self.limit);
        let task = tokio::spawn(async move {
            let _permit = starts.acquire_owned().await;
            let connection = Connection::open(&target, &policy, key, limit).await?;
            Ok(Arc::new(connection))
        });
        task.map(|joined| {
            joined.unwrap_or_else(|error| {
                Err(Failure::new(
                    FailureClass::HostUnreachable,
                    format!("the attempt to connect was abandoned: {error}"),
                ))
            })
        })
        .boxed()
        .shared()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Way, Attempt>> {
        // The map is whole at every point, so a poisoned lock does no harm.
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Still under way, or ended in a connection that stands.
fn may_be_joined(attempt: &Attempt) -> bool {
    match attempt.peek() {
        None => true,
        Some(Ok(connection)) => !connection.is_closed(),
        Some(Err(_)) => false,
    }
}
