//! The candidate's task: looks at the Lease, takes it, renews it, gives it back.

use super::decide::{Decision, decide};
use super::{Standing, Timing};
use crate::cluster::request::with_causes;
use crate::host::Fence;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{error, info, warn};

/// How soon a write that another one has overtaken is tried again.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);
/// What a released Lease says of its duration, as client-go writes it.
const RELEASED_SECONDS: i32 = 1;

#[derive(Debug, Error)]
enum AttemptError {
    /// Somebody has written the Lease since we read it.
    #[error("the Lease has changed meanwhile")]
    Overtaken,
    /// The term that we had is not ours any more.
    #[error("{0}")]
    Deposed(String),
    #[error("{}", with_causes(.0))]
    Api(#[from] kube::Error),
}

/// The record as we have seen it last, and since when it has been so.
struct Observed {
    uid: Option<String>,
    spec: LeaseSpec,
    since: Instant,
}

pub(super) struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    standing: watch::Sender<Standing>,
    observed: Option<Observed>,
    /// The Lease as our last write has left it: saves the read before the next one.
    written: Option<Lease>,
    /// What was logged last, so that it is not said every two seconds.
    said: String,
}

impl Candidate {
    pub(super) fn new(
        api: Api<Lease>,
        name: &str,
        identity: &str,
        timing: Timing,
        standing: watch::Sender<Standing>,
    ) -> Self {
        Self {
            api,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            standing,
            observed: None,
            written: None,
            said: String::new(),
        }
    }

    /// Runs until the leadership is lost or `stop` says so.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                // Also when nobody is left who could say it.
                _ = stop.wait_for(|stop| *stop) => break,
                () = sleep_until(next) => {}
            }
            let step = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                step = self.step() => step,
            };
            match step {
                Some(at) => next = at,
                None => {
                    self.standing.send_replace(Standing::Over);
                    return;
                }
            }
        }
        self.standing.send_replace(Standing::Over);
        // Also if we did not know that we led: the answer to our last write may have been lost.
        self.release().await;
    }

    fn term(&self) -> Option<(Fence, Instant)> {
        match &*self.standing.borrow() {
            Standing::Leader { fence, valid_until } => Some((fence.clone(), *valid_until)),
            _ => None,
        }
    }

    /// One look at the Lease. Returns when to look again; `None`: our term is over.
    async fn step(&mut self) -> Option<Instant> {
        let begun = Instant::now();
        let term = self.term();
        let valid_until = term.as_ref().map(|(_, until)| *until);
        if valid_until.is_some_and(|until| begun >= until) {
            error!("the Lease {} could not be renewed in time", self.name);
            return None;
        }
        // Half of it, so that a connection that has died silently leaves time for a second try.
        let patience = begun + self.timing.renew_deadline / 2;
        let deadline = valid_until.map_or(patience, |until| until.min(patience));
        let outcome = timeout_at(deadline, self.attempt(begun)).await;
        let pause = match outcome {
            Ok(Ok(Some(fence))) => {
                self.lead(fence, begun + self.timing.renew_deadline);
                self.timing.retry_period
            }
            Ok(Ok(None)) => self.candidates_pause(),
            Ok(Err(AttemptError::Overtaken)) => AFTER_CONFLICT,
            Ok(Err(AttemptError::Deposed(reason))) => {
                error!("the leadership is lost: {reason}");
                return None;
            }
            Ok(Err(AttemptError::Api(error))) => {
                self.complain(format!("{}; trying again", with_causes(&error)));
                self.timing.retry_period
            }
            Err(_) => {
                self.complain("the API server gives no answer; trying again".to_owned());
                Duration::ZERO
            }
        };
        let next = Instant::now() + pause;
        // Not later than our deadline, so that the loss is noticed then.
        Some(self.term().map_or(next, |(_, until)| next.min(until)))
    }

    /// Reads, decides and writes. Returns our fence if we lead now.
    async fn attempt(&mut self, begun: Instant) -> Result<Option<Fence>, AttemptError> {
        let current = match self.written.take() {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.name).await?,
        };
        let unchanged_for = self.observe(current.as_ref());
        let term = self.term().map(|(fence, _)| fence);
        let spec = current
            .as_ref()
            .map(|lease| lease.spec.clone().unwrap_or_default());
        let usual = self.timing.lease_duration;
        let decision = decide(spec.as_ref(), &self.identity, unchanged_for, usual);
        if let Some(term) = &term {
            still_ours(term, current.as_ref(), decision)?;
        }
        let written = match (decision, current) {
            (Decision::Wait, current) => {
                let holder = current.and_then(|l| l.spec).and_then(|s| s.holder_identity);
                let holder = holder.unwrap_or_default();
                let text = format!("waiting for the Lease {}, which {holder} holds", self.name);
                if self.said != text {
                    info!("{text}");
                    self.said = text;
                }
                return Ok(None);
            }
            (Decision::Take { epoch }, Some(lease)) => self.replace(lease, epoch, true).await?,
            (Decision::Renew { epoch }, Some(lease)) => self.replace(lease, epoch, false).await?,
            (_, _) => self.create().await?,
        };
        let fence = fence_of(&written);
        if term.is_none() {
            info!(
                epoch = fence.epoch,
                "leading, after {} ms, by the Lease {}",
                begun.elapsed().as_millis(),
                self.name
            );
        }
        self.observe(Some(&written));
        self.written = Some(written);
        Ok(Some(fence))
    }

    /// How long we have seen the record as it is. Only the record counts: a label or an annotation
    /// that somebody writes is no sign of life of the leader.
    fn observe(&mut self, lease: Option<&Lease>) -> Duration {
        let now = Instant::now();
        let Some(lease) = lease else {
            self.observed = None;
            return Duration::ZERO;
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let uid = &lease.metadata.uid;
        match &self.observed {
            Some(seen) if seen.spec == spec && seen.uid == *uid => now - seen.since,
            _ => {
                let (uid, since) = (uid.clone(), now);
                self.observed = Some(Observed { uid, spec, since });
                Duration::ZERO
            }
        }
    }

    async fn create(&self) -> Result<Lease, AttemptError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.record(LeaseSpec::default(), 0, true)),
        };
        let created = self.api.create(&PostParams::default(), &lease).await;
        created.map_err(overtaken)
    }

    async fn replace(&self, lease: Lease, epoch: u64, take: bool) -> Result<Lease, AttemptError> {
        let spec = self.record(lease.spec.unwrap_or_default(), epoch, take);
        let lease = Lease {
            metadata: lease.metadata,
            spec: Some(spec),
        };
        let replaced = self
            .api
            .replace(&self.name, &PostParams::default(), &lease)
            .await;
        replaced.map_err(overtaken)
    }

    fn record(&self, before: LeaseSpec, epoch: u64, take: bool) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let seconds = self.timing.lease_duration.as_secs();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            lease_transitions: Some(i32::try_from(epoch).unwrap_or(i32::MAX)),
            acquire_time: if take {
                Some(now.clone())
            } else {
                before.acquire_time
            },
            renew_time: Some(now),
            ..before
        }
    }

    fn lead(&mut self, fence: Fence, valid_until: Instant) {
        self.said.clear();
        self.standing
            .send_replace(Standing::Leader { fence, valid_until });
    }

    /// The usual pause and up to a fifth more, so that candidates don't keep step.
    fn candidates_pause(&self) -> Duration {
        let part = getrandom::u32().unwrap_or_default() % 200;
        self.timing.retry_period + self.timing.retry_period * part / 1000
    }

    fn complain(&mut self, text: String) {
        if self.said != text {
            warn!("leader election: {text}");
            self.said = text;
        }
    }

    /// Empties the record if it is ours, as client-go does.
    async fn release(&mut self) {
        for _ in 0..2 {
            let lease = match self.written.take() {
                Some(lease) => Some(lease),
                None => self.api.get_opt(&self.name).await.ok().flatten(),
            };
            let Some(Lease {
                metadata,
                spec: Some(spec),
            }) = lease
            else {
                return;
            };
            if spec.holder_identity.as_deref() != Some(self.identity.as_str()) {
                return;
            }
            let now = MicroTime(Timestamp::now());
            let lease = Lease {
                metadata,
                spec: Some(LeaseSpec {
                    holder_identity: Some(String::new()),
                    lease_duration_seconds: Some(RELEASED_SECONDS),
                    acquire_time: Some(now.clone()),
                    renew_time: Some(now),
                    ..spec
                }),
            };
            match self
                .api
                .replace(&self.name, &PostParams::default(), &lease)
                .await
            {
                Ok(_) => {
                    info!("the Lease {} is released", self.name);
                    return;
                }
                // Somebody else has written it, or our own last renewal came through.
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => {
                    warn!(
                        "the Lease {} was not released: {}",
                        self.name,
                        with_causes(&error)
                    );
                    return;
                }
            }
        }
    }
}

