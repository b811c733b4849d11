//! Leader election on a coordination.k8s.io Lease, by client-go's rules.
//!
//! # Guarantees
//! - At most one process of those that share a Lease has a [`Fence`] at any time, as long as their
//!   monotonic clocks run at about the same speed: a leader stops being one `renew_deadline` after
//!   the *start* of its last successful renewal, even if its task is starved, and others wait
//!   `lease_duration` after they have *seen* the record change.
//! - Each term has its own epoch (`leaseTransitions`), higher than all before it on that Lease object.
//! - A Lease that is deleted ends the term: its epochs begin anew, under another UID.
//!
//! # Assumptions
//! - Every writer of the Lease sends the resourceVersion that it has read, so that of two the second
//!   is refused.

mod decide;
mod task;
#[cfg(test)]
mod tests;

use crate::controller::ports::Leadership;
use crate::host::Fence;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How long giving the Lease back may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(4);

/// The three times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a silent leader; whole seconds.
    pub lease_duration: Duration,
    /// How long a leader acts without a successful renewal; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// How often the Lease is renewed, or looked at.
    pub retry_period: Duration,
}

impl Default for Timing {
    /// controller-runtime's: 15, 10 and 2 seconds.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// We are not the leader any more, and will not be again in this process.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the leadership is lost")]
pub struct LeadershipLost;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Candidate,
    Leader { fence: Fence, valid_until: Instant },
    Over,
}

/// Our part in an election. Clones are handles on the same candidate; when the last one is dropped
/// it withdraws.
#[derive(Clone)]
pub struct Election(Arc<Inner>);

struct Inner {
    standing: watch::Receiver<Standing>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Election {
    /// Becomes a candidate for the Lease `name` in `namespace`, as `identity`, which no other
    /// process may ever use. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        timing: Timing,
    ) -> Self {
        let api: Api<Lease> = Api::namespaced(client, namespace);
        let (standing_sender, standing) = watch::channel(Standing::Candidate);
        let (stop, stopped) = watch::channel(false);
        let candidate = task::Candidate::new(api, name, identity, timing, standing_sender);
        Self(Arc::new(Inner {
            standing,
            stop,
            task: Mutex::new(Some(tokio::spawn(candidate.run(stopped)))),
        }))
    }

    /// Waits until we lead.
    ///
    /// # Errors
    /// [`LeadershipLost`] if we never will again.
    pub async fn elected(&self) -> Result<Fence, LeadershipLost> {
        let mut standing = self.0.standing.clone();
        let decided = standing.wait_for(|s| *s != Standing::Candidate).await;
        match decided.as_deref() {
            Ok(Standing::Leader { fence, .. }) => Ok(fence.clone()),
            _ => Err(LeadershipLost),
        }
    }

    /// Whether we lead now, or have led: there may be work to end.
    #[must_use]
    pub fn has_led(&self) -> bool {
        *self.0.standing.borrow() != Standing::Candidate
    }

    /// Waits until we led and lead no more. Resolves at the deadline of the last renewal, whatever
    /// has become of the candidate's task.
    pub async fn lost(&self) {
        let mut standing = self.0.standing.clone();
        loop {
            let now = standing.borrow_and_update().clone();
            let alive = match now {
                Standing::Candidate => standing.changed().await.is_ok(),
                Standing::Leader { valid_until, .. } => {
                    match timeout_at(valid_until, standing.changed()).await {
                        Ok(changed) => changed.is_ok(),
                        // The renewal may have come at the last moment.
                        Err(_) => standing.has_changed().unwrap_or(false),
                    }
                }
                Standing::Over => false,
            };
            if !alive {
                return;
            }
        }
    }

    /// Gives the Lease back, if we hold it, so that the next leader need not wait. All work under
    /// [`fence`](Leadership::fence) must have ended before. Returns after a few seconds even if the
    /// API server is away.
    pub async fn release(&self) {
        let _ = self.0.stop.send(true);
        let task = {
            let mut task = self.0.task.lock().unwrap_or_else(PoisonError::into_inner);
            task.take()
        };
        if let Some(mut task) = task
            && timeout(RELEASE_LIMIT, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

impl Leadership for Election {
    fn fence(&self) -> Option<Fence> {
        match &*self.0.standing.borrow() {
            Standing::Leader { fence, valid_until } if Instant::now() < *valid_until => {
                Some(fence.clone())
            }
            _ => None,
        }
    }
}
