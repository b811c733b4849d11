//! The state machine of one exporter. Pure: no I/O, no clock, no async.
//!
//! An instance is the fold of its events ([`Instance::fold`]); what it does next is a function of
//! the instance, of what the cluster shows and of what is wanted ([`decide`]).

mod decide;
mod event;
mod failure;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
pub(crate) mod fixtures;
mod progress;
mod state;
mod step;
mod table;

pub use decide::{Next, Seen, Waiting, Wanted, decide};
pub use event::{Event, FoldError};
pub use failure::{Failure, FailureClass, Retry};
pub use progress::{Failed, Progress};
pub use state::{
    About, Accepts, Annotated, AnnotatedAt, Credentialed, Deleted, Draining, Drifted, Grant, In,
    Instance, Pending, Reason, Revised, RunningUnits, Site, Started, TornDown, Written,
    WrittenFiles,
};
pub use step::Step;
pub use table::{IllegalTransition, State, TABLE, Transition, TransitionKind, mermaid};
