//! The loop that joins the parts: observe, decide, record, act, observe.
//!
//! [`Engine`] owns what is known. It wakes when something changes, decides for every set and
//! instance by the pure parts, and starts at most one job an instance; a job records what it is
//! about to do, does it and records how it went. After a crash the instances are the
//! fold of the journal, and the same decisions lead on from there.

mod actor;
mod backoff;
mod desired;
mod engine;
mod failpoint;
mod jobs;
mod log;
pub mod ports;
mod record;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
mod tests;
mod world;

pub use engine::Engine;
pub use log::Store;
pub use record::{Record, SetEvent, instance_stream, set_stream};
pub use world::{Parts, World, millis};

use crate::instance::FoldError;
use ports::JournalError;
use thiserror::Error;

/// What ends the process: another one goes on where it was.
#[derive(Debug, Error)]
pub enum Fatal {
    /// The journal can't be written or read; nothing may be done that is not in it.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal does not tell a possible story.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// Somebody else leads, or may lead.
    #[error("we are not the leader any more")]
    NotLeader,
}
