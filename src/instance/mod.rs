//! The state machine of one exporter. Pure: no I/O, no clock, no async.

mod failure;
mod step;

pub use failure::{Failure, FailureClass, Retry};
pub use step::Step;
