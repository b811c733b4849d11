#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::render::tests::Given;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Undoes what systemd does to a command line of ours: takes the outer quotes off and `$$` for `$`.
fn script(condition: &str) -> String {
    condition
        .strip_prefix("/bin/sh -c \"")
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or_else(|| panic!("{condition}"))
        .replace("$$", "$")
}

/// Runs the condition with the volume at `root/data` and the word at `root/word`.
fn may_start(root: &Path) -> bool {
    let names = Names::of("x1");
    let script = script(&clean_machine(&names))
        .replace(&names.start_word(), root.join("word").to_str().unwrap())
        .replace(&names.volume_data(), root.join("data").to_str().unwrap());
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    // systemd takes 255 for a failure instead of a no.
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
    status.success()
}

/// A folder with a freshly staged volume.
fn staged() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    fs::create_dir(&data).unwrap();
    for name in [
        "jumpstarter-exec",
        "launcher.sock",
        "OVMF_CODE.fd",
        "OVMF_VARS.fd",
    ] {
        fs::write(data.join(name), "").unwrap();
    }
    let launcher = data.join("jumpstarter-exec");
    fs::set_permissions(launcher, fs::Permissions::from_mode(0o755)).unwrap();
    root
}

#[test]
fn an_exporter_starts_on_a_clean_machine() {
    let root = staged();
    assert!(may_start(root.path()));
    assert!(may_start(root.path()), "asking changes nothing");
    fs::write(root.path().join("data/.jumpstarter-exec.a1B2"), "").unwrap();
    fs::write(root.path().join("data/.OVMF_VARS.fd.1"), "").unwrap();
    assert!(may_start(root.path()), "staging under way is no use");
    fs::remove_file(root.path().join("data/launcher.sock")).unwrap();
    assert!(may_start(root.path()), "the launcher need not be up");
}

#[test]
fn an_exporter_does_not_start_on_a_used_machine() {
    for left_behind in [
        "root",
        "qmp",
        "vnc",
        "serial.sock",
        "tmpab12",
        ".hidden",
        "..x",
        "a b",
        "*",
    ] {
        let root = staged();
        fs::write(root.path().join("data").join(left_behind), "").unwrap();
        assert!(!may_start(root.path()), "{left_behind}");
    }
}

#[test]
fn an_exporter_does_not_start_on_a_machine_that_is_not_staged() {
    let root = staged();
    fs::remove_file(root.path().join("data/jumpstarter-exec")).unwrap();
    assert!(!may_start(root.path()));
    fs::remove_dir_all(root.path().join("data")).unwrap();
    assert!(!may_start(root.path()));
}

#[test]
fn our_word_allows_one_start_on_a_used_machine() {
    let root = staged();
    fs::write(root.path().join("data/root"), "").unwrap();
    fs::write(root.path().join("word"), "").unwrap();
    assert!(may_start(root.path()));
    assert!(!root.path().join("word").exists());
    assert!(!may_start(root.path()), "the word is used up");
}

#[test]
fn every_container_carries_its_owners_labels() {
    let given = Given::documented(json!({}));
    let inputs = given.inputs();
    let names = Names::of(inputs.exporter);
    let quadlets = Quadlets {
        inputs: &inputs,
        names: &names,
        exporter_image: "lab/exporter",
        runtime_image: "lab/runtime",
    };
    let all = quadlets.render();
    assert_eq!(all.len(), 3);
    for (name, text) in all {
        for label in [
            "managed-by=qemu-ssh".to_owned(),
            format!("exporter={}", inputs.exporter),
            format!("namespace={}", inputs.namespace),
            format!("exporterset={}", inputs.set),
            format!("exporter-uid={}", inputs.exporter_uid),
        ] {
            assert!(
                text.contains(&format!("\nLabel=jumpstarter.dev/{label}\n")),
                "{name}: {label}"
            );
        }
    }
}
