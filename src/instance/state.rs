//! The states with what they carry, and the data of the transitions between them.

use super::progress::Progress;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which exporter an instance is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Namespace of the Exporter and its set.
    pub namespace: String,
    /// The Exporter's name: chosen and journaled before it is created.
    pub name: String,
    /// The Exporter's UID, once it is created.
    pub uid: Option<String>,
    /// The ExporterSet's name.
    pub set: String,
    /// The ExporterSet's UID.
    pub set_uid: String,
}

/// A lab host and how to get in; enough for a teardown when the set is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// DNS name or address.
    pub host: String,
    /// Login name.
    pub user: String,
    /// SSH port.
    pub port: u16,
    /// The Secret whose key opens the host.
    pub credentials_secret: String,
    /// The key that the host must show, if the parameters pin it.
    pub host_key: Option<String>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}@[{}]:{}", self.user, self.host, self.port)
        } else {
            write!(f, "{}@{}:{}", self.user, self.host, self.port)
        }
    }
}

/// What Jumpstarter gave, and where the instance goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// `host:port` of the Jumpstarter service.
    pub endpoint: String,
    /// The Secret with the Exporter's token.
    pub credential: String,
    /// The host that was chosen.
    pub site: Site,
}

/// The files on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFiles {
    /// The revision that they were rendered at.
    pub revision: String,
}

/// The units on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningUnits {
    /// Names of the active units.
    pub units: Vec<String>,
}

/// The Exporter carries its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnotatedAt {
    /// `metadata.resourceVersion` of the Exporter after the annotation.
    pub resource_version: String,
}

/// The host is not as it was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drifted {
    /// What differs.
    pub what: String,
}

/// Something else is wanted on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revised {
    /// The revision that is wanted.
    pub revision: String,
    /// The endpoint of the Jumpstarter service that goes with it.
    pub endpoint: String,
}

/// Everything is undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TornDown;

/// Why an instance has to go. The order is part of the journal's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// More exporters are available than asked for.
    ScaledDown,
    /// The Exporter was deleted by somebody else.
    ExporterDeleted,
    /// The ExporterSet is gone.
    SetDeleted,
    /// Its lease is over and it was not to be used again.
    LeaseServed,
    /// The Exporter was disabled.
    Disabled,
    /// The parameters name another host.
    HostChanged,
    /// The class names another provisioner.
    ProvisionerChanged,
}

impl Reason {
    /// For messages: "… because …".
    #[must_use]
    pub const fn text(&self) -> &'static str {
        match self {
            Self::ScaledDown => "more exporters are available than asked for",
            Self::ExporterDeleted => "the Exporter was deleted",
            Self::SetDeleted => "the ExporterSet was deleted",
            Self::LeaseServed => "its lease is over",
            Self::Disabled => "the Exporter was disabled",
            Self::HostChanged => "the parameters name another host",
            Self::ProvisionerChanged => "the class names another provisioner",
        }
    }
}

/// One exporter's instance in the state `S`.
///
/// Only the transitions of the [table](super::TABLE) are there as methods:
///
/// ```compile_fail
/// # use exporter_set_controller::instance::{In, Pending, RunningUnits};
/// fn start_what_is_not_written(instance: In<Pending>) {
///     instance.started(RunningUnits { units: Vec::new() });
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct In<S> {
    /// Which exporter it is.
    pub about: About,
    /// Steps done and failed in this state.
    pub progress: Progress,
    /// What the state carries.
    pub state: S,
}

impl<S> In<S> {
    pub(super) fn take<T>(self, with: T) -> In<S::Next>
    where
        S: Accepts<T>,
    {
        In {
            about: self.about,
            progress: self.progress.carried_on(),
            state: self.state.accept(with),
        }
    }
}

/// The state accepts a transition that carries `T`.
pub trait Accepts<T> {
    /// The state that follows.
    type Next;
    /// Moves on.
    fn accept(self, with: T) -> Self::Next;
}

/// See [`State::Pending`](super::State::Pending).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The host noted on an Exporter that was adopted.
    pub noted: Option<Site>,
}

/// See [`State::Credentialed`](super::State::Credentialed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentialed {
    /// What was given.
    pub grant: Grant,
    /// Whether units may run with older files: they are restarted, not only started.
    pub restart: bool,
}

/// See [`State::Written`](super::State::Written).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What was given.
    pub grant: Grant,
    /// What was written.
    pub files: WrittenFiles,
    /// Whether units may run with older files.
    pub restart: bool,
}

/// See [`State::Started`](super::State::Started).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// What was given.
    pub grant: Grant,
    /// What was written.
    pub files: WrittenFiles,
    /// What runs.
    pub units: RunningUnits,
}

/// See [`State::Annotated`](super::State::Annotated).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotated {
    /// What was given.
    pub grant: Grant,
    /// What was written.
    pub files: WrittenFiles,
    /// What runs.
    pub units: RunningUnits,
    /// Where it was written down.
    pub at: AnnotatedAt,
}

/// See [`State::Draining`](super::State::Draining).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// Why.
    pub reason: Reason,
    /// The host, if one was chosen: without it there is nothing to undo there.
    pub site: Option<Site>,
}

/// See [`State::Deleted`](super::State::Deleted).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Why it went.
    pub reason: Reason,
}

impl Accepts<Grant> for Pending {
    type Next = Credentialed;
    fn accept(self, grant: Grant) -> Credentialed {
        Credentialed {
            grant,
            // Units of an adopted Exporter may run, with whatever files.
            restart: self.noted.is_some(),
        }
    }
}

impl Accepts<Reason> for Pending {
    type Next = Draining;
    fn accept(self, reason: Reason) -> Draining {
        Draining {
            reason,
            site: self.noted,
        }
    }
}

