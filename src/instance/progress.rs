//! What has been tried in the present state: steps done, open and failed, and the leases served.

use super::{Failure, Step};

/// What has been tried in the present state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps that were started and have no outcome yet: to be run (again).
    pub open: Vec<Step>,
    /// Steps that have succeeded: not to be run again.
    pub done: Vec<Step>,
    /// The failure that it waits out, if any.
    pub failed: Option<Failed>,
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

    /// What the next state starts with: the steps are behind it, the leases are not.
    pub(super) fn carried_on(self) -> Self {
        Self {
            open: Vec::new(),
            done: Vec::new(),
            failed: None,
            ..self
        }
    }

    pub(super) fn start(&mut self, steps: &[Step]) {
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
