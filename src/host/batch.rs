//! What is asked of a host in one go, and what it reports.

use crate::api::ImageSpec;
use crate::instance::{Failure, Step};
use crate::render::{HostFile, Names};
use std::time::Duration;

/// Steps for one instance, carried out in order by one script in one exec.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The instance's names on the host.
    pub names: Names,
    /// Whose instance it is.
    pub owner: Owner,
    /// The leader that asks.
    pub fence: Fence,
    /// The steps, in order; the first failure ends the batch.
    pub ops: Vec<Op>,
    /// How long the whole batch may take on the host.
    pub time_limit: Duration,
}

/// Whose an instance is: what is on the host under its names is touched only if it carries this
/// Exporter's UID, or no UID at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Namespace of the Exporter.
    pub namespace: String,
    /// UID of the Exporter.
    pub uid: String,
}

/// The leader's word: a host refuses an epoch lower than it has seen for the same Lease object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// UID of the leader Lease.
    pub lease_uid: String,
    /// `leaseTransitions` of the leader Lease while we hold it.
    pub epoch: u64,
}

/// One step on a host. Each is idempotent, and checks before it acts.
#[derive(Clone, Debug)]
pub enum Op {
    /// Root or sudo, Podman and its generator, devices, images (pulled if their policy says so).
    Preflight {
        /// Paths that must be devices on the host.
        devices: Vec<String>,
        /// Images that must be there afterwards.
        images: Vec<ImageSpec>,
    },
    /// Write the exporter's config.
    WriteConfig(HostFile),
    /// Have the generator check the quadlets in a staging folder, then write them.
    WriteQuadlets(Vec<HostFile>),
    /// Make the volume and stage `jumpstarter-exec` (and UEFI firmware, if the runtime image has it) into it.
    CreateVolume {
        /// The image that `jumpstarter-exec` comes from.
        exporter_image: String,
        /// The image that firmware comes from.
        runtime_image: String,
        /// Empty the volume first: the machine starts afresh.
        wipe: bool,
    },
    /// Reload systemd, start all units, wait until they are active.
    Start {
        /// Restart those that run with another revision of their files.
        restart: bool,
    },
    /// Stop the units; they are not active afterwards.
    Stop,
    /// Remove quadlets and config.
    RemoveFiles,
    /// Remove the containers that are left, and the volume.
    RemoveVolume,
    /// Reload systemd and check that no unit, generated unit, file, container or volume is left.
    Reload,
}

impl Op {
    /// The step that this operation carries out.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Self::Preflight { .. } => Step::Connect,
            Self::WriteConfig(_) => Step::WriteConfig,
            Self::WriteQuadlets(_) => Step::WriteQuadlets,
            Self::CreateVolume { .. } => Step::CreateVolume,
            Self::Start { .. } => Step::Start,
            Self::Stop => Step::Stop,
            Self::RemoveFiles => Step::RemoveFiles,
            Self::RemoveVolume => Step::RemoveVolume,
            Self::Reload => Step::Reload,
        }
    }
}

/// What became of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The host is now as asked, and was not before.
    Changed,
    /// The host was already as asked.
    Unchanged,
    /// The host is not as asked.
    Failed(Failure),
}

/// The report of one step, sent as soon as the host says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The step.
    pub step: Step,
    /// What became of it.
    pub outcome: Outcome,
    /// For people, e.g. `podman 5.4.2` or `2 of 3 files written`; no secrets.
    pub detail: String,
}
