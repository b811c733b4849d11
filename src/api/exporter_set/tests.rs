#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;

fn images(value: Value) -> Images {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_sets_image_replaces_the_classs_wholly() {
    let class = images(json!({
        "exporter": { "image": "class/exporter", "imagePullPolicy": "Always" },
        "runtime": { "image": "class/runtime" },
    }));
    let set = images(json!({ "exporter": { "image": "set/exporter" } }));
    assert_eq!(merge_images(None, None), Images::default());
    assert_eq!(merge_images(Some(&class), None), class);
    assert_eq!(merge_images(None, Some(&set)), set);
    assert_eq!(
        merge_images(Some(&class), Some(&set)),
        images(json!({
            "exporter": { "image": "set/exporter" },
            "runtime": { "image": "class/runtime" },
        }))
    );
}

#[test]
fn a_set_of_the_least_words_has_the_defaults() {
    let spec: ExporterSetSpec = serde_json::from_value(json!({
        "virtualTargetClassName": "c", "selector": {}, "template": {}
    }))
    .unwrap();
    assert_eq!(
        (
            spec.min_replicas,
            spec.max_replicas,
            spec.min_available_replicas
        ),
        (0, 4, 0)
    );
    assert_eq!(spec.recycle_strategy, RecycleStrategy::ExitAndReplace);
    assert_eq!(spec.cooldown(), Ok(Duration::from_secs(300)));
}

#[test]
fn a_cooldown_is_read_or_refused() {
    let spec = |cooldown: Value| -> ExporterSetSpec {
        serde_json::from_value(json!({
            "virtualTargetClassName": "c", "selector": {}, "template": {}, "scaleDownCooldown": cooldown
        }))
        .unwrap()
    };
    assert_eq!(spec(json!("90s")).cooldown(), Ok(Duration::from_secs(90)));
    assert_eq!(spec(Value::Null).cooldown(), Ok(Duration::from_secs(300)));
    assert!(spec(json!("5 minutes")).cooldown().is_err());
}

#[test]
fn every_counter_is_sent_also_at_zero() {
    let status = serde_json::to_value(ExporterSetStatus::default()).unwrap();
    assert_eq!(
        status
            .as_object()
            .unwrap()
            .values()
            .filter(|v| **v == json!(0))
            .count(),
        13
    );
}
