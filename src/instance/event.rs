//! What the journal says of an instance, and the fold that makes the instance of it.

use super::state::{About, In, Instance, Pending, Site};
use super::{Failed, Failure, IllegalTransition, Progress, State, Step, Transition};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One entry in an instance's stream. The order of the variants is part of the journal's format:
/// new ones go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The instance is to be: its name is fixed before the Exporter is created.
    Planned(About),
    /// The Exporter existed and the journal did not know it: taken over in Pending, from where
    /// every step that the host already shows is found done.
    Adopted {
        /// Which exporter.
        about: About,
        /// The host noted on it: what is there has to be undone, also if the instance never gets
        /// any further.
        site: Option<Site>,
    },
    /// The Exporter exists and has this UID.
    Created {
        /// `metadata.uid`.
        uid: String,
    },
    /// These steps are about to be carried out.
    StepStarted {
        /// In their order.
        steps: Vec<Step>,
        /// 1 for the first try in this state.
        attempt: u32,
        /// The revision that is being written, where files are written: what was done for another
        /// revision does not count.
        revision: Option<String>,
    },
    /// A step is done and verified.
    StepSucceeded {
        /// The step.
        step: Step,
        /// Whether anything had to be done for it.
        changed: bool,
        /// For people, e.g. `podman 5.4.2`.
        detail: String,
    },
    /// A step has failed. Not every retry is journaled: attempts 1, 2, 4, 8 … are, and each new class.
    StepFailed {
        /// The step.
        step: Step,
        /// Why.
        failure: Failure,
        /// How often in a row.
        attempt: u32,
        /// When it is tried again, in milliseconds since the Unix epoch.
        retry_at: u64,
    },
    /// The state changes.
    Moved(Transition),
    /// A lease holds the exporter.
    Leased {
        /// The Lease's name.
        lease: String,
    },
    /// No lease holds the exporter any more.
    Unleased,
    /// The same host is reached another way from now on: user, port, key or host key have changed.
    Rerouted(Site),
    /// An administrator has said that nothing need be undone on the host.
    Waived {
        /// The administrator's words.
        reason: String,
    },
}

/// An entry that can't follow the ones before it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FoldError {
    /// The table has no such transition.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// The stream does not begin with `Planned` or `Adopted`.
    #[error("the stream begins with {0}, which says nothing of which exporter it is")]
    NoBeginning(String),
    /// The stream begins a second time before the first instance was gone.
    #[error("exporter {exporter} begins again while it is in {state}")]
    BeginsAgain {
        /// The Exporter's name.
        exporter: String,
        /// The state that it was in.
        state: State,
    },
}

impl Instance {
    /// The instance after one more entry.
    ///
    /// # Errors
    /// [`FoldError`], if the entry can't follow.
    pub fn fold(instance: Option<Self>, event: &Event) -> Result<Self, FoldError> {
        match (instance, event) {
            (None | Some(Self::Deleted(_)), Event::Planned(about)) => {
                Ok(Self::begin(about.clone(), None))
            }
            (None | Some(Self::Deleted(_)), Event::Adopted { about, site }) => {
                Ok(Self::begin(about.clone(), site.clone()))
            }
            (Some(instance), Event::Planned(_) | Event::Adopted { .. }) => {
                Err(FoldError::BeginsAgain {
                    exporter: instance.about().name.clone(),
                    state: instance.state(),
                })
            }
            (None, event) => Err(FoldError::NoBeginning(event.name().to_owned())),
            (Some(instance), Event::Moved(transition)) => {
                Ok(instance.transition(transition.clone())?)
            }
            (Some(mut instance), event) => {
                instance.note(event);
                Ok(instance)
            }
        }
    }

    fn begin(about: About, noted: Option<Site>) -> Self {
        Self::Pending(In {
            about,
            progress: Progress {
                touched: noted.is_some(),
                ..Progress::default()
            },
            state: Pending { noted },
        })
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Created { uid } => self.about_mut().uid = Some(uid.clone()),
            Event::Rerouted(site) => self.reach_by(site),
            _ => {}
        }
        let progress = self.progress_mut();
        match event {
            Event::StepStarted {
                steps, revision, ..
            } => {
                progress.start(steps, revision.as_deref());
            }
            Event::StepSucceeded { step, .. } => progress.succeed(*step),
            Event::StepFailed {
                step,
                failure,
                attempt,
                retry_at,
            } => progress.fail(Failed {
                step: *step,
                failure: failure.clone(),
                attempts: *attempt,
                retry_at: *retry_at,
            }),
            Event::Leased { lease } => {
                progress.lease = Some(lease.clone());
                progress.served = true;
            }
            Event::Unleased => progress.lease = None,
            Event::Waived { reason } => progress.waived = Some(reason.clone()),
            Event::Rerouted(_) => {}
            Event::Created { .. } | Event::Planned(_) | Event::Adopted { .. } | Event::Moved(_) => {
            }
        }
    }
}

impl Event {
    /// Its name, for messages and spans.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Planned(_) => "planned",
            Self::Adopted { .. } => "adopted",
            Self::Created { .. } => "created",
            Self::StepStarted { .. } => "step-started",
            Self::StepSucceeded { .. } => "step-succeeded",
            Self::StepFailed { .. } => "step-failed",
            Self::Moved(transition) => transition.kind().name(),
            Self::Leased { .. } => "leased",
            Self::Unleased => "unleased",
            Self::Rerouted(_) => "rerouted",
            Self::Waived { .. } => "waived",
        }
    }
}
