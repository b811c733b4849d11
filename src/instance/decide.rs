//! What an instance does next: a function of the instance, of what is seen and of what is wanted.

use super::state::{Credentialed, Draining, Grant, Instance, Pending, Reason, Revised, Site};
use super::{Event, Failure, In, Progress, Step, Transition};

/// What the cluster shows of the Exporter of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// `metadata.uid`.
    pub uid: String,
    /// Whether it has a `deletionTimestamp`.
    pub deleting: bool,
    /// Whether an ExporterSet controls it still.
    pub owned: bool,
    /// `spec.enabled`, true if absent.
    pub enabled: bool,
    /// `status.credential.name`.
    pub credential: Option<String>,
    /// `status.endpoint`, if not empty.
    pub endpoint: Option<String>,
    /// `status.leaseRef.name`.
    pub lease: Option<String>,
    /// Whether a Lease object says that it has held the Exporter: also one that came and went unseen.
    pub served: bool,
    /// Whether the condition Online is True.
    pub online: bool,
    /// The value of the annotation that waives the teardown, if not empty.
    pub waived: Option<String>,
}

/// What is wanted of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It shall run.
    Run {
        /// Where, if it is not somewhere already.
        site: Site,
        /// The revision of its files.
        revision: String,
        /// The endpoint that is in them.
        endpoint: String,
        /// Whether it is replaced after a lease.
        replace_after_lease: bool,
    },
    /// It shall run, but something that it needs is missing or wrong; what runs is left alone.
    Blocked(Failure),
    /// It shall go.
    Gone(Reason),
}

/// What an instance does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Write down what was seen or decided, then decide again.
    Record(Event),
    /// Create the Exporter.
    Create,
    /// Write the chosen host on the Exporter.
    Grant(Grant),
    /// Connect, write config and quadlets, make the volume: those of the steps that are not done.
    Write,
    /// Start the units.
    Start,
    /// Write the host on the Exporter.
    Annotate,
    /// Disable the Exporter.
    Disable,
    /// Undo what is on the host: those of the steps that are not done.
    Undo,
    /// Remove the finalizer, delete the Exporter.
    Delete,
    /// Nothing until something changes.
    Wait(Waiting),
    /// Nothing ever more.
    Forget,
}

/// What an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For Jumpstarter's credential and endpoint.
    Credentials,
    /// For this lease to be over.
    Lease(String),
    /// For somebody to mend this.
    Blocked(Failure),
    /// For nothing: all is as wanted.
    Steady,
}

/// What `instance` does next, `seen` being its Exporter if that exists.
#[must_use]
pub fn decide(instance: &Instance, seen: Option<&Seen>, wanted: &Wanted) -> Next {
    if matches!(instance, Instance::Deleted(_)) {
        return Next::Forget;
    }
    let news = news_of_exporter(instance, seen).or_else(|| rerouted(instance, wanted));
    if let Some(event) = news {
        return Next::Record(event);
    }
    if let Instance::Draining(draining) = instance {
        return drain(draining, seen);
    }
    if let Some(reason) = reason_to_go(instance, seen, wanted) {
        return Next::Record(Event::Moved(Transition::Drained(reason)));
    }
    match instance {
        Instance::Pending(pending) => match (wanted, seen) {
            (Wanted::Blocked(failure), _) => Next::Wait(Waiting::Blocked(failure.clone())),
            (_, Some(seen)) => await_credentials(pending, seen, wanted),
            (_, None) => Next::Create,
        },
        Instance::Credentialed(credentialed) => write(credentialed, wanted),
        Instance::Written(written) => revised(instance, wanted).unwrap_or_else(|| {
            not_under_a_lease(written.state.restart, &written.progress).unwrap_or(Next::Start)
        }),
        Instance::Started(_) => revised(instance, wanted).unwrap_or(Next::Annotate),
        Instance::Annotated(_) => revised(instance, wanted).unwrap_or(Next::Wait(match wanted {
            Wanted::Blocked(failure) => Waiting::Blocked(failure.clone()),
            _ => Waiting::Steady,
        })),
        Instance::Draining(_) | Instance::Deleted(_) => Next::Forget,
    }
}

