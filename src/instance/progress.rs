//! What has been tried in the present state: steps done, open and failed, and the leases served.

use super::{Failure, Step};

/// What has been tried in the present state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps that were started and have no outcome yet: to be run (again).
    pub open: Vec<Step>,
    /// Steps that have succeeded: not to be run again.
    pub done: Vec<Step>,
    /// The revision that the steps were done for, where files are written.
    pub revision: Option<String>,
    /// The failure that it waits out, if any.
    pub failed: Option<Failed>,
    /// Whether anything may have been written to the host since it was chosen.
    pub touched: bool,
    /// The lease that holds the exporter.
    pub lease: Option<String>,
    /// Whether a lease has held it since its machine was made.
    pub served: bool,
    /// Why an administrator waived the teardown, if one did.
    pub waived: Option<String>,
}

/// A step that has failed and is to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The step.
    pub step: Step,
    /// Why.
    pub failure: Failure,
    /// How often in a row, as far as the journal tells: not every retry is journaled.
    pub attempts: u32,
    /// When it is tried again, in milliseconds since the Unix epoch.
    pub retry_at: u64,
}

impl Progress {
    /// Whether `step` has been done in this state.
    #[must_use]
    pub fn has_done(&self, step: Step) -> bool {
        self.done.contains(&step)
    }

    /// Whether `step` has been done in this state for `revision`.
    #[must_use]
    pub fn has_done_for(&self, step: Step, revision: Option<&str>) -> bool {
        self.has_done(step) && self.revision.as_deref() == revision
    }

    /// What the next state starts with: the steps are behind it, the leases are not.
    pub(super) fn carried_on(self) -> Self {
        Self {
            open: Vec::new(),
            done: Vec::new(),
            revision: None,
            failed: None,
            ..self
        }
    }

    pub(super) fn start(&mut self, steps: &[Step], revision: Option<&str>) {
        if self.revision.as_deref() != revision {
            self.done.clear();
            self.revision = revision.map(str::to_owned);
        }
        self.touched |= steps.contains(&Step::WriteConfig);
        for step in steps {
            if !self.open.contains(step) {
                self.open.push(*step);
            }
        }
    }

    pub(super) fn succeed(&mut self, step: Step) {
        self.open.retain(|open| *open != step);
        if !self.has_done(step) {
            self.done.push(step);
        }
        if self
            .failed
            .as_ref()
            .is_some_and(|failed| failed.step == step)
        {
            self.failed = None;
        }
    }

    pub(super) fn fail(&mut self, failed: Failed) {
        self.open.retain(|open| *open != failed.step);
        self.failed = Some(failed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::instance::fixtures::in_state;
    use crate::instance::{Event, Instance, State, Step};

    fn then(instance: Instance, events: &[Event]) -> Instance {
        events.iter().fold(instance, |instance, event| {
            Instance::fold(Some(instance), event).unwrap()
        })
    }

    fn started(revision: &str) -> Event {
        Event::StepStarted {
            steps: vec![Step::WriteConfig],
            attempt: 1,
            revision: Some(revision.into()),
        }
    }

    fn done() -> Event {
        Event::StepSucceeded {
            step: Step::WriteConfig,
            changed: true,
            detail: String::new(),
        }
    }

    #[test]
    fn what_was_done_for_another_revision_does_not_count() {
        let written = then(in_state(State::Credentialed), &[started("r1"), done()]);
        assert!(
            written
                .progress()
                .has_done_for(Step::WriteConfig, Some("r1"))
        );
        assert!(
            !written
                .progress()
                .has_done_for(Step::WriteConfig, Some("r2"))
        );
        let again = then(written, &[started("r2")]);
        assert!(!again.progress().has_done(Step::WriteConfig));
        assert_eq!(again.progress().open, [Step::WriteConfig]);
    }

    #[test]
    fn an_outcome_closes_the_step() {
        let open = then(in_state(State::Credentialed), &[started("r1")]);
        assert_eq!(then(open, &[done()]).progress().open, []);
    }
}
