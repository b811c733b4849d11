//! The parameters of a set, merged over those of its class, typed and validated.

use serde_json::Value;
use thiserror::Error;

/// Where an instance goes and how its target looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The lab host.
    pub host: HostParameters,
    /// What the containers are given.
    pub runtime: RuntimeParameters,
    /// QEMU architecture (`aarch64`, `x86_64`, …), if set.
    pub arch: Option<String>,
    /// CPU and memory of the target.
    pub resources: Resources,
    /// Disk of the target (`storage.size`, else `resources.storage`), normalised to a size that
    /// QEMU and its driver read alike, e.g. `16G`.
    pub disk_size: Option<String>,
}

/// The lab host: `host.*` over `ssh.*` over the defaults `root` and 22.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostParameters {
    /// DNS name or address, without brackets.
    pub name: String,
    /// Login name.
    pub user: String,
    /// SSH port.
    pub port: u16,
    /// `SHA256:…` or a public key line that the host must show (`host.hostKey`).
    pub host_key: Option<String>,
}

/// What the containers are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeParameters {
    /// Whether both get `/dev/kvm`.
    pub kvm: bool,
    /// More devices for both, absolute paths under `/dev/`.
    pub devices: Vec<String>,
    /// Whether both use the host's network: then only one instance per forwarded port fits on a host.
    pub host_network: bool,
}

/// CPU and memory of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Number of CPUs.
    pub cpu: Option<u32>,
    /// Memory, normalised to a size with a unit as `qemu -m` reads it, e.g. `4G`.
    pub memory: Option<String>,
}

/// A parameter that can't be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path}: {problem} (got {value}); {remedy}")]
pub struct ParameterError {
    /// Where it stands, e.g. `spec.parameters.host.port`.
    pub path: String,
    /// What was found there, shortened.
    pub value: String,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl Parameters {
    /// Merges the set's parameters over the class's (maps recurse, scalars and lists replace) and
    /// reads them.
    ///
    /// # Errors
    /// Every parameter that can't be used, in the order of their paths.
    pub fn resolve(
        _class: Option<&Value>,
        _set: Option<&Value>,
    ) -> Result<Self, Vec<ParameterError>> {
        Err(Vec::new())
    }
}