/// What is seen of the Exporter and not journaled yet: that it was created, though we did not live
/// to hear of it; its lease.
fn news_of_exporter(instance: &Instance, seen: Option<&Seen>) -> Option<Event> {
    let seen = seen?;
    if instance.about().uid.is_none() {
        return Some(Event::Created {
            uid: seen.uid.clone(),
        });
    }
    let known = instance.progress().lease.as_ref();
    match (known, seen.lease.as_ref()) {
        (known, Some(lease)) if known != Some(lease) => Some(Event::Leased {
            lease: lease.clone(),
        }),
        (Some(_), None) => Some(Event::Unleased),
        _ => None,
    }
}

fn reason_to_go(instance: &Instance, seen: Option<&Seen>, wanted: &Wanted) -> Option<Reason> {
    let created = instance.about().uid.is_some();
    let progress = instance.progress();
    match (seen, wanted) {
        (_, Wanted::Gone(reason)) => Some(reason.clone()),
        (None, _) if created => Some(Reason::ExporterDeleted),
        (Some(seen), _) if seen.deleting => Some(Reason::ExporterDeleted),
        (Some(seen), _) if !seen.enabled && seen.lease.is_none() => Some(Reason::Disabled),
        (
            Some(seen),
            Wanted::Run {
                site,
                replace_after_lease,
                ..
            },
        ) if seen.lease.is_none() => {
            let served = progress.served || seen.served;
            if instance.site().is_some_and(|at| at.host != site.host) {
                Some(Reason::HostChanged)
            } else if *replace_after_lease && served && !seen.online {
                Some(Reason::LeaseServed)
            } else {
                None
            }
        }
        _ => None,
    }
}

/// The same host, reached in another way than so far: what was corrected in the parameters holds at
/// once, also for a teardown.
fn rerouted(instance: &Instance, wanted: &Wanted) -> Option<Event> {
    let Wanted::Run { site, .. } = wanted else {
        return None;
    };
    let at = instance.site()?;
    (at.host == site.host && at != site).then(|| Event::Rerouted(site.clone()))
}

/// Units that may run under a user's hands are not restarted before the lease is over.
fn not_under_a_lease(restart: bool, progress: &Progress) -> Option<Next> {
    let lease = progress.lease.as_ref().filter(|_| restart)?;
    Some(Next::Wait(Waiting::Lease(lease.clone())))
}

fn await_credentials(pending: &In<Pending>, seen: &Seen, wanted: &Wanted) -> Next {
    match (&seen.credential, &seen.endpoint, wanted) {
        (Some(credential), Some(endpoint), Wanted::Run { site, .. }) => Next::Grant(Grant {
            endpoint: endpoint.clone(),
            credential: credential.clone(),
            // What an adopted Exporter has on its host stays there until its lease is over.
            site: pending.state.noted.as_ref().unwrap_or(site).clone(),
        }),
        _ => Next::Wait(Waiting::Credentials),
    }
}

fn write(credentialed: &In<Credentialed>, wanted: &Wanted) -> Next {
    match wanted {
        Wanted::Blocked(failure) => Next::Wait(Waiting::Blocked(failure.clone())),
        _ => not_under_a_lease(credentialed.state.restart, &credentialed.progress)
            .unwrap_or(Next::Write),
    }
}

fn revised(instance: &Instance, wanted: &Wanted) -> Option<Next> {
    let Wanted::Run {
        revision, endpoint, ..
    } = wanted
    else {
        return None;
    };
    let old = instance.revision()? != revision;
    (old && instance.progress().lease.is_none()).then(|| {
        Next::Record(Event::Moved(Transition::Revised(Revised {
            revision: revision.clone(),
            endpoint: endpoint.clone(),
        })))
    })
}

fn drain(draining: &In<Draining>, seen: Option<&Seen>) -> Next {
    let progress = &draining.progress;
    if let (Some(reason), None) = (seen.and_then(|seen| seen.waived.as_ref()), &progress.waived) {
        return Next::Record(Event::Waived {
            reason: reason.clone(),
        });
    }
    if progress.waived.is_some() {
        return Next::Delete;
    }
    if let Some(seen) = seen {
        // A terminating Exporter is still leased out unless it is disabled.
        if seen.enabled && !progress.has_done(Step::Disable) {
            return Next::Disable;
        }
        if let Some(lease) = &seen.lease {
            return Next::Wait(Waiting::Lease(lease.clone()));
        }
    }
    let nothing_there = draining.state.site.is_none() || !progress.touched;
    if nothing_there || progress.has_done(Step::Reload) {
        Next::Delete
    } else {
        Next::Undo
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
