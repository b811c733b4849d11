//! What `jmp` and `jumpstarter-controller` say to each other: newline-delimited
//! JSON over TCP, told apart by `type`. The real ones use gRPC; nothing between
//! them is observable but its effects on the cluster, and those are the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::Device;
use crate::report::Report;

/// Annotation on a Lease (value `true`): its user writes to the machine's disk,
/// so that the machine is no longer clean.
pub const TOUCH_ANNOTATION: &str = "testbed.jumpstarter.dev/touch";

/// The states that an exporter reports, as in the Exporter's `status.exporterStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are Jumpstarter's and speak for themselves.
pub enum ExporterStatus {
    Offline,
    Available,
    LeaseReady,
}

impl ExporterStatus {
    /// The text in the Exporter's status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Offline => "Offline",
            Self::Available => "Available",
            Self::LeaseReady => "LeaseReady",
        }
    }
}

/// Who connects. The token is a secret: no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    /// The bearer token.
    pub token: String,
    /// Always `Exporter`.
    pub kind: String,
    /// The Exporter's namespace.
    pub namespace: String,
    /// The Exporter's name.
    pub name: String,
}

/// From the exporter. The first message is `Register` or `Resume`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum FromExporter {
    /// A new session.
    Register {
        /// Who it is.
        identity: Identity,
        /// Labels for the Exporter.
        labels: BTreeMap<String, String>,
        /// The device tree.
        devices: Vec<Device>,
        /// What the exporter sees.
        report: Box<Report>,
    },
    /// The session goes on after a broken connection.
    Resume {
        /// Who it is.
        identity: Identity,
        /// The lease that it serves.
        lease: Option<String>,
        /// What the exporter sees.
        report: Box<Report>,
    },
    /// The exporter's state changed.
    Status {
        /// The new state.
        status: ExporterStatus,
        /// A text for people.
        message: String,
    },
    /// The session is over.
    Unregister,
    /// Still here.
    Tick,
    /// The answer to a request for a report.
    Report {
        /// The request's number.
        id: u64,
        /// What the exporter sees now.
        report: Box<Report>,
    },
}

/// To the exporter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum ToExporter {
    /// Register or Resume was accepted.
    Accepted {
        /// How often to send `Tick`.
        tick_ms: u64,
    },
    /// It was not, and the connection ends.
    Refused {
        /// Why.
        message: String,
    },
    /// The exporter is leased. Sent again after each reconnect.
    LeaseStarted {
        /// The lease's name.
        lease: String,
        /// The lease's user writes to the machine's disk.
        touch: bool,
    },
    /// The lease is over.
    LeaseEnded {
        /// The lease's name.
        lease: String,
    },
    /// The controller lost the API server: no session outlives that, whatever
    /// the connection's options.
    SessionLost,
    /// Report what you see now.
    Report {
        /// A number for the answer.
        id: u64,
    },
}
