//! What the controller writes into the journal.

use crate::instance::Event;
use serde::{Deserialize, Serialize};

/// One record. The order of the variants is part of the journal's format: new ones go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// In the stream of an instance.
    Instance(Box<Event>),
    /// In the stream of a set.
    Set(SetEvent),
}

/// What is remembered of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetEvent {
    /// There have been more exporters than asked for since then.
    SurplusSince {
        /// Milliseconds since the Unix epoch.
        at: u64,
    },
    /// There is no surplus any more.
    SurplusOver,
}

/// The stream of the instance of the Exporter `name`.
#[must_use]
pub fn instance_stream(name: &str) -> String {
    format!("exporter/{name}")
}

/// The stream of the ExporterSet with that UID.
#[must_use]
pub fn set_stream(uid: &str) -> String {
    format!("set/{uid}")
}
