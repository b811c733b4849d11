#![allow(clippy::unwrap_used)]

use super::{fingerprint, read};
use crate::host::{HostKeys, PrivateKey, Target};
use crate::instance::FailureClass;
use std::path::Path;
use std::process::Command;

fn target(text: &str) -> Target {
    Target {
        name: "lab-1".to_owned(),
        user: "root".to_owned(),
        port: 22,
        key: PrivateKey::new(text.to_owned()),
        host_keys: HostKeys::FirstUse,
    }
}

/// Makes a key with ssh-keygen; gives the private and the public half.
fn make(dir: &Path, name: &str, args: &[&str]) -> (String, String) {
    let path = dir.join(name);
    let status = Command::new("ssh-keygen")
        .args(["-q", "-C", "", "-f"])
        .arg(&path)
        .args(args)
        .status()
        .unwrap();
    assert!(status.success());
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    (read(&path), read(&path.with_extension("pub")))
}

#[test]
fn keys_of_each_kind_and_format_are_read() {
    let dir = tempfile::tempdir().unwrap();
    for (name, args) in [
        ("ed25519", &["-t", "ed25519", "-N", ""][..]),
        ("ecdsa", &["-t", "ecdsa", "-b", "384", "-N", ""]),
        ("rsa", &["-t", "rsa", "-b", "2048", "-N", ""]),
        ("pem", &["-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM"]),
        ("pkcs8", &["-t", "ecdsa", "-N", "", "-m", "PKCS8"]),
    ] {
        let (private, public) = make(dir.path(), name, args);
        let expected = russh::keys::PublicKey::from_openssh(&public).unwrap();
        let expected = super::super::known_hosts::fingerprint(&expected);
        for text in [
            private.clone(),
            private.replace('\n', "\r\n"),
            private.trim().to_owned(),
        ] {
            assert_eq!(
                fingerprint(&read(&target(&text)).unwrap()),
                expected,
                "{name}"
            );
        }
    }
}

#[test]
fn what_is_no_usable_key_is_told_apart_and_never_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let (encrypted, public) = make(dir.path(), "a", &["-t", "ed25519", "-N", "secret"]);
    let (pem, _) = make(
        dir.path(),
        "b",
        &["-t", "rsa", "-b", "2048", "-N", "secret", "-m", "PEM"],
    );
    for (text, part) in [
        (encrypted.as_str(), "encrypted with a passphrase"),
        (pem.as_str(), "encrypted with a passphrase"),
        (public.as_str(), "it is a public key"),
        ("", "it is empty"),
        ("c3VwZXJzZWNyZXQ", "it is not a private key"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nc3VwZXJzZWNyZXQ\n",
            "it is not a private key",
        ),
    ] {
        let failure = read(&target(text)).unwrap_err();
        assert_eq!(failure.class, FailureClass::BadPrivateKey);
        assert!(failure.message.contains(part), "{failure}");
        assert!(failure.message.contains("root@lab-1:22"), "{failure}");
        assert!(!failure.message.contains("c3VwZXJzZWNyZXQ"), "{failure}");
    }
}
