//! The files in `crds/` are what the Rust types say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use exporter_set_controller::api::crds_yaml;
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
