//! The parameters of a set, merged over those of its class, typed and validated.

mod check;
mod reader;
mod size;
mod text;

pub(crate) use text::clean;

use reader::{Reader, deep_merge};
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
#[error("{path} {problem} (got {value}); {remedy}")]
pub struct ParameterError {
    /// The object that it stands in and the path there, e.g.
    /// `VirtualTargetClass spec.parameters.host.port`; without the object if it stands in none.
    pub path: String,
    /// What was found there, shortened; the kind of value only, if the key is unknown.
    pub value: String,
    /// What is wrong, as a predicate: `is text, must be a number`.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

/// The parameters that exist, by the path of the map that they stand in.
const KNOWN: &[(&[&str], &[&str])] = &[
    (
        &[],
        &["ssh", "host", "runtime", "arch", "resources", "storage"],
    ),
    (&["ssh"], &["user", "port"]),
    (&["host"], &["name", "user", "port", "hostKey"]),
    (&["runtime"], &["kvm", "devices", "host_network"]),
    (&["resources"], &["cpu", "memory", "storage"]),
    (&["storage"], &["size"]),
];

const DEFAULT_USER: &str = "root";
const DEFAULT_PORT: u16 = 22;

impl Parameters {
    /// Merges the set's parameters over the class's (maps are merged key by key, lists and single
    /// values replace) and reads them. A `null` stands for nothing: in a set it takes away what the
    /// class says.
    ///
    /// # Errors
    /// Every parameter that can't be used, in the order of their paths.
    pub fn resolve(
        class: Option<&Value>,
        set: Option<&Value>,
    ) -> Result<Self, Vec<ParameterError>> {
        let set = set.filter(|set| !set.is_null());
        let class = class.filter(|class| !class.is_null());
        let merged = match (class, set) {
            (Some(class), Some(set)) => deep_merge(class, set),
            (Some(only), None) | (None, Some(only)) => only.clone(),
            (None, None) => Value::Null,
        };
        let mut reader = Reader::new(set, &merged);
        for (path, keys) in KNOWN {
            reader.only_known(path, keys);
        }
        let parameters = Self {
            host: HostParameters::read(&mut reader),
            runtime: RuntimeParameters::read(&mut reader),
            arch: reader.read(&["arch"], check::arch),
            resources: Resources {
                cpu: reader.read(&["resources", "cpu"], check::cpu),
                memory: reader.read(&["resources", "memory"], check::size),
            },
            disk_size: {
                let older = reader.read(&["resources", "storage"], check::size);
                reader.read(&["storage", "size"], check::size).or(older)
            },
        };
        let errors = reader.finish();
        if errors.is_empty() {
            Ok(parameters)
        } else {
            Err(errors)
        }
    }
}

impl HostParameters {
    /// `host.*` over `ssh.*` over the defaults.
    fn read(reader: &mut Reader<'_>) -> Self {
        let general_user = reader.read(&["ssh", "user"], check::user);
        let general_port = reader.read(&["ssh", "port"], check::port);
        reader.missing(
            &["host", "name"],
            "write the DNS name or address of the lab host",
        );
        Self {
            // Empty only together with an error.
            name: reader
                .read(&["host", "name"], check::host_name)
                .unwrap_or_default(),
            user: reader
                .read(&["host", "user"], check::user)
                .or(general_user)
                .unwrap_or_else(|| DEFAULT_USER.to_owned()),
            port: reader
                .read(&["host", "port"], check::port)
                .or(general_port)
                .unwrap_or(DEFAULT_PORT),
            host_key: reader.read(&["host", "hostKey"], check::host_key),
        }
    }
}

impl RuntimeParameters {
    /// Every device that both containers are given, each once.
    pub fn all_devices(&self) -> impl Iterator<Item = &str> {
        const KVM: &str = "/dev/kvm";
        let others = self.devices.iter().map(String::as_str);
        self.kvm
            .then_some(KVM)
            .into_iter()
            .chain(others.filter(|device| !self.kvm || *device != KVM))
    }

    fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            kvm: reader
                .read(&["runtime", "kvm"], check::boolean)
                .unwrap_or_default(),
            devices: reader
                .read(&["runtime", "devices"], check::devices)
                .unwrap_or_default(),
            host_network: reader
                .read(&["runtime", "host_network"], check::boolean)
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
