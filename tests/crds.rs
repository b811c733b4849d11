//! The files in `crds/` are what the Rust types say.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use exporter_set_controller::api::{Exporter, ExporterSet, Lease, VirtualTargetClass, crds_yaml};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

/// `UPDATE=1 cargo test --test crds` writes the files anew.
#[test]
fn the_files_in_crds_are_generated_from_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    let generated = crds_yaml().unwrap();
    if env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in &generated {
            fs::write(dir.join(name), text).unwrap();
        }
    }
    for (name, text) in &generated {
        let on_disk = fs::read_to_string(dir.join(name)).unwrap_or_default();
        assert!(
            &on_disk == text,
            "crds/{name} is stale: run UPDATE=1 cargo test --test crds"
        );
    }
    let expected: BTreeSet<String> = generated.into_iter().map(|(name, _)| name).collect();
    let found: BTreeSet<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected, "crds/ holds generated files only");
}

/// What the API server must accept (`tests/data/accepted/`) is what the types can read.
#[test]
fn accepted_manifests_are_read_by_the_types() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/accepted");
    let mut kinds = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let value = Value::deserialize(document).unwrap();
            let kind = value["kind"].as_str().unwrap().to_owned();
            let read = match kind.as_str() {
                "ExporterSet" => serde_json::from_value::<ExporterSet>(value).map(drop),
                "VirtualTargetClass" => {
                    serde_json::from_value::<VirtualTargetClass>(value).map(drop)
                }
                "Exporter" => serde_json::from_value::<Exporter>(value).map(drop),
                "Lease" => serde_json::from_value::<Lease>(value).map(drop),
                other => panic!("{}: kind {other}", path.display()),
            };
            read.unwrap_or_else(|error| panic!("{}: {kind}: {error}", path.display()));
            kinds.insert(kind);
        }
    }
    assert_eq!(kinds.len(), 4, "a kind is not covered: {kinds:?}");
}

/// A refused manifest says in its first line what the API server's message must contain.
#[test]
fn refused_manifests_say_why() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/refused");
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let why = text.lines().next().unwrap().strip_prefix("# ");
        assert!(why.is_some_and(|why| !why.is_empty()), "{}", path.display());
    }
}
