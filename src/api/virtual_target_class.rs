//! `VirtualTargetClass`: what the targets of several sets have in common.

use super::exporter_set::Images;
use super::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the targets of several sets have in common.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "virtualtarget.jumpstarter.dev",
    version = "v1alpha1",
    kind = "VirtualTargetClass",
    plural = "virtualtargetclasses",
    namespaced,
    doc = "What the targets of several ExporterSets have in common, and who makes them.",
    printcolumn = r#"{"name":"Provisioner","type":"string","jsonPath":".spec.provisioner"}"#,
    printcolumn = r#"{"name":"Binding","type":"string","jsonPath":".spec.bindingMode"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualTargetClassSpec {
    /// Who makes these targets.
    #[schemars(length(min = 1))]
    pub provisioner: String,
    /// The Secret with the SSH key (`ssh-privatekey`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub credentials_secret_ref: Option<k8s_openapi::api::core::v1::LocalObjectReference>,
    /// Parameters that a set may override.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub parameters: Option<Value>,
    /// When targets are made.
    #[serde(default)]
    pub binding_mode: BindingMode,
    /// What happens to a target that is given up.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,
    /// Only for provisioners that make Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::scheduling")]
    pub scheduling: Option<Value>,
    /// Where the CA of the Jumpstarter service is, if not in `jumpstarter-service-ca-cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_config_map_ref: Option<CaBundleReference>,
    /// Images of the targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Images>,
}

/// When targets are made.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum BindingMode {
    /// A warm pool.
    #[default]
    Immediate,
    /// On demand.
    WaitForFirstConsumer,
}

/// What happens to a target that is given up.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// It is taken away.
    #[default]
    Delete,
    /// It is kept for a look.
    Retain,
}

/// A key of a ConfigMap with PEM certificates.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct CaBundleReference {
    /// The ConfigMap's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The key in it.
    #[serde(default = "default_ca_key")]
    pub key: String,
}

fn default_ca_key() -> String {
    "ca-bundle.crt".to_owned()
}
