//! The Kubernetes objects, as far as they matter here.
//!
//! Own types instead of the product's: a stand-in that shared them would share
//! their mistakes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, ObjectMeta, OwnerReference, Time,
};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::config::Device;

/// Label of a lease that is over.
pub const LEASE_ENDED_LABEL: &str = "jumpstarter.dev/lease-ended";

/// A reference by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRef {
    /// The name.
    #[serde(default)]
    pub name: String,
}

/// An Exporter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exporter {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: ExporterSpec,
    /// What is.
    #[serde(default)]
    pub status: ExporterStatus,
}

/// What is asked of an Exporter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExporterSpec {
    /// May be leased; absent means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// The state of an Exporter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // The names are Jumpstarter's and speak for themselves.
pub struct ExporterStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<NameRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<Device>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ref: Option<NameRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter_status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
}

/// A Lease.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: LeaseSpec,
    /// What is.
    #[serde(default)]
    pub status: LeaseStatus,
}

/// What a lease asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // The names are Jumpstarter's and speak for themselves.
pub struct LeaseSpec {
    pub selector: LabelSelector,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter_ref: Option<NameRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    pub allow_disabled: bool,
    pub release: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
}

/// The state of a lease.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // The names are Jumpstarter's and speak for themselves.
pub struct LeaseStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter_ref: Option<NameRef>,
    pub ended: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A kind whose objects live in namespaces and can be read and watched.
pub trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
    + Send
    + 'static
{
}

impl<K> Namespaced for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static
{
}

macro_rules! resource {
    ($type:ty, $kind:literal, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                "jumpstarter.dev".into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1alpha1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(Exporter, "Exporter", "exporters");
resource!(Lease, "Lease", "leases");

impl Exporter {
    /// Whether leases may be given to it.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.spec.enabled.unwrap_or(true)
    }

    /// Whether the condition is True.
    #[must_use]
    pub fn has(&self, condition: &str) -> bool {
        is_true(&self.status.conditions, condition)
    }

    /// A reference that makes an object go with this Exporter.
    #[must_use]
    pub fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: "jumpstarter.dev/v1alpha1".into(),
            kind: "Exporter".into(),
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

impl Lease {
    /// Whether it is over.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.status.ended || self.labels_contain(LEASE_ENDED_LABEL)
    }

    /// The exporter that it holds, or held.
    #[must_use]
    pub fn exporter(&self) -> Option<&str> {
        self.status
            .exporter_ref
            .as_ref()
            .map(|reference| reference.name.as_str())
    }

    fn labels_contain(&self, label: &str) -> bool {
        self.metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(label))
    }
}

/// Whether the condition is there and True.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Sets a condition; its transition time moves only with its status.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: bool,
    (reason, message): (&str, &str),
    metadata: &ObjectMeta,
    now: Timestamp,
) {
    let mut new = Condition {
        type_: kind.into(),
        status: if status { "True" } else { "False" }.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: metadata.generation,
        last_transition_time: Time(now),
    };
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == kind)
    {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// The merge patch that makes a status of `old` into `new`; `None` if they are
/// equal. Fields that the schema requires are in every patch: the first one
/// makes the status.
#[must_use]
pub fn status_patch<T: Serialize>(old: &T, new: &T, required: &[&str]) -> Option<Value> {
    let fields = |status: &T| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (old, new) = (fields(old), fields(new));
    let gone = old
        .keys()
        .filter(|key| !new.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let changed = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(*value));
    let mut patch: Map<String, Value> = changed
        .map(|(key, value)| (key.clone(), value.clone()))
        .chain(gone)
        .collect();
    if patch.is_empty() {
        return None;
    }
    let required = new
        .iter()
        .filter(|(key, _)| required.contains(&key.as_str()));
    patch.extend(required.map(|(key, value)| (key.clone(), value.clone())));
    Some(json!({ "status": patch }))
}

/// Now, in whole seconds, as Kubernetes stores times.
#[must_use]
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Whether a label selector chooses these labels; `None` when it is malformed.
#[must_use]
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> Option<bool> {
    use kube::core::SelectorExt as _;
    let selector = kube::core::Selector::try_from(selector.clone()).ok()?;
    Some(selector.matches(labels))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_holds_what_changed_and_nulls_what_is_gone() {
        let old = ExporterStatus {
            endpoint: Some("a:1".into()),
            lease_ref: Some(NameRef { name: "l1".into() }),
            ..ExporterStatus::default()
        };
        let mut new = ExporterStatus {
            exporter_status: Some("Available".into()),
            ..old.clone()
        };
        new.lease_ref = None;
        let patch = json!({"status": {"exporterStatus": "Available", "leaseRef": null}});
        assert_eq!(status_patch(&old, &new, &[]), Some(patch));
        assert_eq!(status_patch(&new, &new, &[]), None);

        let waiting = LeaseStatus::default();
        let mut held = waiting.clone();
        held.exporter_ref = Some(NameRef { name: "x1".into() });
        let patch = json!({"status": {"ended": false, "exporterRef": {"name": "x1"}}});
        assert_eq!(status_patch(&waiting, &held, &["ended"]), Some(patch));
        assert_eq!(status_patch(&held, &held, &["ended"]), None);
    }

    #[test]
    fn a_transition_time_moves_with_the_status_only() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (mut conditions, metadata) = (Vec::new(), ObjectMeta::default());
        set_condition(
            &mut conditions,
            "Online",
            true,
            ("Seen", "a"),
            &metadata,
            at(1),
        );
        set_condition(
            &mut conditions,
            "Online",
            true,
            ("StatusReported", "b"),
            &metadata,
            at(2),
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
        assert_eq!(conditions[0].reason, "StatusReported");
        set_condition(
            &mut conditions,
            "Online",
            false,
            ("Offline", "c"),
            &metadata,
            at(3),
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(3)));
        assert_eq!(conditions.len(), 1);
    }
}
