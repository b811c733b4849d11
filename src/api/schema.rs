//! Pieces of CRD schema that the Rust types alone don't give: what Kubernetes' own generators
//! write for the same fields, so that a cluster behaves alike whoever installed the CRDs.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Any JSON, kept as it is.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// Any JSON object, kept as it is.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The name of another object in the same namespace.
pub(super) fn local_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": { "name": { "type": "string", "default": "" } }
    })
}

/// A label selector.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string" },
                        "operator": { "type": "string" },
                        "values": {
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" }
                        }
                    }
                }
            }
        }
    })
}

/// A list of `metav1.Condition`, with the limits that Kubernetes puts on each field.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "message": { "type": "string", "maxLength": 32768 },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                }
            }
        }
    })
}

/// What an exporter says of each of its drivers.
pub(super) fn devices(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "uuid": { "type": "string" },
                "parent_uuid": { "type": "string" },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } }
            }
        }
    })
}

/// Where Pods may run and what they may use.
pub(super) fn scheduling(_: &mut SchemaGenerator) -> Schema {
    let quantities = json!({
        "type": "object",
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$"
        }
    });
    json_schema!({
        "type": "object",
        "properties": {
            "nodeSelector": { "type": "object", "additionalProperties": { "type": "string" } },
            "resources": {
                "type": "object",
                "properties": {
                    "claims": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": { "type": "string" },
                                "request": { "type": "string" }
                            }
                        }
                    },
                    "limits": quantities,
                    "requests": quantities
                }
            },
            "tolerations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "effect": { "type": "string" },
                        "key": { "type": "string" },
                        "operator": { "type": "string" },
                        "tolerationSeconds": { "type": "integer", "format": "int64" },
                        "value": { "type": "string" }
                    }
                }
            }
        }
    })
}

/// Takes the defaults of a struct's fields out of its schema: serde needs them to read objects that
/// lack a field, while the API server shall store what the user wrote and nothing more.
pub(super) fn without_defaults(schema: &mut Schema) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            if let Value::Object(property) = property {
                property.remove("default");
            }
        }
    }
}

/// As [`without_defaults`], and with every counter required: jumpstarter-controller's clients and
/// `kubectl scale` rely on zeros being there.
pub(super) fn counters_required(schema: &mut Schema) {
    without_defaults(schema);
    let counters: Vec<Value> = match schema.get("properties") {
        Some(Value::Object(properties)) => properties
            .iter()
            .filter(|(_, property)| property.get("format") == Some(&json!("int32")))
            .map(|(name, _)| json!(name))
            .collect(),
        _ => Vec::new(),
    };
    schema.insert("required".to_owned(), Value::Array(counters));
}
