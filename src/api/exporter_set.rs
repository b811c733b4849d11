//! `ExporterSet`: a pool of virtual targets.

use super::duration::{InvalidDuration, parse_go_duration};
use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a pool of virtual targets shall be.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "virtualtarget.jumpstarter.dev",
    version = "v1alpha1",
    kind = "ExporterSet",
    namespaced,
    status = "ExporterSetStatus",
    doc = "A pool of virtual targets, scaled by demand.",
    scale(
        spec_replicas_path = ".spec.maxReplicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".status.replicas"}"#,
    printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.readyReplicas"}"#,
    printcolumn = r#"{"name":"Available","type":"integer","jsonPath":".status.availableReplicas"}"#,
    printcolumn = r#"{"name":"Unavailable","type":"integer","jsonPath":".status.unavailableReplicas"}"#,
    printcolumn = r#"{"name":"Leased","type":"integer","jsonPath":".status.leasedReplicas"}"#,
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".spec.virtualTargetClassName"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.maxReplicas == 0 || self.minReplicas <= self.maxReplicas",
        "message": "minReplicas must be less than or equal to maxReplicas (when maxReplicas is not 0)"
    },
    {
        "rule": "self.maxReplicas == 0 || self.minAvailableReplicas <= self.maxReplicas",
        "message": "minAvailableReplicas must be less than or equal to maxReplicas (when maxReplicas is not 0)"
    }
]))]
pub struct ExporterSetSpec {
    /// Exporters that exist at least.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_replicas: i32,
    /// Exporters that exist at most; 0 means no upper bound.
    #[serde(default = "default_max_replicas")]
    #[schemars(range(min = 0))]
    pub max_replicas: i32,
    /// Exporters kept ready and unleased.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_available_replicas: i32,
    /// How long a surplus lasts before one exporter is given up, as a Go duration (`5m`, `1h30m`).
    #[serde(default = "default_cooldown")]
    pub scale_down_cooldown: Option<String>,
    /// What happens to a target after its lease.
    #[serde(default)]
    pub recycle_strategy: RecycleStrategy,
    /// The VirtualTargetClass in the same namespace.
    #[schemars(length(min = 1))]
    pub virtual_target_class_name: String,
    /// Parameters merged over those of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub parameters: Option<Value>,
    /// Images that replace those of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Images>,
    /// Must match the labels of the template.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// What each Exporter looks like.
    pub template: ExporterTemplate,
}

const DEFAULT_COOLDOWN: Duration = Duration::from_secs(5 * 60);

fn default_max_replicas() -> i32 {
    4
}

fn default_cooldown() -> Option<String> {
    Some("5m".to_owned())
}

impl ExporterSetSpec {
    /// How long a surplus lasts before one exporter is given up; five minutes if it is not set.
    ///
    /// # Errors
    /// If the text is not a Go duration or is negative: the API server lets any text through.
    pub fn cooldown(&self) -> Result<Duration, InvalidDuration> {
        self.scale_down_cooldown
            .as_deref()
            .map_or(Ok(DEFAULT_COOLDOWN), parse_go_duration)
    }
}

/// What happens to a target after its lease.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum RecycleStrategy {
    /// The exporter ends and is replaced by a new one.
    #[default]
    ExitAndReplace,
    /// The same exporter serves the next lease.
    InPlaceReuse,
}

/// The images of an instance.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct Images {
    /// The image with `jmp` and `jumpstarter-exec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exporter: Option<ImageSpec>,
    /// The image with QEMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<ImageSpec>,
}

/// The images of a set: each one that the set names replaces the class's wholly, its pull policy
/// included.
#[must_use]
pub fn merge_images(class: Option<&Images>, set: Option<&Images>) -> Images {
    let choose = |image: fn(&Images) -> Option<&ImageSpec>| {
        set.and_then(image)
            .or_else(|| class.and_then(image))
            .cloned()
    };
    Images {
        exporter: choose(|images| images.exporter.as_ref()),
        runtime: choose(|images| images.runtime.as_ref()),
    }
}

/// One image and when it is pulled.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Image reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When the image is pulled; `IfNotPresent` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum PullPolicy {
    /// Before every start of an instance.
    Always,
    /// Never: it must be on the host.
    Never,
    /// Only if it is not on the host.
    #[default]
    IfNotPresent,
}

/// What each Exporter of the set looks like.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[schemars(transform = schema::without_defaults)]
pub struct ExporterTemplate {
    /// Labels and annotations of each Exporter.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// What each Exporter exports.
    #[serde(default)]
    pub spec: TemplateSpec,
}

/// Labels and annotations of each Exporter.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(transform = schema::without_defaults)]
pub struct TemplateMetadata {
    /// Labels; leases select by them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What each Exporter exports.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[schemars(transform = schema::without_defaults)]
pub struct TemplateSpec {
    /// The drivers of the exporter.
    #[serde(default)]
    pub drivers: Vec<DriverConfig>,
}

/// One driver: a `type` with a `config`, or a `ref` to another one's child.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "size(self.name) > 0", "message": "name is required" },
    { "rule": "has(self.type) || has(self.ref)", "message": "one of type or ref is required" },
    { "rule": "!(has(self.type) && has(self.ref))", "message": "type and ref are mutually exclusive" },
    { "rule": "!(has(self.ref) && has(self.config))", "message": "config must not be set together with ref" }
]))]
pub struct DriverConfig {
    /// The name under which a lease finds it.
    pub name: String,
    /// Python class of the driver.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub type_: Option<String>,
    /// Dotted path to another driver.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[^.]+([.][^.]+)*$"))]
    pub ref_: Option<String>,
    /// Options of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub config: Option<Map<String, Value>>,
}

/// What is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = schema::counters_required)]
pub struct ExporterSetStatus {
    /// Exporters of the set.
    pub replicas: i32,
    /// Those online.
    pub ready_replicas: i32,
    /// Those online, enabled and unleased.
    pub available_replicas: i32,
    /// Those enabled and offline.
    pub unavailable_replicas: i32,
    /// Those leased.
    pub leased_replicas: i32,
    /// Instances on their way.
    pub pods_pending: i32,
    /// Instances that run.
    pub pods_running: i32,
    /// Instances that can't be brought up.
    pub pods_failed: i32,
    /// Instances whose host does not answer.
    pub pods_unknown: i32,
    /// Online and leased.
    pub exporters_active: i32,
    /// Online and not leased.
    pub exporters_idle: i32,
    /// Disabled.
    pub exporters_disabled: i32,
    /// Enabled and offline.
    pub exporters_offline: i32,
    /// The selector as a string, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Available, Progressing, Degraded, ScalingLimited.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests;
