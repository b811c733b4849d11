//! Writes to Exporters.

use super::COMPONENT;
use super::request::bounded;
use crate::api::{Exporter, FINALIZER};
use crate::controller::ports::{ClusterError, ExporterPatch};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// How often a change of the finalizers is tried against others who write the same Exporter.
const ATTEMPTS: u32 = 10;
/// The pause after the first lost race; it doubles, up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

fn subject(namespace: &str, name: &str) -> String {
    format!("Exporter {namespace}/{name}")
}

/// Reads an Exporter.
pub(super) async fn get(
    api: &Api<Exporter>,
    namespace: &str,
    name: &str,
) -> Result<Exporter, ClusterError> {
    bounded(&subject(namespace, name), name, api.get(name)).await
}

/// Creates an Exporter. kube repeats a request whose answer was 503 or 504, so that `AlreadyExists`
/// can also mean that the first try was carried out: the caller compares.
pub(super) async fn create(
    api: &Api<Exporter>,
    namespace: &str,
    exporter: &Exporter,
) -> Result<Exporter, ClusterError> {
    let name = exporter.name_any();
    let params = PostParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PostParams::default()
    };
    bounded(
        &subject(namespace, &name),
        &name,
        api.create(&params, exporter),
    )
    .await
}

/// Deletes an Exporter with that UID. One that is terminating already stays so.
pub(super) async fn delete(
    api: &Api<Exporter>,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), ClusterError> {
    let object = subject(namespace, name);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(required_uid(&object, uid)?.to_owned()),
            ..Preconditions::default()
        }),
        ..DeleteParams::default()
    };
    bounded(&object, name, api.delete(name, &params)).await?;
    Ok(())
}

/// Patches an Exporter.
///
/// A merge patch replaces the whole list of finalizers, so a change of ours is made from a fresh read
/// and bound to its resourceVersion; everything else needs only the UID.
///
/// # Errors
/// `Conflict` if the Exporter has another UID by now, or if others kept changing it.
pub(super) async fn patch(
    api: &Api<Exporter>,
    namespace: &str,
    name: &str,
    patch: &ExporterPatch,
) -> Result<Exporter, ClusterError> {
    let object = subject(namespace, name);
    required_uid(&object, &patch.uid)?;
    let Some(wanted) = patch.finalizer else {
        return send(api, &object, name, body(patch, None)).await;
    };
    let mut result = Err(ClusterError::Conflict(object.clone()));
    for attempt in 0..ATTEMPTS {
        let current = bounded(&object, name, api.get(name)).await?;
        if current.uid().as_deref() != Some(patch.uid.as_str()) {
            return Err(ClusterError::Conflict(object));
        }
        let finalizers = with_finalizer(current.finalizers(), wanted);
        let version = current.resource_version();
        let unchanged = finalizers == current.finalizers();
        let change = (!unchanged).then_some((finalizers, version));
        result = send(api, &object, name, body(patch, change)).await;
        if !matches!(result, Err(ClusterError::Conflict(_))) {
            break;
        }
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(attempt);
        sleep(pause.min(Duration::from_secs(1))).await;
    }
    result
}

async fn send(
    api: &Api<Exporter>,
    object: &str,
    name: &str,
    body: Value,
) -> Result<Exporter, ClusterError> {
    let params = PatchParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PatchParams::default()
    };
    bounded(object, name, api.patch(name, &params, &Patch::Merge(body))).await
}

/// The API server takes an empty UID as none: it would let us write to a successor of the same name.
fn required_uid<'a>(object: &str, uid: &'a str) -> Result<&'a str, ClusterError> {
    if uid.is_empty() {
        return Err(ClusterError::Other {
            object: object.to_owned(),
            message: "its UID is not known, so it can't be changed safely".to_owned(),
        });
    }
    Ok(uid)
}

/// The finalizers with or without ours; those of others stay, in their order.
fn with_finalizer(current: &[String], wanted: bool) -> Vec<String> {
    let others = current.iter().filter(|f| *f != FINALIZER).cloned();
    if !wanted {
        return others.collect();
    }
    if current.iter().any(|f| f == FINALIZER) {
        return current.to_vec();
    }
    others.chain([FINALIZER.to_owned()]).collect()
}

/// The merge patch; `finalizers` with the resourceVersion for which they hold.
fn body(patch: &ExporterPatch, finalizers: Option<(Vec<String>, Option<String>)>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), json!(patch.uid));
    if !patch.labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(patch.labels));
    }
    if !patch.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(patch.annotations));
    }
    if let Some((finalizers, version)) = finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
        metadata.insert("resourceVersion".to_owned(), json!(version));
    }
    let mut body = json!({ "metadata": metadata });
    if let (Some(enabled), Some(body)) = (patch.enabled, body.as_object_mut()) {
        body.insert("spec".to_owned(), json!({ "enabled": enabled }));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patch() -> ExporterPatch {
        ExporterPatch {
            uid: "u-1".to_owned(),
            ..ExporterPatch::default()
        }
    }

    #[test]
    fn a_patch_carries_only_what_changes() {
        assert_eq!(body(&patch(), None), json!({"metadata": {"uid": "u-1"}}));
        let full = ExporterPatch {
            labels: [("board".to_owned(), Some("qemu".to_owned()))].into(),
            annotations: [("old".to_owned(), None)].into(),
            enabled: Some(false),
            ..patch()
        };
        let finalizers = Some((vec!["f".to_owned()], Some("7".to_owned())));
        assert_eq!(
            body(&full, finalizers),
            json!({
                "metadata": {
                    "uid": "u-1", "labels": {"board": "qemu"}, "annotations": {"old": null},
                    "finalizers": ["f"], "resourceVersion": "7",
                },
                "spec": {"enabled": false},
            })
        );
    }

    #[test]
    fn without_a_uid_nothing_is_changed() {
        assert!(required_uid("Exporter lab/a", "").is_err());
        assert!(required_uid("Exporter lab/a", "u-1").is_ok());
    }

    proptest! {
        #[test]
        fn finalizers_of_others_survive(
            others in proptest::collection::vec("[a-z]{1,4}\\.example\\.com/x", 0..4),
            ours in any::<bool>(),
            at in 0usize..5,
            wanted in any::<bool>(),
        ) {
            let mut current = others.clone();
            if ours {
                current.insert(at.min(current.len()), FINALIZER.to_owned());
            }
            let after = with_finalizer(&current, wanted);
            let rest: Vec<_> = after.iter().filter(|f| *f != FINALIZER).cloned().collect();
            prop_assert_eq!(rest, others);
            prop_assert_eq!(after.iter().filter(|f| *f == FINALIZER).count(), usize::from(wanted));
            prop_assert!(ours != wanted || after == current);
        }
    }
}
