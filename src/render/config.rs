//! The exporter's own config, as `jmp run` reads it.

use super::Inputs;
use super::yaml::to_yaml;
use crate::api::RecycleStrategy;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Calls to jumpstarter-controller wait while it is away instead of failing, so that its restart
/// ends neither a session nor a lease. Streams of a session go to the router and fail as before.
const WAIT_FOR_CONTROLLER: &str = r#"{"methodConfig":[{"name":[{"service":"jumpstarter.v1.ControllerService"}],"waitForReady":true}]}"#;

/// Writes the config with `token` in it.
pub(super) fn config(inputs: &Inputs<'_>, export: &Map<String, Value>, token: &str) -> String {
    to_yaml(&json!({
        "apiVersion": "jumpstarter.dev/v1alpha1",
        "kind": "ExporterConfig",
        "metadata": { "namespace": inputs.namespace, "name": inputs.exporter },
        "endpoint": inputs.endpoint,
        // An empty one stands for the roots that the exporter's image trusts.
        "tls": { "ca": STANDARD.encode(inputs.ca_pem) },
        "token": token,
        "grpcOptions": {
            "grpc.service_config": WAIT_FOR_CONTROLLER,
            "grpc.max_reconnect_backoff_ms": 5000,
        },
        "export": export,
        "exitOnLeaseEnd": inputs.recycle != RecycleStrategy::InPlaceReuse,
    }))
}
