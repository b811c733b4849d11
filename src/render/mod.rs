//! What is written to a host. Pure: the same input gives the same bytes.

mod names;

pub use names::{CONFIG_DIR, Names, QUADLET_DIR};

use crate::api::{DriverConfig, ImageSpec, Images, Parameters, RecycleStrategy};
use crate::instance::Failure;

/// Everything that the files of one instance depend on.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// The Exporter's namespace.
    pub namespace: &'a str,
    /// The Exporter's name.
    pub exporter: &'a str,
    /// The Exporter's UID: what is on the host is ours only if it carries it.
    pub exporter_uid: &'a str,
    /// The ExporterSet's name.
    pub set: &'a str,
    /// `host:port` of the Jumpstarter service.
    pub endpoint: &'a str,
    /// PEM bundle of the service's CA; empty for the system's roots.
    pub ca_pem: &'a str,
    /// The Exporter's token. Secret.
    pub token: &'a str,
    /// The set's drivers, before enrichment.
    pub drivers: &'a [DriverConfig],
    /// The merged parameters.
    pub parameters: &'a Parameters,
    /// Images of the class and of the set, merged.
    pub images: &'a Images,
    /// Whether the exporter ends with its lease.
    pub recycle: RecycleStrategy,
}

/// A file on a host.
#[derive(Clone, PartialEq, Eq)]
pub struct HostFile {
    /// Absolute path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// The content; may hold a secret.
    pub content: String,
}

/// The files of one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rendered {
    /// The exporter's config: mode 0400, holds the token.
    pub config: HostFile,
    /// The quadlets: net, runtime, exporter; mode 0644.
    pub quadlets: Vec<HostFile>,
    /// The exporter's image.
    pub exporter_image: ImageSpec,
    /// The runtime's image.
    pub runtime_image: ImageSpec,
    /// Hex SHA-256 over everything but the token: what a running instance must be restarted for.
    pub revision: String,
}

impl std::fmt::Debug for HostFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostFile")
            .field("path", &self.path)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// Renders the files of one instance.
///
/// # Errors
/// `InvalidDrivers` or `InvalidParameters`, naming what can't be used.
pub fn render(_inputs: &Inputs<'_>) -> Result<Rendered, Failure> {
    Err(Failure::new(
        crate::instance::FailureClass::InvalidDrivers,
        "not yet",
    ))
}
