//! `Lease`: somebody's claim to an exporter.

use super::schema;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Somebody's claim to an exporter.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "jumpstarter.dev",
    version = "v1alpha1",
    kind = "Lease",
    namespaced,
    status = "LeaseStatus",
    doc = "A client's claim to one exporter for some time.",
    printcolumn = r#"{"name":"Ended","type":"boolean","jsonPath":".status.ended"}"#,
    printcolumn = r#"{"name":"Client","type":"string","jsonPath":".spec.clientRef.name"}"#,
    printcolumn = r#"{"name":"Exporter","type":"string","jsonPath":".status.exporterRef.name"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = spec_schema,
    extend("x-kubernetes-validations" = [
        {
            "rule": "((has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)) || (has(self.exporterRef) && has(self.exporterRef.name) && size(self.exporterRef.name) > 0)",
            "message": "one of selector or exporterRef.name is required"
        },
        {
            "rule": "!has(oldSelf.tags) || self.tags == oldSelf.tags",
            "message": "tags are immutable after creation"
        },
        {
            "rule": "!has(oldSelf.context) || self.context == oldSelf.context",
            "message": "context is immutable after creation"
        },
        {
            "rule": "!has(self.context) || self.context.all(k, size(k) <= 32 && size(self.context[k]) <= 64)",
            "message": "context keys max 32 chars, values max 64 chars"
        }
    ])
)]
pub struct LeaseSpec {
    /// Who asks.
    #[schemars(schema_with = "schema::local_reference")]
    pub client_ref: LocalObjectReference,
    /// How long, as a Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Which exporters will do.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// The one exporter that will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub exporter_ref: Option<LocalObjectReference>,
    /// Tags for people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 10))]
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
    #[schemars(extend("maxProperties" = 8))]
    pub context: BTreeMap<String, String>,
}

/// A lease says what it wants; only an absent selector is filled in, for the rule on selectors to
/// have something to look at.
fn spec_schema(schema: &mut Schema) {
    schema::without_defaults(schema);
    if let Some(Value::Object(selector)) = schema.pointer_mut("/properties/selector") {
        selector.insert("default".to_owned(), json!({}));
    }
    schema.insert("required".to_owned(), json!(["clientRef", "selector"]));
}

/// What became of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = status_schema)]
pub struct LeaseStatus {
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// The exporter that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub exporter_ref: Option<LocalObjectReference>,
    /// Whether it is over.
    pub ended: bool,
    /// Its priority.
    pub priority: i32,
    /// Whether it may be ended for another.
    pub spot_access: bool,
    /// Pending, Ready, Unsatisfiable, Invalid.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

fn status_schema(schema: &mut Schema) {
    schema::without_defaults(schema);
    schema.insert("required".to_owned(), json!(["ended"]));
}
