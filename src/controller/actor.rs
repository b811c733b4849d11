//! One instance while something is done for it: record, then act, then record.

use super::failpoint::{self, Place};
use super::ports::{Clock, Context, Journal, JournalError, Leadership};
use super::record::{Record, instance_stream};
use super::world::{World, millis};
use super::{Fatal, backoff};
use crate::host::Fence;
use crate::instance::{Event, Failure, FailureClass, Instance, Step, Transition};
use std::sync::Arc;
use std::time::SystemTime;

/// An instance as the journal has it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The instance.
    pub(crate) instance: Instance,
    /// The version of its stream.
    pub(crate) version: u64,
    /// Steps that this process has journaled as started and that have no outcome there.
    pub(crate) open: Vec<Step>,
    /// When it came into its present state.
    pub(crate) since: SystemTime,
}

/// One instance while something is done for it. Only its actor writes to its stream.
pub(crate) struct Actor<W> {
    /// The outside.
    pub(crate) world: Arc<W>,
    /// The instance.
    pub(crate) held: Held,
}

/// How a step that succeeded went.
pub(crate) struct Done {
    /// Whether anything had to be done.
    pub(crate) changed: bool,
    /// For people.
    pub(crate) detail: String,
}

impl Done {
    /// Something had to be done.
    pub(crate) fn changed(detail: impl Into<String>) -> Self {
        Self {
            changed: true,
            detail: detail.into(),
        }
    }
}

impl<W: World> Actor<W> {
    /// The instance.
    pub(crate) const fn instance(&self) -> &Instance {
        &self.held.instance
    }

    /// The Exporter's name.
    pub(crate) fn name(&self) -> String {
        self.held.instance.about().name.clone()
    }

    /// The fence of the present term.
    ///
    /// # Errors
    /// [`Fatal::NotLeader`], if we are not the leader any more.
    pub(crate) fn fence(&self) -> Result<Fence, Fatal> {
        self.world.leadership().fence().ok_or(Fatal::NotLeader)
    }

    /// Appends events and carries them out on the instance.
    ///
    /// # Errors
    /// If the journal does not take them, or we are not the leader any more.
    pub(crate) async fn record(&mut self, events: Vec<Event>) -> Result<(), Fatal> {
        let instance = append(&*self.world, Some(&self.held), &events).await?;
        for event in &events {
            match event {
                Event::StepStarted { steps, .. } => self.held.open.extend(steps),
                Event::StepSucceeded { step, .. } | Event::StepFailed { step, .. } => {
                    self.held.open.retain(|open| open != step);
                }
                _ => {}
            }
        }
        self.held = Held {
            open: std::mem::take(&mut self.held.open),
            ..instance
        };
        Ok(())
    }

    /// Notes that `steps` are about to be carried out, unless this process has done so already.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub(crate) async fn begin(&mut self, steps: &[Step]) -> Result<(), Fatal> {
        self.begin_for(steps, None).await
    }

    /// [`begin`](Self::begin), where files of `revision` are written.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub(crate) async fn begin_for(
        &mut self,
        steps: &[Step],
        revision: Option<&str>,
    ) -> Result<(), Fatal> {
        let same = self.held.instance.progress().revision.as_deref() == revision;
        if !same || !steps.iter().all(|step| self.held.open.contains(step)) {
            let (steps, attempt) = (steps.to_vec(), self.attempts() + 1);
            let revision = revision.map(str::to_owned);
            self.record(vec![Event::StepStarted {
                steps,
                attempt,
                revision,
            }])
            .await?;
        }
        for step in steps {
            failpoint::hit(Place::Started, *step);
        }
        Ok(())
    }

    /// Notes that a step is done, and the transition that it completes.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub(crate) async fn succeed(
        &mut self,
        step: Step,
        done: Done,
        then: Option<Transition>,
    ) -> Result<(), Fatal> {
        failpoint::hit(Place::Acted, step);
        let Done { changed, detail } = done;
        tracing::info!(
            exporter = self.name(),
            step = step.name(),
            changed,
            detail,
            "step done"
        );
        let mut events = vec![Event::StepSucceeded {
            step,
            changed,
            detail,
        }];
        events.extend(then.map(Event::Moved));
        self.record(events).await?;
        failpoint::hit(Place::Recorded, step);
        Ok(())
    }

    /// Notes that a step has failed and when it is tried again. Not every retry is journaled.
    ///
    /// # Errors
    /// As [`record`](Self::record), and [`Fatal::NotLeader`] if the host has seen a younger leader.
    pub(crate) async fn fail(&mut self, step: Step, failure: Failure) -> Result<(), Fatal> {
        if failure.class == FailureClass::Fenced {
            return Err(Fatal::NotLeader);
        }
        let before = self.held.instance.progress().failed.as_ref();
        let news = before.is_none_or(|b| (b.step, b.failure.class) != (step, failure.class));
        let attempt = if news { 1 } else { self.attempts() + 1 };
        let clock = self.world.clock();
        let delay = backoff::delay(failure.class.retry(), attempt, clock.random());
        let now = clock.now();
        tracing::warn!(
            exporter = self.name(),
            step = step.name(),
            error_type = failure.class.reason(),
            code = failure.class.code(),
            attempt,
            retry_in_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            "{failure}"
        );
        let event = Event::StepFailed {
            step,
            failure,
            attempt,
            retry_at: millis(now + delay),
        };
        if backoff::is_journaled(attempt) {
            self.record(vec![event]).await
        } else {
            self.held.instance = Instance::fold(Some(self.held.instance.clone()), &event)?;
            Ok(())
        }
    }

    fn attempts(&self) -> u32 {
        self.held
            .instance
            .progress()
            .failed
            .as_ref()
            .map_or(0, |failed| failed.attempts)
    }
}

/// Appends events to the stream of an instance that is there (`held`) or begins with them, and
/// returns the instance after them.
///
/// # Errors
/// If the events can't follow, the journal does not take them, or we are not the leader.
pub(crate) async fn append<W: World>(
    world: &W,
    held: Option<&Held>,
    events: &[Event],
) -> Result<Held, Fatal> {
    let fence = world.leadership().fence().ok_or(Fatal::NotLeader)?;
    let mut instance = held.map(|held| held.instance.clone());
    let from = instance.as_ref().map(Instance::state);
    for event in events {
        instance = Some(Instance::fold(instance, event)?);
    }
    let instance = instance.ok_or_else(|| JournalError("nothing to append".to_owned()))?;
    let now = world.clock().now();
    let context = Context {
        at: now,
        epoch: fence.epoch,
        traceparent: crate::telemetry::current_traceparent(),
    };
    let records = events
        .iter()
        .cloned()
        .map(|event| Record::Instance(Box::new(event)))
        .collect();
    let name = instance.about().name.clone();
    let expected = held.map(|held| held.version);
    let version = world
        .journal()
        .append(&instance_stream(&name), expected, context, records)
        .await?;
    let to = instance.state();
    if from != Some(to) {
        let (from, to) = (from.map_or("", |from| from.name()), to.name());
        let host = instance
            .site()
            .map(|site| site.host.clone())
            .unwrap_or_default();
        tracing::info!(
            exporter = name,
            set = instance.about().set,
            from,
            to,
            host,
            "transition"
        );
    }
    let since = held
        .filter(|_| from == Some(to))
        .map_or(now, |held| held.since);
    Ok(Held {
        instance,
        version,
        open: Vec::new(),
        since,
    })
}
