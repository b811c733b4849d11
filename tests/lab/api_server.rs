//! The API server holds our CustomResourceDefinitions to their rules.

use super::harness::{Lab, text};
use std::fs;
use std::path::PathBuf;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn accepts_what_is_right() {
    let lab = Lab::new("accepted").await;
    let files = files("accepted");
    assert!(files.len() >= 3);
    for file in files {
        lab.apply(&fs::read_to_string(file).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_what_breaks_a_rule_and_says_which() {
    let lab = Lab::new("refused").await;
    let files = files("refused");
    assert!(files.len() >= 30);
    for file in files {
        let manifest = fs::read_to_string(&file).unwrap();
        let expected = manifest.lines().next().unwrap().trim_start_matches("# ");
        let output = lab.try_kubectl(
            &["create", "--dry-run=server", "--validate=false", "-f", "-"],
            &manifest,
        );
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{}: accepted", file.display());
        assert!(said.contains(expected), "{}: {said}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn takes_the_manifests_to_deploy_with() {
    let lab = Lab::new("deploy").await;
    let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy/base");
    let rendered = lab.kubectl(&["kustomize", base.to_str().unwrap()], "");
    let here = rendered.replace(
        "namespace: jumpstarter",
        &format!("namespace: {}", lab.namespace),
    );
    let said = lab.kubectl(&["apply", "--dry-run=server", "-f", "-"], &here);
    for kind in [
        "serviceaccount",
        "role.rbac",
        "rolebinding.rbac",
        "statefulset.apps",
    ] {
        assert!(said.contains(kind), "no {kind}: {said}");
    }
}
