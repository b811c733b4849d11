//! `Exporter`: one target as Jumpstarter's controller knows it.

use super::schema;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One target.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "jumpstarter.dev",
    version = "v1alpha1",
    kind = "Exporter",
    namespaced,
    status = "ExporterStatus",
    doc = "One target that can be leased.",
    printcolumn = r#"{"name":"Enabled","type":"boolean","jsonPath":".spec.enabled"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.exporterStatus"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.statusMessage","priority":1}"#
)]
pub struct ExporterSpec {
    /// Name by which the exporter logs in, if not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Whether new leases may be given to it; absent means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
}

/// What Jumpstarter's controller says of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = schema::without_defaults)]
pub struct ExporterStatus {
    /// Registered, Online.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The Secret with its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub credential: Option<LocalObjectReference>,
    /// What it offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::devices")]
    pub devices: Option<Vec<Value>>,
    /// The lease that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub lease_ref: Option<LocalObjectReference>,
    /// When it was last heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// `host:port` of the Jumpstarter service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// What it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [
        "Unspecified", "Offline", "Available", "BeforeLeaseHook", "LeaseReady", "AfterLeaseHook",
        "BeforeLeaseHookFailed", "AfterLeaseHookFailed"
    ]))]
    pub exporter_status: Option<String>,
    /// More of the same, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
}
