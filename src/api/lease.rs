//! `Lease`: somebody's claim to an exporter.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Somebody's claim to an exporter.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "jumpstarter.dev",
    version = "v1alpha1",
    kind = "Lease",
    namespaced,
    status = "LeaseStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    /// Who asks.
    pub client_ref: LocalObjectReference,
    /// How long, as a Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Which exporters will do.
    #[serde(default)]
    pub selector: LabelSelector,
    /// The one exporter that will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exporter_ref: Option<LocalObjectReference>,
    /// Tags for people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Whether a disabled exporter will do.
    #[serde(default)]
    pub allow_disabled: bool,
    /// Whether it shall end now.
    #[serde(default)]
    pub release: bool,
    /// When it begins, if not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<Time>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// Where the claim comes from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
}

/// What became of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseStatus {
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// The exporter that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter_ref: Option<LocalObjectReference>,
    /// Whether it is over.
    pub ended: bool,
    /// Its priority.
    pub priority: i32,
    /// Whether it may be ended for another.
    pub spot_access: bool,
    /// Pending, Ready, Unsatisfiable, Invalid.
    pub conditions: Vec<Condition>,
}
