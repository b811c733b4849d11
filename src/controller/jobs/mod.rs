//! What is done for one instance: one file per side that it is done on. Each job records what it is
//! about to do, does it, and records how it went; run again after a crash, it does what is left.

mod cluster;
mod host;

use super::actor::Actor;
use super::desired::Desired;
use super::world::World;
use super::{Fatal, actor::Held};
use crate::instance::{Next, Step};
pub(super) use cluster::controller_uid;
use std::sync::Arc;

/// Carries out `next` for an instance and returns it as it is then.
///
/// # Errors
/// Only what ends the process: a step that fails is recorded in the instance.
pub(crate) async fn carry_out<W: World>(
    world: Arc<W>,
    held: Held,
    next: Next,
    desired: Option<Arc<Desired>>,
) -> Result<Held, Fatal> {
    let mut actor = Actor { world, held };
    match (next, desired) {
        (Next::Create, Some(desired)) => actor.create(&desired).await?,
        (Next::Grant(grant), _) => actor.grant(grant).await?,
        (Next::Write, Some(desired)) => actor.write(&desired).await?,
        (Next::Start, _) => actor.start().await?,
        (Next::Annotate, _) => actor.annotate().await?,
        (Next::Disable, _) => actor.disable().await?,
        (Next::Undo, _) => actor.undo().await?,
        (Next::Delete, _) => actor.delete().await?,
        (Next::Record(event), _) => actor.record(vec![event]).await?,
        (Next::Create | Next::Write | Next::Wait(_) | Next::Forget, _) => {}
    }
    Ok(actor.held)
}

/// The steps of a job, in their order.
#[must_use]
pub(crate) const fn steps(next: &Next) -> &'static [Step] {
    match next {
        Next::Create => &[Step::Create],
        Next::Grant(_) => &[Step::AwaitCredentials],
        Next::Write => &[
            Step::Connect,
            Step::WriteConfig,
            Step::WriteQuadlets,
            Step::CreateVolume,
        ],
        Next::Start => &[Step::Start],
        Next::Annotate => &[Step::Annotate],
        Next::Disable => &[Step::Disable],
        Next::Undo => &[
            Step::Stop,
            Step::RemoveFiles,
            Step::RemoveVolume,
            Step::Reload,
        ],
        Next::Delete => &[Step::Delete],
        Next::Record(_) | Next::Wait(_) | Next::Forget => &[],
    }
}
