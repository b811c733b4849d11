//! What ends a command with exit code 1.

use crate::api::PROVISIONER;
use crate::telemetry::{ProbesError, TelemetryError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What ends a command with exit code 1.
#[derive(Debug, Error)]
pub enum CliError {
    /// `--provisioner` is missing.
    #[error("--provisioner is required; this controller has {PROVISIONER}")]
    NoProvisioner,
    /// `--provisioner` names another one.
    #[error("unknown provisioner '{0}'; this controller has {PROVISIONER}")]
    UnknownProvisioner(String),
    /// `NAMESPACE` is missing.
    #[error(
        "the environment variable NAMESPACE is required: the namespace to serve (in a Pod: fieldRef metadata.namespace)"
    )]
    NoNamespace,
    /// The journal's folder can't be made or written.
    #[error("journal folder {path}: {source}; choose another --journal-dir")]
    JournalDir {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// No API server is configured, or not so that we understand it.
    #[error("Kubernetes configuration: {0}; run in a Pod, or give --kubeconfig or KUBECONFIG")]
    Kubernetes(String),
    /// Logging can't begin.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Probes can't be served.
    #[error(transparent)]
    Probes(#[from] ProbesError),
    /// Another replica leads, or may lead, by now.
    #[error("the leadership is lost; a new process may win it again")]
    LeadershipLost,
    /// A second signal came while we were ending.
    #[error("ended at once by a second signal")]
    Interrupted,
    /// The work did not end in time.
    #[error("the running work did not end within {0} s; it is resumed from the journal")]
    NotEnded(u64),
    /// The controller can't go on.
    #[error("{0}")]
    Work(crate::controller::Fatal),
    /// Two replicas could lead at once.
    #[error(
        "{0} must be above zero and less than {1}; leave both at their defaults, or raise the second"
    )]
    Timing(&'static str, &'static str),
    /// The runtime can't begin.
    #[error("threads or signals: {0}")]
    Runtime(io::Error),
    /// Output can't be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
    /// The definitions can't be written as YAML.
    #[error("YAML: {0}")]
    Yaml(#[from] serde_yaml::Error),
}