impl Accepts<WrittenFiles> for Credentialed {
    type Next = Written;
    fn accept(self, files: WrittenFiles) -> Written {
        Written {
            grant: self.grant,
            files,
            restart: self.restart,
        }
    }
}

impl Accepts<RunningUnits> for Written {
    type Next = Started;
    fn accept(self, units: RunningUnits) -> Started {
        Started {
            grant: self.grant,
            files: self.files,
            units,
        }
    }
}

impl Accepts<AnnotatedAt> for Started {
    type Next = Annotated;
    fn accept(self, at: AnnotatedAt) -> Annotated {
        Annotated {
            grant: self.grant,
            files: self.files,
            units: self.units,
            at,
        }
    }
}

macro_rules! back_and_out {
    ($($state:ident)*) => {$(
        impl Accepts<Drifted> for $state {
            type Next = Credentialed;
            fn accept(self, _: Drifted) -> Credentialed {
                Credentialed { grant: self.grant, restart: true }
            }
        }

        impl Accepts<Revised> for $state {
            type Next = Credentialed;
            fn accept(self, revised: Revised) -> Credentialed {
                let endpoint = revised.endpoint;
                Credentialed { grant: Grant { endpoint, ..self.grant }, restart: true }
            }
        }
    )*};
}
back_and_out!(Written Started Annotated);

macro_rules! out {
    ($($state:ident)*) => {$(
        impl Accepts<Reason> for $state {
            type Next = Draining;
            fn accept(self, reason: Reason) -> Draining {
                Draining { reason, site: Some(self.grant.site) }
            }
        }
    )*};
}
out!(Credentialed Written Started Annotated);

impl Accepts<TornDown> for Draining {
    type Next = Deleted;
    fn accept(self, _: TornDown) -> Deleted {
        Deleted {
            reason: self.reason,
        }
    }
}

/// An instance whose state is known only at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instance {
    /// In [`Pending`].
    Pending(In<Pending>),
    /// In [`Credentialed`].
    Credentialed(In<Credentialed>),
    /// In [`Written`].
    Written(In<Written>),
    /// In [`Started`].
    Started(In<Started>),
    /// In [`Annotated`].
    Annotated(In<Annotated>),
    /// In [`Draining`].
    Draining(In<Draining>),
    /// In [`Deleted`].
    Deleted(In<Deleted>),
}

macro_rules! each {
    ($instance:expr, $inner:ident => $body:expr) => {
        match $instance {
            Instance::Pending($inner) => $body,
            Instance::Credentialed($inner) => $body,
            Instance::Written($inner) => $body,
            Instance::Started($inner) => $body,
            Instance::Annotated($inner) => $body,
            Instance::Draining($inner) => $body,
            Instance::Deleted($inner) => $body,
        }
    };
}

impl Instance {
    /// Which exporter it is.
    #[must_use]
    pub const fn about(&self) -> &About {
        each!(self, inner => &inner.about)
    }

    /// Steps done and failed in its present state.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        each!(self, inner => &inner.progress)
    }

    pub(super) const fn about_mut(&mut self) -> &mut About {
        each!(self, inner => &mut inner.about)
    }

    pub(super) const fn progress_mut(&mut self) -> &mut Progress {
        each!(self, inner => &mut inner.progress)
    }

    /// Brings the next try of a step that failed for a reason of the kind `retry` forward to `now`
    /// (milliseconds since the Unix epoch): what it waits for may have been mended.
    pub fn hasten(&mut self, retry: super::Retry, now: u64) {
        if let Some(failed) = &mut self.progress_mut().failed
            && failed.failure.class.retry() == retry
        {
            failed.retry_at = failed.retry_at.min(now);
        }
    }

    /// The host that it is on, or may be on.
    #[must_use]
    pub const fn site(&self) -> Option<&Site> {
        match self {
            Self::Deleted(_) => None,
            Self::Pending(instance) => instance.state.noted.as_ref(),
            Self::Credentialed(instance) => Some(&instance.state.grant.site),
            Self::Written(instance) => Some(&instance.state.grant.site),
            Self::Started(instance) => Some(&instance.state.grant.site),
            Self::Annotated(instance) => Some(&instance.state.grant.site),
            Self::Draining(instance) => instance.state.site.as_ref(),
        }
    }

    /// Changes how the host is reached; it stays the same host.
    pub(super) fn reach_by(&mut self, site: &Site) {
        let known = match self {
            Self::Deleted(_) => None,
            Self::Pending(instance) => instance.state.noted.as_mut(),
            Self::Credentialed(instance) => Some(&mut instance.state.grant.site),
            Self::Written(instance) => Some(&mut instance.state.grant.site),
            Self::Started(instance) => Some(&mut instance.state.grant.site),
            Self::Annotated(instance) => Some(&mut instance.state.grant.site),
            Self::Draining(instance) => instance.state.site.as_mut(),
        };
        if let Some(known) = known {
            *known = site.clone();
        }
    }

    /// The endpoint that it was given.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        match self {
            Self::Pending(_) | Self::Draining(_) | Self::Deleted(_) => None,
            Self::Credentialed(instance) => Some(&instance.state.grant.endpoint),
            Self::Written(instance) => Some(&instance.state.grant.endpoint),
            Self::Started(instance) => Some(&instance.state.grant.endpoint),
            Self::Annotated(instance) => Some(&instance.state.grant.endpoint),
        }
    }

    /// The revision that is on the host.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        match self {
            Self::Written(instance) => Some(&instance.state.files.revision),
            Self::Started(instance) => Some(&instance.state.files.revision),
            Self::Annotated(instance) => Some(&instance.state.files.revision),
            Self::Pending(_) | Self::Credentialed(_) | Self::Draining(_) | Self::Deleted(_) => None,
        }
    }
}
