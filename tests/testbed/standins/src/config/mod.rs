//! The exporter's configuration file, read and judged as the real exporter does.
//!
//! The shape is Jumpstarter's `ExporterConfig` (`jumpstarter.dev/v1alpha1`).
//! Unknown keys are ignored, as there. Numbers and booleans must have their own
//! type: the real schema converts some texts (`"true"` to a boolean), but a
//! generated file has no reason to rely on that.

mod drivers;
mod node;
#[cfg(test)]
mod tests;

pub use drivers::{Device, Drivers};
pub use node::ConfigError;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node::Node;

use crate::yaml::{self, Value};

/// A configuration that the exporter would start with.
#[derive(Clone)]
pub struct ExporterConfig {
    /// The Exporter's namespace.
    pub namespace: String,
    /// The Exporter's name.
    pub name: String,
    /// `host:port` of the controller.
    pub endpoint: String,
    /// The bearer token: a secret.
    pub token: String,
    /// PEM bundle to check the controller's certificate with; empty means the system's roots.
    pub ca: Vec<u8>,
    /// Whether the connection's options let the exporter wait out a controller
    /// that is away, instead of ending its session.
    pub waits_for_controller: bool,
    /// Upper bound of the pause between two connection attempts.
    pub max_reconnect_backoff_ms: u64,
    /// End the process with the first lease.
    pub exit_on_lease_end: bool,
    /// What the exporter exports.
    pub drivers: Drivers,
}

impl std::fmt::Debug for ExporterConfig {
    /// Without the token.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ExporterConfig")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .field("waits_for_controller", &self.waits_for_controller)
            .field("exit_on_lease_end", &self.exit_on_lease_end)
            .field("drivers", &self.drivers)
            .finish_non_exhaustive()
    }
}

/// Default of gRPC for the pause between two connection attempts.
const DEFAULT_RECONNECT_BACKOFF_MS: u64 = 120_000;

impl ExporterConfig {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`ConfigError`] names the field and what is wrong with it; never its
    /// value, which could be the token.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let value = yaml::parse(text)?;
        let root = Node::root(&value);
        root.field("apiVersion")?
            .literal("jumpstarter.dev/v1alpha1")?;
        root.field("kind")?.literal("ExporterConfig")?;
        let metadata = root.field("metadata")?;
        let endpoint = root.field("endpoint")?;
        if !is_host_and_port(endpoint.text()?) {
            return Err(endpoint.wrong("must be HOST:PORT"));
        }
        let token = root.field("token")?;
        if token.text()?.trim().is_empty() {
            return Err(token.wrong("must not be empty"));
        }
        for text in ["description", "motd"] {
            root.optional(text)?
                .map(|node| node.text().map(drop))
                .transpose()?;
        }
        check_hooks(&root)?;
        check_failure_detection(&root)?;
        let (waits_for_controller, max_reconnect_backoff_ms) = grpc_options(&root)?;
        Ok(Self {
            namespace: metadata.field("namespace")?.text()?.to_owned(),
            name: metadata.field("name")?.text()?.to_owned(),
            endpoint: endpoint.text()?.to_owned(),
            token: token.text()?.trim().to_owned(),
            ca: certificates(&root)?,
            waits_for_controller,
            max_reconnect_backoff_ms,
            exit_on_lease_end: root
                .optional("exitOnLeaseEnd")?
                .map_or(Ok(false), |node| node.boolean())?,
            drivers: Drivers::read(&root)?,
        })
    }
}

fn is_host_and_port(endpoint: &str) -> bool {
    endpoint
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0))
}

/// `tls.ca`, decoded.
fn certificates(root: &Node<'_>) -> Result<Vec<u8>, ConfigError> {
    let Some(tls) = root.optional("tls")? else {
        return Ok(Vec::new());
    };
    tls.optional("insecure")?
        .map(|node| node.boolean())
        .transpose()?;
    let Some(ca) = tls.optional("ca")? else {
        return Ok(Vec::new());
    };
    let text = ca.text()?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let bundle = STANDARD
        .decode(text)
        .map_err(|error| ca.wrong(format!("must be base64 of a PEM bundle ({error})")))?;
    let marker = b"-----BEGIN CERTIFICATE-----";
    if !bundle.windows(marker.len()).any(|window| window == marker) {
        return Err(ca.wrong("must be base64 of a PEM bundle: no certificate inside"));
    }
    Ok(bundle)
}

/// Whether calls wait for a controller that is away, and the longest pause between attempts.
fn grpc_options(root: &Node<'_>) -> Result<(bool, u64), ConfigError> {
    let Some(options) = root.optional("grpcOptions")? else {
        return Ok((false, DEFAULT_RECONNECT_BACKOFF_MS));
    };
    for (_, option) in options.entries()? {
        if !matches!(option.value(), Value::Text(_) | Value::Int(_)) {
            return Err(option.wrong("must be a string or an integer"));
        }
    }
    let mut waits = false;
    if let Some(service_config) = options.optional("grpc.service_config")? {
        let parsed: serde_json::Value = serde_json::from_str(service_config.text()?)
            .map_err(|error| service_config.wrong(format!("must be JSON ({error})")))?;
        waits = parsed
            .get("methodConfig")
            .and_then(serde_json::Value::as_array)
            .is_some_and(|methods| methods.iter().any(waits_for_ready));
    }
    let backoff = match options.optional("grpc.max_reconnect_backoff_ms")? {
        Some(backoff) => backoff.integer(1..=600_000)?,
        None => DEFAULT_RECONNECT_BACKOFF_MS,
    };
    Ok((waits, backoff))
}

fn waits_for_ready(method: &serde_json::Value) -> bool {
    const SERVICE: &str = "jumpstarter.v1.ControllerService";
    let names = method.get("name").and_then(serde_json::Value::as_array);
    let applies = names.is_some_and(|names| {
        names.iter().any(
            |name| match name.get("service").and_then(serde_json::Value::as_str) {
                Some(service) => service == SERVICE,
                // An entry without a service is the default for every call.
                None => true,
            },
        )
    });
    applies && method.get("waitForReady") == Some(&serde_json::Value::Bool(true))
}

fn check_hooks(root: &Node<'_>) -> Result<(), ConfigError> {
    let Some(hooks) = root.optional("hooks")? else {
        return Ok(());
    };
    for name in ["beforeLease", "afterLease"] {
        let Some(hook) = hooks.optional(name)? else {
            continue;
        };
        hook.field("script")?.text()?;
        hook.optional("exec")?
            .map(|node| node.text().map(drop))
            .transpose()?;
        hook.optional("timeout")?
            .map(|node| node.integer(1..=86_400))
            .transpose()?;
        if let Some(on_failure) = hook.optional("onFailure")?
            && !["warn", "endLease", "exit"].contains(&on_failure.text()?)
        {
            return Err(on_failure.wrong("must be warn, endLease or exit"));
        }
    }
    Ok(())
}

fn check_failure_detection(root: &Node<'_>) -> Result<(), ConfigError> {
    let Some(detection) = root.optional("failureDetection")? else {
        return Ok(());
    };
    for name in ["maxRapidFailures", "rapidFailureWindow"] {
        detection
            .optional(name)?
            .map(|node| node.integer(0..=86_400))
            .transpose()?;
    }
    Ok(())
}
