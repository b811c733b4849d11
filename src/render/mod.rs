//! What is written to a host. Pure: the same input gives the same bytes.

mod config;
mod drivers;
mod image;
mod names;
mod quadlet;
mod unit;
mod yaml;

pub use names::{CONFIG_DIR, Names, QUADLET_DIR};

use crate::api::{DriverConfig, ImageSpec, Images, Parameters, RecycleStrategy, clean};
use crate::instance::{Failure, FailureClass};
use quadlet::Quadlets;
use sha2::{Digest, Sha256};

/// Everything that the files of one instance depend on.
#[derive(Clone)]
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
pub fn render(inputs: &Inputs<'_>) -> Result<Rendered, Failure> {
    check_identity(inputs).map_err(invalid)?;
    let exporter_image = image::exporter(inputs.images.exporter.as_ref()).map_err(invalid)?;
    let runtime_image = image::runtime(inputs.images.runtime.as_ref()).map_err(invalid)?;
    let export = drivers::export(inputs.drivers, inputs.parameters)
        .map_err(|errors| Failure::new(FailureClass::InvalidDrivers, joined(&errors)))?;
    let names = Names::of(inputs.exporter);
    let texts = Quadlets {
        inputs,
        names: &names,
        exporter_image: exporter_image.image.as_deref().unwrap_or_default(),
        runtime_image: runtime_image.image.as_deref().unwrap_or_default(),
    }
    .render();
    let without_token = config::config(inputs, &export, "");
    let revision = revision(&without_token, &texts);
    Ok(Rendered {
        config: HostFile {
            path: names.config_path(),
            mode: 0o400,
            content: config::config(inputs, &export, inputs.token),
        },
        quadlets: texts
            .into_iter()
            .map(|(container, content)| HostFile {
                path: names.quadlet_path(&container),
                mode: 0o644,
                content,
            })
            .collect(),
        exporter_image,
        runtime_image,
        revision,
    })
}

fn invalid(message: String) -> Failure {
    Failure::new(FailureClass::InvalidParameters, message)
}

/// How much of what is wrong is told at once.
const MESSAGE: usize = 1500;

fn joined(errors: &[String]) -> String {
    let all = errors.join("; ");
    match all.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", all.get(..end).unwrap_or_default()),
        None => all,
    }
}

/// Names get into file names, units, labels and a shell's words. The API server holds them to
/// this already; the length is what jumpstarter-controller makes credentials for, and leaves room
/// for the suffixes of units and volumes.
fn check_identity(inputs: &Inputs<'_>) -> Result<(), String> {
    let dns = |text: &str, most: usize| {
        (1..=most).contains(&text.len())
            && text.split('.').all(|label| {
                !label.is_empty()
                    && !label.starts_with('-')
                    && !label.ends_with('-')
                    && label
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            })
    };
    for (what, text, most) in [
        ("the Exporter's name", inputs.exporter, 63),
        ("the Exporter's namespace", inputs.namespace, 63),
        ("the ExporterSet's name", inputs.set, 253),
    ] {
        if !dns(text, most) {
            return Err(format!(
                "{what} must be a DNS name of up to {most} characters (got \"{}\"); choose a shorter or plainer one",
                clean(text)
            ));
        }
    }
    let uid = inputs.exporter_uid;
    let fits = (1..=64).contains(&uid.len())
        && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !fits {
        return Err(format!(
            "the Exporter's UID must be letters, digits and hyphens (got \"{}\"); nothing to do but to report it",
            clean(uid)
        ));
    }
    Ok(())
}

/// Over everything that an exporter or its runtime must be started anew for. A new token is not
/// among it: the old one stays valid, and the next start reads the new one. Nor is the pull policy.
fn revision(config: &str, quadlets: &[(String, String)]) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        // With its length in front, no part can pass for another's end.
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    part(config);
    for (name, text) in quadlets {
        part(name);
        part(text);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests;