fn fence_of(lease: &Lease) -> Fence {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    Fence {
        lease_uid: lease.metadata.uid.clone().unwrap_or_default(),
        epoch: u64::try_from(transitions.unwrap_or_default()).unwrap_or_default(),
    }
}

/// A running term goes on only on the same Lease object, with the same epoch, in our name.
fn still_ours(
    term: &Fence,
    current: Option<&Lease>,
    decision: Decision,
) -> Result<(), AttemptError> {
    let deposed = |reason: &str| Err(AttemptError::Deposed(reason.to_owned()));
    let Some(lease) = current else {
        return deposed("the Lease was deleted");
    };
    if lease.metadata.uid.as_deref() != Some(term.lease_uid.as_str()) {
        return deposed("the Lease was deleted and made anew");
    }
    match decision {
        Decision::Renew { epoch } if epoch == term.epoch => Ok(()),
        Decision::Renew { .. } => deposed("somebody has changed leaseTransitions of the Lease"),
        _ => {
            let holder = lease
                .spec
                .as_ref()
                .and_then(|spec| spec.holder_identity.clone());
            let holder = holder.unwrap_or_default();
            Err(AttemptError::Deposed(format!(
                "the Lease is held by '{holder}' now"
            )))
        }
    }
}

/// 409 is a lost race; so is 404 to a replace: the Lease has been deleted since we read it.
fn overtaken(error: kube::Error) -> AttemptError {
    match &error {
        kube::Error::Api(status) if status.code == 409 || status.is_not_found() => {
            AttemptError::Overtaken
        }
        _ => AttemptError::Api(error),
    }
}
