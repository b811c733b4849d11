//! The CustomResourceDefinitions, as they are installed.

use super::{Exporter, ExporterSet, Lease, VirtualTargetClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The definitions of all kinds that this controller works with, in the order of their names.
///
/// In a Jumpstarter installation the operator brings its own; these are for development, for tests
/// and for clusters without the operator.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        Exporter::crd(),
        Lease::crd(),
        ExporterSet::crd(),
        VirtualTargetClass::crd(),
    ];
    for crd in &mut all {
        polish(crd);
    }
    all
}

/// [`crds`] as YAML documents, each with the name of its file, e.g.
/// `virtualtarget.jumpstarter.dev_exportersets.yaml`.
///
/// # Errors
/// If a definition can't be written as YAML.
pub fn crds_yaml() -> Result<Vec<(String, String)>, serde_yaml::Error> {
    crds()
        .iter()
        .map(|crd| {
            let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            Ok((name, format!("---\n{}", serde_yaml::to_string(crd)?)))
        })
        .collect()
}

/// Makes a derived definition what Kubernetes' own generator would write.
fn polish(crd: &mut CustomResourceDefinition) {
    let names = &mut crd.spec.names;
    names.list_kind = Some(format!("{}List", names.kind));
    for version in &mut crd.spec.versions {
        let Some(root) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        root.title = None;
        walk(root);
    }
}

type Props = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

/// An optional Rust field is one that may be absent, not one that may be `null`: with `nullable`
/// the API server would keep a `null` instead of putting the default in its place.
fn walk(props: &mut Props) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaPropsOrArray as Items, JSONSchemaPropsOrBool as Additional,
    };
    props.nullable = None;
    for child in props.properties.iter_mut().flat_map(|map| map.values_mut()) {
        walk(child);
    }
    match props.items.as_mut() {
        Some(Items::Schema(child)) => walk(child),
        Some(Items::Schemas(children)) => children.iter_mut().for_each(walk),
        None => {}
    }
    if let Some(Additional::Schema(child)) = props.additional_properties.as_mut() {
        walk(child);
    }
}
